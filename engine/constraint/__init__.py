"""Constrained decoding: which tokens a grammar allows next, worked out beside the model's steps."""
