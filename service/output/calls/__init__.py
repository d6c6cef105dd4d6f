"""Incremental tool call parsers, one for each syntax that models use."""
