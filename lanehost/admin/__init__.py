"""What operators ask of a server that runs, on a UNIX socket that its user alone reaches."""
