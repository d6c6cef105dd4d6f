"""Quire's engine: tokens in, tokens out. Knows nothing of text, HTTP or users."""
