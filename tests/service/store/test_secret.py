"""The secret beside the store is made once, whole, and for its user alone."""

from __future__ import annotations

from pathlib import Path

from service.store.secret import load_secret


def test_the_secret_is_made_once_and_is_nobody_elses(tmp_path: Path) -> None:
    secret = load_secret(None, tmp_path / "state")
    assert load_secret(None, tmp_path / "state") == secret
    assert len(secret) == 32
    assert (tmp_path / "state" / "seal.key").stat().st_mode & 0o077 == 0
    assert load_secret("given by the operator", tmp_path) == b"given by the operator"
    assert load_secret(None, Path("/proc/nowhere")) != secret
