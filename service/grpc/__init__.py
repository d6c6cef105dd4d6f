"""The gRPC API, served next to HTTP in the same worker; its server is imported only for
``--grpc-port``."""
