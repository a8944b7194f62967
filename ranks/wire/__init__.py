"""The wire between master and ranks: generated stubs and their codec."""
