"""Checksums, compared with those that the reference tools print."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from service.hub.checksums import has_digest

# printf 'hello\n' | git hash-object --stdin
GIT = "ce013625030ba8dba906f756967f9e9ca394464a"


@pytest.mark.parametrize("digest", [GIT, GIT.upper(), hashlib.sha256(b"hello\n").hexdigest()])
def test_both_kinds(tmp_path: Path, digest: str) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"hello\n")
    assert has_digest(path, digest)
    path.write_bytes(b"hello!")
    assert not has_digest(path, digest)


def test_a_file_of_several_pieces(tmp_path: Path) -> None:
    data = bytes(range(256)) * 10_000
    path = tmp_path / "file"
    path.write_bytes(data)
    assert has_digest(path, hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest())  # noqa: S324
    assert has_digest(path, hashlib.sha256(data).hexdigest())
