"""What HTTP and gRPC share: one request from its key to its answer, without either library."""
