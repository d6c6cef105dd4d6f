"""What an error of a database may be called where its text could show rows."""

from __future__ import annotations

from service.store.watched_file import FileReplacedError


def error_sentence(error: BaseException, password: str | None = None) -> str:
    """Return what the driver says, for an operator: the first line, since PostgreSQL's details
    show rows, without the password."""
    driver = _driver_error(error)
    said = str(driver).partition("\n")[0]
    kind = error_kind(error)
    said = said.replace(password, "…") if password else said
    return f"{said} ({kind})" if said and said != kind else kind


def error_kind(error: BaseException) -> str:
    """Return the name of the driver's error and, from PostgreSQL, its SQLSTATE, since many
    errors there have the same name. Our own errors return their message."""
    driver = _driver_error(error)
    if isinstance(driver, FileReplacedError):
        return str(driver)
    name, state = type(driver).__name__, getattr(driver, "sqlstate", None)
    return f"{name}, SQLSTATE {state}" if state else name


def _driver_error(error: BaseException) -> BaseException:
    """Return what a driver raised. SQLAlchemy calls most of asyncpg's errors "Error"; what it got
    from there is the cause."""
    found: BaseException = getattr(error, "orig", None) or error
    cause = found.__cause__
    return cause if cause is not None and getattr(found, "sqlstate", None) else found
