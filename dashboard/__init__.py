"""Quire's browser page: a live view of a server and a playground to chat in.

It speaks HTTP to the server, like any client, and reads nothing else of Quire but the metric
catalogue. ``python -m dashboard --url http://127.0.0.1:8000`` starts it.
"""
