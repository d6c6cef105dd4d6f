"""Quire's service: text and HTTP. It talks to the engine by messages and never imports torch."""
