"""``quire keys`` as it is typed."""

from __future__ import annotations

import argparse
import json
import os
import re
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import pytest

from service.cli import main
from service.key_commands import duration_seconds, making_keys, time_of
from tests.service.running import free_port


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "store.sqlite3"
    monkeypatch.setenv("QUIRE_STORE_URL", f"sqlite:///{path}")
    return path


def quire(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    try:
        code = main(["keys", *words])
    except SystemExit as error:
        code = int(error.code or 0)
    said = capsys.readouterr()
    return code, said.out, said.err


def test_the_life_of_a_key(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    limits = ("--requests-per-minute", "5", "--class", "batch", "--scope", "read")
    code, key, said = quire(capsys, "create", "--alias", "team", "--expires", "90d", *limits)
    assert code == 0
    assert key.startswith("qk_")
    assert "not shown again" in said
    assert "--stored-keys" in said
    _, rows, _ = quire(capsys, "list")
    assert "team" in rows
    assert "5 requests/min" in rows
    [found] = json.loads(quire(capsys, "list", "--json")[1])
    assert (found["service_class"], found["scopes"]) == ("batch", ["read"])
    assert "digest" not in found
    assert found["expires"] == pytest.approx(time.time() + 90 * 86_400, abs=300)
    code, following, said = quire(capsys, "rotate", "team", "--overlap", "1h")
    assert (code, following.startswith("qk_")) == (0, True)
    assert f"{found['id']} ({found['shown']}…) is valid until" in said
    assert quire(capsys, "revoke", found["id"])[0] == 0
    states = [row["state"] for row in json.loads(quire(capsys, "list", "--all", "--json")[1])]
    assert states == ["revoked", "valid"]
    assert json.loads(quire(capsys, "show", found["id"])[1])["state"] == "revoked"
    assert "is revoked." in quire(capsys, "rotate", "team", "--overlap", "0s")[2]
    assert key.strip().encode() not in store.read_bytes()


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("create", "--alias", "Bad Name"), 2, "a-z, 0-9"),
        (("create", "--alias", "other"), 1, "reserved"),
        (("create", "--alias", "a", "--expires", "2001-01-01"), 1, "expired already"),
        (("create", "--alias", "a", "--expires", "soon"), 2, "90d"),
        (("create", "--alias", "a", "--requests-per-minute", "0"), 1, "requests_per_minute"),
        (("rotate", "nobody"), 1, "nobody"),
        (("revoke", "nobody"), 1, "nobody"),
        (("show", "nobody"), 1, "nobody"),
        (("list", "--store-url", "none"), 2, "without a store"),
        (("list", "--store-url", "mysql://x"), 2, "must be sqlite"),
    ],
)
def test_what_cannot_be_done_is_said(
    store: Path,
    capsys: pytest.CaptureFixture[str],
    words: tuple[str, ...],
    code: int,
    said: str,
) -> None:
    assert quire(capsys, "create", "--alias", "first")[0] == 0  # so there is a store
    found, _, error = quire(capsys, *words)
    assert found == code
    assert said in error


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"no database" * 100, "file is not a database (DatabaseError)"),
        (None, "unable to open database file (OperationalError)"),
    ],
)
def test_a_file_that_is_not_a_database_is_said_in_a_sentence(
    store: Path, capsys: pytest.CaptureFixture[str], content: bytes | None, said: str
) -> None:
    if content is None:
        store.mkdir()
    else:
        store.write_bytes(content)
    code, _, error = quire(capsys, "list")
    assert (code, error) == (1, f"quire: {store} cannot be used: {said}\n")


@pytest.mark.parametrize(
    "words", [("list",), ("show", "me"), ("rotate", "me"), ("revoke", "me")], ids=lambda one: one[0]
)
def test_a_mistyped_store_is_not_made(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: tuple[str, ...]
) -> None:
    file = tmp_path / "typo" / "store.sqlite3"
    code, _, error = quire(capsys, *words, "--store-url", f"sqlite:///{file}")
    assert (code, list(tmp_path.iterdir())) == (1, [])
    assert error.startswith(f"quire: {file} does not exist; correct --store-url (QUIRE_STORE_URL)")


def test_the_command_for_a_key_works_in_a_shell_without_the_servers_variables(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    command = making_keys("sqlite:///a folder's/100%25.db")  # relative, as the server was given it
    [inner] = re.findall(r"^export QUIRE_API_KEY=\$\((.* )quire keys create .*\)$", command)
    bare = {name: value for name, value in os.environ.items() if not name.startswith("QUIRE_")}
    done = subprocess.run(
        ["sh", "-c", f"{inner}{sys.executable} -m service.cli keys create --alias me"],
        cwd="/",
        env=bare,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    code, rows, _ = quire(capsys, "list", "--store-url", "sqlite:///a folder's/100%25.db")
    assert (code, " me " in rows) == (0, True)


def test_the_command_for_a_key_quotes_no_password() -> None:
    assert making_keys("") == "export QUIRE_API_KEY=$(quire keys create --alias me)"
    said = making_keys("postgresql://me:canary@host/name")
    assert "canary" not in said
    assert said.startswith("in a shell with this server's QUIRE_STORE_URL:\nexport QUIRE_API_KEY=")


def test_the_schema_of_a_later_version_is_said_in_a_sentence(
    store: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with closing(sqlite3.connect(store)) as connection, connection:
        connection.execute("CREATE TABLE quire_schema_version (version_num TEXT)")
        connection.execute("INSERT INTO quire_schema_version VALUES ('9999')")
    code, _, error = quire(capsys, "list")
    assert code == 1
    assert error.startswith(f"quire: {store} cannot be used: its schema has version 9999")


def test_a_postgresql_that_does_not_answer_is_said_in_a_sentence(
    store: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    url = f"postgresql://u:secret@127.0.0.1:{free_port()}/d"
    code, _, error = quire(capsys, "list", "--store-url", url)
    assert code == 1
    assert error.startswith("quire: the PostgreSQL database cannot be used: ")
    assert error.endswith(" (ConnectionRefusedError)\n")
    code, _, error = quire(capsys, "list", "--store-url", f"{url}?foo=bar")
    assert code == 2
    assert "--store-url: the store's URL has an unknown parameter" in error


def test_times() -> None:
    found = [duration_seconds(text) for text in ("30s", "5m", "24h", "90d")]
    assert found == [30, 300, 86_400, 7_776_000]
    assert time_of("2027-01-31") == 1_801_353_600
    assert time_of("2027-01-31T01:00+01:00") == 1_801_353_600
    for text in ("", "5", "-5m", "5w", "4000d"):
        with pytest.raises(argparse.ArgumentTypeError):
            duration_seconds(text)


def test_a_time_is_at_most_ten_years_away() -> None:
    far = "9999-12-31T23:59:59-12:00"
    with pytest.raises(argparse.ArgumentTypeError, match="at most ten years from now"):
        time_of(far)
    with pytest.raises(argparse.ArgumentTypeError, match="at most ten years from now"):
        time_of("9999-12-31")


def test_a_key_whose_end_no_calendar_has_is_listed(
    store: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Earlier releases stored it."""
    quire(capsys, "create", "--alias", "far")
    quire(capsys, "create", "--alias", "near")
    with closing(sqlite3.connect(store)) as connection, connection:
        connection.execute("UPDATE quire_keys SET expires = 253402343999 WHERE alias = 'far'")
    code, rows, _ = quire(capsys, "list")
    assert code == 0
    [row] = [line for line in rows.splitlines() if " far " in line]
    assert " after 9999 " in row
    assert " near " in rows
    code, _, said = quire(capsys, "rotate", "far")
    assert (code, "is valid until" in said) == (0, True)


FULL = Path("/dev/full")


def _with_full_stdout(*words: str) -> tuple[int, str]:
    with FULL.open("w") as full:
        done = subprocess.run(
            [sys.executable, "-P", "-m", "service.cli", "keys", *words],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=60,
            check=False,
        )
    return done.returncode, done.stderr


@pytest.mark.skipif(not FULL.exists(), reason="needs Linux's /dev/full")
def test_a_key_that_could_not_be_printed_is_revoked(
    store: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, said = _with_full_stdout("create", "--alias", "unseen")
    assert code == 1
    assert re.fullmatch(
        r"quire: the key could not be printed \(No space left on device\), "
        r"so key_\w+ was revoked at once\n",
        said,
    )
    [key] = json.loads(quire(capsys, "list", "--all", "--json")[1])
    assert (key["alias"], key["state"]) == ("unseen", "revoked")


@pytest.mark.skipif(not FULL.exists(), reason="needs Linux's /dev/full")
def test_a_rotation_whose_key_could_not_be_printed_changes_nothing(
    store: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    quire(capsys, "create", "--alias", "team")
    quire(capsys, "create", "--alias", "team", "--expires", "90d")
    before = json.loads(quire(capsys, "list", "--json")[1])
    code, said = _with_full_stdout("rotate", "team", "--overlap", "0s")
    assert code == 1
    assert "was revoked at once" in said
    assert json.loads(quire(capsys, "list", "--json")[1]) == before
    states = [key["state"] for key in json.loads(quire(capsys, "list", "--all", "--json")[1])]
    assert states == ["valid", "valid", "revoked"]


@pytest.mark.parametrize("words", [("create", "--alias", "team"), ("rotate", "team")])
def test_without_stdout_no_key_is_made(
    store: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    words: tuple[str, ...],
) -> None:
    """As after ``>&-``: Python has no stdout then, and print() does nothing."""
    quire(capsys, "create", "--alias", "team")
    with monkeypatch.context() as closed:
        closed.setattr(sys, "stdout", None)
        assert main(["keys", *words]) == 1
    assert "none was made" in capsys.readouterr().err
    assert len(json.loads(quire(capsys, "list", "--all", "--json")[1])) == 1
