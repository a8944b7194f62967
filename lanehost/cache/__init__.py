"""KV blocks as the master counts them; pure."""
