"""The routes, and with them Litestar: only this package uses it, so that it is first imported here.

Where advanced-alchemy is installed, for the store, Litestar imports all of it to find one class of
a feature that no route uses.
"""

from observability.hidden_packages import hidden_packages

with hidden_packages("advanced_alchemy"):
    import litestar  # noqa: F401
