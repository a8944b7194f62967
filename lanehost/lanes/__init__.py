"""Lanes, their life table, and what the next step computes; pure."""
