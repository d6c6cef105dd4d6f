"""A change of the model's files while they are served is noticed, and nothing else is one."""

from __future__ import annotations

import json
import os
import shutil
import threading
from pathlib import Path

import pytest

from engine.gguf.names import LINK
from service.supervision import model_files
from service.supervision.model_files import ModelFiles

NAMES = (
    *("config.json", "tokenizer.json", "chat_template.jinja", "model-00001-of-00002.safetensors"),
    "model.safetensors.index.json",
    *("additional_chat_templates/tool_use.jinja", "1_Pooling/config.json"),
)


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    made = tmp_path / "model"
    for name in (*NAMES, "README.md", "results.json", "checkpoint-500/config.json"):
        (made / name).parent.mkdir(parents=True, exist_ok=True)
        (made / name).write_text("before")
    (made / "model.safetensors.index.json").write_text(
        json.dumps({"metadata": {}, "weight_map": {"a": "model-00001-of-00002.safetensors"}})
    )
    return made


def noted(directory: Path) -> ModelFiles:
    files = ModelFiles(directory)
    files.note()
    return files


def make_later(path: Path) -> None:
    found = path.stat()
    os.utime(path, ns=(found.st_atime_ns, found.st_mtime_ns + 1_000_000))


def change(path: Path) -> None:
    """To content of the same size."""
    text = path.read_text()
    path.write_text(text.replace(": {", " :{") if text.startswith("{") else text.swapcase())
    make_later(path)


@pytest.mark.parametrize("name", NAMES)
def test_a_file_that_was_written_again_or_removed_is_named(directory: Path, name: str) -> None:
    files = noted(directory)
    assert files.changed() is None
    change(directory / name)
    assert files.changed() == directory / name
    files = noted(directory)
    (directory / name).unlink()
    found = files.changed()
    assert found is not None
    # Without an index, what it names is not read any more.
    assert found == directory / name or name.endswith("index.json")


def test_a_file_that_the_next_process_would_read_is_named(directory: Path) -> None:
    for name in ("model.safetensors", "generation_config.json"):
        files = noted(directory)
        (directory / name).write_text("new")
        found = files.changed()
        assert found is not None
        # A single file of weights takes the place of the index and its files.
        assert found == directory / name or name == "model.safetensors"


def test_of_a_large_file_samples_are_compared(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(model_files, "_MOST_READ", 4)
    monkeypatch.setattr(model_files, "_SAMPLE", 1)
    files = noted(directory)
    path = directory / "model-00001-of-00002.safetensors"
    make_later(path)
    assert files.changed() is None
    path.write_text("beforE")
    make_later(path)
    assert files.changed() == path


def test_reading_moving_and_what_no_process_reads_are_no_change(directory: Path) -> None:
    files = noted(directory)
    found = (directory / "config.json").stat()
    os.utime(directory / "config.json", ns=(found.st_atime_ns + 10**12, found.st_mtime_ns))
    (directory / "config.json").chmod(0o400)
    make_later(directory / "tokenizer.json")  # as where the same files were copied again
    shutil.copy2(directory / "tokenizer.json", directory / "copy")
    (directory / "copy").rename(directory / "tokenizer.json")  # another inode
    for name in ("README.md", "results.json", "checkpoint-500/config.json"):
        (directory / name).write_text("longer than before")
    (directory / "adapter_model.safetensors").touch()
    assert files.changed() is None


def test_links_are_followed_as_in_the_hubs_cache(directory: Path, tmp_path: Path) -> None:
    blobs, snapshot = directory, tmp_path / "snapshot"
    snapshot.mkdir()
    for name in ("config.json", "tokenizer.json"):
        (snapshot / name).symlink_to(blobs / name)
    files = noted(snapshot)
    (snapshot / "config.json").unlink()
    (snapshot / "config.json").symlink_to(blobs / "config.json")
    assert files.changed() is None
    change(blobs / "config.json")
    assert files.changed() == snapshot / "config.json"


def test_all_parts_of_a_gguf_model_count(tmp_path: Path) -> None:
    folder, made = tmp_path / "folder", tmp_path / "made"
    for path in (folder, made):
        path.mkdir()
    parts = [folder / f"m-0000{number}-of-00002.gguf" for number in (1, 2)]
    for part in (*parts, folder / "other.gguf"):
        part.write_text("before")
    (made / LINK).symlink_to(parts[0])
    files = noted(made)
    change(folder / "other.gguf")
    assert files.changed() is None
    change(parts[1])
    assert files.changed() == parts[1]


def test_a_directory_that_is_away_or_hangs_is_no_change(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = noted(directory)
    away = directory.rename(directory.with_name("away"))
    assert files.changed() is None
    away.rename(directory)
    change(directory / "config.json")
    ends = threading.Event()
    monkeypatch.setattr(model_files, "_MOST_SECONDS", 0.05)
    monkeypatch.setattr(model_files, "_facts", lambda _path: ends.wait(20) and None)
    assert files.changed() is None
    ends.set()


def test_a_directory_that_is_missing_has_no_files(tmp_path: Path) -> None:
    assert noted(tmp_path / "missing").changed() is None
