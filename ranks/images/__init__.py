"""A rank's images: encoded on a thread of its own, and their rows kept (ADR 26)."""
