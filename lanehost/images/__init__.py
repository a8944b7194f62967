"""Images of requests: from the bytes of a file to what the model's encoder takes."""
