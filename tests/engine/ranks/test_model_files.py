"""Another model under the same path is noticed before it is loaded."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.ranks.model_files import model_fingerprint


def save(directory: Path, **files: str) -> Path:
    directory.mkdir()
    for name, text in files.items():
        (directory / name.replace("_", ".")).write_text(text)
    return directory


def test_copies_are_equal_whatever_lies_beside_them(tmp_path: Path) -> None:
    files = {"config_json": '{"a": 1}', "model_safetensors": "abc"}
    first = save(tmp_path / "a", **files)
    second = save(tmp_path / "b", **files, README_md="read me")
    assert model_fingerprint(first) == model_fingerprint(second) != ""


@pytest.mark.parametrize(
    "other",
    [
        {"config_json": '{"a": 2}', "model_safetensors": "abc"},
        {"config_json": '{"a": 1}', "model_safetensors": "abcd"},
        {"config_json": '{"a": 1}', "weights_safetensors": "abc"},
        {"config_json": '{"a": 1}'},
    ],
)
def test_others_differ(tmp_path: Path, other: dict[str, str]) -> None:
    first = save(tmp_path / "a", config_json='{"a": 1}', model_safetensors="abc")
    assert model_fingerprint(first) != model_fingerprint(save(tmp_path / "b", **other))


def test_there_may_be_nothing(tmp_path: Path) -> None:
    assert model_fingerprint(tmp_path / "missing") == ""
