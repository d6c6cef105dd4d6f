"""The gRPC API, beside HTTP in the same worker; its server is imported only for ``--grpc-port``."""
