"""The one loop that owns lanes and blocks."""
