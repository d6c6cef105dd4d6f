"""``quire keys`` as it is typed."""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

import pytest

from service.cli import main
from service.key_commands import duration_seconds, time_of


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
    found, _, error = quire(capsys, *words)
    assert found == code
    assert said in error


def test_times() -> None:
    found = [duration_seconds(text) for text in ("30s", "5m", "24h", "90d")]
    assert found == [30, 300, 86_400, 7_776_000]
    assert time_of("2027-01-31") == 1_801_353_600
    assert time_of("2027-01-31T01:00+01:00") == 1_801_353_600
    for text in ("", "5", "-5m", "5w", "4000d"):
        with pytest.raises(argparse.ArgumentTypeError):
            duration_seconds(text)
