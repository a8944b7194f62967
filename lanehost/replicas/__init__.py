"""Replicas: many servers of one model behind one address, on Ray Serve (ADR 24)."""
