"""Every route of every port: who may use it, what its requests count against, how large their
bodies may be. HTTP, WebSocket and gRPC read the same tables."""
