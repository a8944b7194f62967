"""A rank's files of the prompt cache: blocks of the pool into files, and back (ADR 25)."""
