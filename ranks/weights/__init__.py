"""Weights from GGUF files and safetensors folders, this rank's part only."""
