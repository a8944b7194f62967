"""Generated stubs of the public gRPC package lanehost.v1."""
