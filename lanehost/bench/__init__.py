"""Measures lanehost: served, as a bare loop of steps, and how close it is to float32."""
