"""The gRPC door: protobuf and statuses are known here only."""
