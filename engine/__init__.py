"""Quire's engine: tokens in, tokens out. It does not deal with text, HTTP or users."""
