"""Converts a request's body to what the engine needs, on the event loop or in a child process.

``steps`` defines the work as pure functions; ``jobs`` the messages to and from such a process;
``processes`` manages the processes in the API worker; ``python -m service.preparation`` runs one.
"""
