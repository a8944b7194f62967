"""The OpenAI door: JSON over HTTP into the same admission as gRPC."""
