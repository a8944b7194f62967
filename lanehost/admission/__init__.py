"""Off the waiting line and onto a lane; pure."""
