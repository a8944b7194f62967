"""An LLM server whose replies depend on the request alone: the part that computes."""
