"""Parses the setting for where responses are stored, without importing the database libraries:
those take longer to load than everything else that a worker starts with."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal
from urllib.parse import parse_qsl, unquote

from service.store.watched_file import WatchedFile

Backend = Literal["sqlite", "postgresql"]

_BACKENDS: dict[str, Backend] = {
    "sqlite": "sqlite",
    "postgres": "postgresql",
    "postgresql": "postgresql",
}
_URL = re.compile(r"(?P<name>[\w+]+)://(?P<rest>.*)", re.DOTALL)
# The parts that SQLAlchemy will find: a password may contain anything but an @.
_REST = re.compile(
    r"([^:/]*(:[^@]*)?@)?"  # user and password
    r"(\[[^/?]+\]|[^:/?]+)?(:(?P<port>[^/?]*))?"
    r"(/(?P<database>[^?]*))?"
)
_MOST_PORT = 65_535
# Those of the driver's parameters whose values are text, or that SQLAlchemy makes numbers of.
# `make_engine` overrides the two timeouts.
_NUMBERS = ("port", "prepared_statement_cache_size")
_PARAMETERS = (
    *("host", "user", "password", "database", "passfile", "service", "servicefile"),
    *("ssl", "direct_tls", "target_session_attrs", "krbsrvname", "gsslib"),
    *("timeout", "command_timeout", *_NUMBERS),
)


@dataclass(frozen=True, slots=True)
class StorePlace:
    """``url``: as the operator wrote it; None: SQLite's default file. ``file``: SQLite's, else
    None. ``watched``: the same; those who use it with this object notice together if it is
    replaced, and with those who have the same ``memory`` (see ``WatchedFile``)."""

    backend: Backend
    url: str | None = field(repr=False)  # it may hold a password
    file: Path | None
    memory: int | None = field(default=None, repr=False, compare=False)
    watched: WatchedFile | None = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        watched = None if self.file is None else WatchedFile(self.file, self.memory)
        object.__setattr__(self, "watched", watched)


def state_dir() -> Path:
    """Return the directory for a server's persistent files, by the XDG convention."""
    home = os.environ.get("XDG_STATE_HOME")
    return (Path(home) if home else Path.home() / ".local" / "state") / "quire"


def store_place(text: str) -> StorePlace:
    """Parse the operator's ``text``; empty: a file in ``state_dir``.

    Raises ValueError for anything other than SQLite or PostgreSQL.
    """
    if not text:
        return StorePlace("sqlite", None, state_dir() / "responses.sqlite3")
    url = _URL.match(text)
    if url is None:
        raise ValueError("the store's URL is not valid; an example is postgresql://host/name")
    rest = _REST.match(url["rest"])
    assert rest is not None  # all parts are optional
    if rest["port"] is not None:
        _check_port(rest["port"])
    backend = _BACKENDS.get(url["name"].partition("+")[0])
    database = unquote(rest["database"] or "")
    if backend is None or (backend == "sqlite" and not database):
        raise ValueError("the store must be sqlite:///FILE or postgresql://…")
    if backend == "postgresql":
        _check_parameters(url["rest"][rest.end() :])
    return StorePlace(backend, text, Path(database) if backend == "sqlite" else None)


def _check_port(text: str) -> None:
    try:
        port = int(text)
    except ValueError:  # the URL may hold a password: no message may quote any of it
        raise ValueError("the port in the store's URL is not a number") from None
    if not 1 <= port <= _MOST_PORT:
        raise ValueError(f"the port in the store's URL must be from 1 to {_MOST_PORT}")


def _check_parameters(text: str) -> None:
    """``text``: the URL's from the question mark on. Each parameter goes to PostgreSQL's driver,
    which raises a TypeError for one that it does not know."""
    if not text.startswith("?"):
        return
    for name, value in parse_qsl(text[1:].partition("\n")[0]):
        if name not in _PARAMETERS:
            raise ValueError(
                "the store's URL has an unknown parameter after its question mark; "
                f"these are known: {', '.join(_PARAMETERS)} (ssl=require instead of sslmode)"
            )
        if name in _NUMBERS:
            try:
                int(value)
            except ValueError:
                raise ValueError(f"{name} in the store's URL is not a number") from None


def secret_dir(place: StorePlace | None) -> Path:
    """Return the folder for files that belong with the store."""
    if place is not None and place.file is not None:
        return place.file.absolute().parent
    return state_dir()
