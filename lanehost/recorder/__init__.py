"""Trails: a record of every plan and result of a run, and ways to run it again."""
