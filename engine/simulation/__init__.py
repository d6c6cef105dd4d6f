"""Replaces a model by a timer: real scheduler, blocks and protocol, no weights, no arithmetic."""
