"""A cache that another program filled serves while the hub is away, if all of it is right."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest

from service.hub import kept
from service.hub.errors import WrongChecksumError
from service.hub.kept import adopt, copy_in_cache
from service.hub.place import ModelPlace, Record
from tests.service.hub_server import git_sha1

COMMIT = "a" * 40
CONTENT = {"config.json": b"{}", "tokenizer.json": b"{ }", "model.safetensors": b"weights"}


def filled(cache: Path, content: dict[str, bytes], *, links: bool = True) -> ModelPlace:
    """As the library leaves it: links to blobs that are named by their checksums."""
    place = ModelPlace("owner/name", "main", cache)
    place.blobs.mkdir(parents=True)
    directory = place.snapshot(COMMIT)
    directory.mkdir(parents=True)
    for name, data in content.items():
        large = name.endswith(".safetensors")
        digest = hashlib.sha256(data).hexdigest() if large else git_sha1(data)
        if links:
            (place.blobs / digest).write_bytes(data)
            (directory / name).symlink_to(os.path.relpath(place.blobs / digest, directory))
        else:
            (directory / name).write_bytes(data)
    place.set_commit(COMMIT)
    return place


@pytest.mark.parametrize("links", [True, False])
def test_a_copy_is_adopted_but_only_the_hub_can_call_it_whole(
    tmp_path: Path, links: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    place = filled(tmp_path, CONTENT, links=links)
    assert copy_in_cache(place) == place.snapshot(COMMIT)
    assert not place.record(COMMIT).files
    assert adopt(place) == place.snapshot(COMMIT)
    assert place.whole_snapshot() is None
    assert set(place.record(COMMIT).files) == set(CONTENT)
    assert "lacks files that the repository may have" in capsys.readouterr().out


def test_a_file_that_was_found_right_is_not_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = filled(tmp_path, CONTENT)
    adopt(place)
    read: list[Path] = []
    monkeypatch.setattr(kept, "has_digest", lambda path, _: read.append(path) or True)
    os.utime(place.snapshot(COMMIT) / "config.json")
    assert adopt(place) == place.snapshot(COMMIT)
    assert [path.name for path in read] == ["config.json"]


def test_what_the_hub_called_whole_stays_so_and_misses_no_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = filled(tmp_path, CONTENT | {"modules.json": b"[]"})
    adopt(place)
    place.write_record(COMMIT, Record(True, place.record(COMMIT).files))
    capsys.readouterr()
    modules = place.snapshot(COMMIT) / "modules.json"
    os.utime(modules, ns=(1, 1))
    assert place.whole_snapshot() is None
    assert adopt(place) == place.whole_snapshot() == place.snapshot(COMMIT)
    assert not capsys.readouterr().out
    modules.unlink()
    assert adopt(place) is None


@pytest.mark.parametrize("missing", CONTENT)
def test_a_copy_that_lacks_a_file_is_not(tmp_path: Path, missing: str) -> None:
    content = {name: data for name, data in CONTENT.items() if name != missing}
    assert adopt(filled(tmp_path, content)) is None


def test_an_unknown_revision_is_not(tmp_path: Path) -> None:
    filled(tmp_path, CONTENT)
    assert adopt(ModelPlace("owner/name", "v2", tmp_path)) is None


@pytest.mark.parametrize("name", CONTENT)
def test_a_damaged_file_is_said(tmp_path: Path, name: str) -> None:
    place = filled(tmp_path, CONTENT)
    (place.snapshot(COMMIT) / name).resolve().write_bytes(b"[]")
    with pytest.raises(WrongChecksumError, match=f"^{name} of 'owner/name' in .* is damaged"):
        adopt(place)


def test_a_cache_that_cannot_be_written_serves_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = filled(tmp_path, CONTENT)

    def refuse(*_: object) -> None:
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr(kept.ModelPlace, "write_record", refuse)
    assert adopt(place) == place.snapshot(COMMIT)


def test_a_gguf_file_in_a_cache_that_cannot_be_written_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    filled(tmp_path, {"one-Q4_K_M.gguf": b"GGUF", "one-Q8_0.gguf": b"GGUF too"})
    place = ModelPlace("owner/name", "main", tmp_path, variant="Q4_K_M")

    def refuse(*_: object) -> None:
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr(kept.ModelPlace, "write_record", refuse)
    directory = adopt(place)
    assert directory is not None
    assert place.gguf_in(directory) == directory / "one-Q4_K_M.gguf"


def test_a_gguf_model_is_adopted_only_with_all_its_parts(tmp_path: Path) -> None:
    parts = {f"one-Q4_K_M-0000{number}-of-00002.gguf": bytes(number) for number in (2, 1)}
    filled(tmp_path / "whole", parts)
    filled(tmp_path / "half", dict([*parts.items()][:1]))
    whole, half = (
        ModelPlace("owner/name", "main", tmp_path / name, variant="Q4_K_M")
        for name in ("whole", "half")
    )
    assert adopt(half) is None
    directory = adopt(whole)
    assert directory is not None
    assert whole.gguf_in(directory) == directory / "one-Q4_K_M-00001-of-00002.gguf"
