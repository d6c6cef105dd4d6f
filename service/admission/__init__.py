"""Decides whether a request is accepted now."""
