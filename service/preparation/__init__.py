"""From a request's body to what the engine is asked for, on the event loop or in a child process.

``steps`` says what is done, by pure functions; ``jobs`` what goes to such a process and comes back;
``processes`` owns them in the API worker; ``python -m service.preparation`` is one.
"""
