"""Injection of faults into the API worker."""
