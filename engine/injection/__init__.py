"""Injection of faults into the engine."""
