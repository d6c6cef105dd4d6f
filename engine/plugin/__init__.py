"""Runs decoders that transformers implements over our paged KV cache: the only room that knows it.

``interface`` registers our attention with transformers; ``building`` creates a model; ``probe``
runs it without weights to find what each layer attends to; ``gate`` refuses what would be wrong;
``trial`` compares a tiny model of the same kind with transformers' own attention; ``decoder`` is
what the runner runs.
"""
