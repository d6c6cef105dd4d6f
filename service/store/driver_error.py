"""What an error of a database may be called where its text could show rows."""

from __future__ import annotations


def error_kind(error: BaseException) -> str:
    """Return the name of the driver's error and, from PostgreSQL, its SQLSTATE, since many
    errors there have the same name."""
    driver = getattr(error, "orig", None) or error
    state = getattr(driver, "sqlstate", None)
    if not state:
        return type(driver).__name__
    # SQLAlchemy calls most of asyncpg's errors "Error"; what it got from there is the cause.
    return f"{type(driver.__cause__ or driver).__name__} (SQLSTATE {state})"
