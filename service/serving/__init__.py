"""Code shared by HTTP and gRPC: one request from its key to its answer, without either library."""
