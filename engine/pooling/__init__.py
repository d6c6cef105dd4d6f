"""Pools hidden states into one vector per text."""
