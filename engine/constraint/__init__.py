"""Constrained decoding: computes which tokens a grammar allows next, in parallel with the model's
steps."""
