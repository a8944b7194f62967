"""Generated stubs of the gRPC package lanehost.admin.v1."""
