"""HTTP routes. Only this package imports Litestar, and does so first here.

Where advanced-alchemy is installed, Litestar imports all of it, with SQLAlchemy, to find one class
of a feature that no route uses.
"""

from observability.hidden_packages import hidden_packages

with hidden_packages("advanced_alchemy"):
    import litestar  # noqa: F401
