"""Breaks a server on purpose, in every phase, and judges what its clients see."""
