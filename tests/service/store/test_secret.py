"""The secret next to the store is created once, completely, and for its user alone."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import structlog

from service.store.secret import load_secret


def test_the_secret_is_created_once_and_readable_only_by_its_owner(tmp_path: Path) -> None:
    secret = load_secret(None, tmp_path / "state")
    assert load_secret(None, tmp_path / "state") == secret
    assert len(secret) == 32
    assert (tmp_path / "state" / "seal.key").stat().st_mode & 0o077 == 0
    assert load_secret("given by the operator", tmp_path) == b"given by the operator"
    assert load_secret(None, Path("/proc/nowhere")) != secret


def test_a_secret_that_was_cut_short_is_not_used_and_a_restart_is_warned_of(
    tmp_path: Path,
) -> None:
    (tmp_path / "seal.key").write_bytes(b"short")
    with structlog.testing.capture_logs() as lines:
        secret = load_secret(None, tmp_path)
    assert len(secret) == 32
    assert load_secret(None, tmp_path) != secret
    (line,) = lines
    assert line["log_level"] == "warning"
    assert secret.hex() not in str(line)


def test_servers_that_start_together_have_one_secret(tmp_path: Path) -> None:
    together = threading.Barrier(8)

    def start(_: int) -> bytes:
        together.wait()
        return load_secret(None, tmp_path / "state")

    with ThreadPoolExecutor(8) as threads:
        assert len(set(threads.map(start, range(8)))) == 1
    assert [file.name for file in (tmp_path / "state").iterdir()] == ["seal.key"]


@pytest.mark.parametrize("given", [None, ""])
def test_an_empty_setting_is_none(given: str | None, tmp_path: Path) -> None:
    assert load_secret(given, tmp_path) == (tmp_path / "seal.key").read_bytes()
