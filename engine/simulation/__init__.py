"""A timed stand-in for a model: real scheduler, blocks and protocol, no weights, no arithmetic."""
