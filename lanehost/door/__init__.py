"""From a request to a job in the line, or to a typed refusal."""
