"""All ranks as the master sees them: processes, streams, steps."""
