"""Faults that can be injected for tests and drills: their table, and those of this server."""
