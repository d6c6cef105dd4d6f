"""Which KV-cache block holds what: pure data structures, no tensor."""
