"""The disk tier of the prompt cache: which prefix is worth files, and where it is; no torch."""
