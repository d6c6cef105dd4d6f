"""Engines to compare with, each driven by a small worker process of its own environment."""
