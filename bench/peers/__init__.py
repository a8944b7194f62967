"""lanehost beside other programs that run the same model: speed, first token, numbers."""
