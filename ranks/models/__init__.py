"""One file a family, and the registry above them."""
