"""GGUF files: what the service needs of a model, from the keys of one file."""
