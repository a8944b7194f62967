"""Parts of a forward pass, cut over ranks."""
