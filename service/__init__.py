"""Quire's service: text and wire. Talks to the engine by messages; never imports torch."""
