"""Where responses are stored, read off the setting as SQLAlchemy reads it."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import asyncpg
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError

from service.store.place import _PARAMETERS, secret_dir, state_dir, store_place
from service.store.schema import database_url

BACKENDS = {"sqlite": "sqlite", "postgres": "postgresql", "postgresql": "postgresql"}
# The parts of random URLs, valid or not.
PIECES = ("sqlite", "postgresql", "postgres", "+x", "mysql", "://", "/", ":", "@", "?", "[", "]")
QUERIES = ("?ssl=a", "&ssl=b", "?foo=bar", "&port=5432", "&port=x", "=")
TEXTS = st.lists(
    st.sampled_from((*PIECES, *QUERIES, "#", "%20", "a.b", "5432", " ", "\n", "é")), max_size=14
)


def as_sqlalchemy_reads(text: str) -> tuple[str, str | None] | None:
    """Return its backend and, for SQLite, its file; None if it is not a URL of a store."""
    try:
        url = make_url(text)
    except (ArgumentError, ValueError):
        return None
    backend = BACKENDS.get(url.get_backend_name())
    if backend is None or (backend == "sqlite" and not url.database):
        return None
    if url.port is not None and not 1 <= url.port <= 65_535:
        return None
    if backend == "postgresql" and not are_known(url.query):
        return None
    return backend, url.database if backend == "sqlite" else None


def are_known(query: Mapping[str, Any]) -> bool:
    ports = query.get("port", ())
    texts = (ports,) if isinstance(ports, str) else ports
    return set(query) <= {"ssl", "port"} and all(text.isdecimal() for text in texts)


@given(TEXTS.map("".join) | TEXTS.map(lambda pieces: "sqlite://" + "".join(pieces)))
@example("postgresql://user:p/w?#@host:5432/name?ssl=require")
@example("postgresql://user:forgot-the-host")
@example("postgresql://[::1]:5432/name")
@example("sqlite:////var/lib/a%20b?mode=rwc")
@example("postgresql://host:/name")
@example("sqlite:///file?foo=bar")
@example("postgresql://host/name?foo=bar")
@example("postgresql://host:65536/name")
@example("sqlite://no-file")
@example("SQLITE:///file")
def test_a_url_is_read_as_sqlalchemy_reads_it(text: str) -> None:
    expected = as_sqlalchemy_reads(text)
    if not text:
        return  # the default, which SQLAlchemy does not know
    if expected is None:
        with pytest.raises(ValueError):  # noqa: PT011 - which one depends on what is wrong
            store_place(text)
        return
    backend, file = expected
    place = store_place(text)
    assert (place.backend, place.file) == (backend, None if file is None else Path(file))
    assert database_url(place).database == make_url(text).database


@pytest.mark.parametrize("text", ["nonsense", "mysql://host/name", "sqlite://"])
def test_a_url_of_an_unsupported_store_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="store"):
        store_place(text)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("postgresql://u:secret@h/d?foo=secret", "these are known: host, .*ssl=require instead"),
        ("postgresql://u:secret@h/d?sslmode=require", "unknown parameter"),
        ("postgresql://u:secret@h/d?prepared_statement_cache_size=secret", "not a number"),
        ("postgresql://u:secret@h:65536/d", "from 1 to 65535"),
        ("postgresql://u:secret@h:-4/d", "from 1 to 65535"),
    ],
)
def test_what_the_driver_would_not_take_is_refused(text: str, said: str) -> None:
    with pytest.raises(ValueError, match=said) as caught:
        store_place(text)
    assert "secret" not in str(caught.value)


def test_the_parameters_that_are_known_are_the_drivers() -> None:
    drivers = set(inspect.signature(asyncpg.connect).parameters)
    assert set(_PARAMETERS) - drivers == {"prepared_statement_cache_size"}  # SQLAlchemy's own
    query = "&".join(f"{name}=1" for name in _PARAMETERS)
    assert store_place(f"postgresql://h/d?{query}").backend == "postgresql"


def test_urls_get_the_driver_that_we_use(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "50% of ?"))
    default = database_url(store_place(""))
    assert default.database == str(state_dir() / "responses.sqlite3")
    assert default.drivername == "sqlite+aiosqlite"
    assert database_url(store_place("postgres://u@h/d")).drivername == "postgresql+asyncpg"


def test_the_secret_is_stored_next_to_the_file_or_with_the_state(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert secret_dir(store_place(f"sqlite:///{tmp_path}/a%20b/c.sqlite3")) == tmp_path / "a b"
    for place in (None, store_place(""), store_place("postgresql://h/d")):
        assert secret_dir(place) == tmp_path / "quire"


def test_a_password_is_not_shown() -> None:
    assert "secret" not in repr(store_place("postgresql://me:secret@host/db"))
