"""The journal of open streams: what a master that is killed had accepted and sent."""
