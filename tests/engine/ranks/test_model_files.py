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


def weights(directory: Path, *, header: bytes = b'{"a": 1}', size: int = 0, at: int = 0) -> Path:
    """Save ``size`` bytes of weights, all zero but the one ``at``."""
    data = bytearray(size)
    data[at] = 1
    save(directory, config_json="{}")
    contents = len(header).to_bytes(8, "little") + header + data
    (directory / "model.safetensors").write_bytes(contents)
    return directory


def test_other_weights_of_the_same_shape_differ(tmp_path: Path) -> None:
    size = 1 << 20
    first = model_fingerprint(weights(tmp_path / "0", size=size))
    middle = 3 * ((size + 16 - (1 << 16)) // 7) + 100  # in a sample
    for at in (middle, size - 1):
        assert model_fingerprint(weights(tmp_path / str(at), size=size, at=at)) != first
    assert model_fingerprint(weights(tmp_path / "again", size=size)) == first


def test_a_header_counts_to_its_end(tmp_path: Path) -> None:
    """Also where no sample lies."""
    header = bytes(100_000)
    other = header[:80_000] + b"x" + header[80_001:]
    found = {
        model_fingerprint(weights(tmp_path / name, header=text, size=1 << 20))
        for name, text in (("a", header), ("b", other))
    }
    assert len(found) == 2


def test_a_header_of_no_sensible_length_is_read_to_the_end_of_the_file(tmp_path: Path) -> None:
    directory = save(tmp_path / "a")
    (directory / "model.safetensors").write_bytes(b"\xff" * 100)
    assert model_fingerprint(directory)


def test_there_may_be_nothing(tmp_path: Path) -> None:
    assert model_fingerprint(tmp_path / "missing") == ""
