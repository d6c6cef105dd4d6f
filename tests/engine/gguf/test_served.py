"""A directory's GGUF file must be the same as before, and is computed by what can compute it."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from engine.architecture.errors import ModelError, UnsupportedError, WeightsError
from engine.gguf.names import gguf_of
from engine.gguf.parts import read_gguf_header
from engine.gguf.served import MARKS, check_gguf, marks_of
from tests.engine.gguf.directories import file_directory
from tests.engine.tiny_models import VARIANTS, save_model


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    save_model(VARIANTS["qwen3"], tmp_path / "original")
    made = file_directory(tmp_path / "original", tmp_path, "F32")
    marks = marks_of(read_gguf_header(tmp_path / "F32.gguf"))
    (made / MARKS).write_text(json.dumps(marks))
    return made


def test_the_file_of_a_directory_is_known(directory: Path, tmp_path: Path) -> None:
    assert gguf_of(directory) == tmp_path / "F32.gguf"
    assert gguf_of(tmp_path / "original") is None
    check_gguf(tmp_path / "original", "transformers")
    (tmp_path / "F32.gguf").unlink()
    assert gguf_of(directory) == tmp_path / "F32.gguf"


@pytest.mark.parametrize("model_impl", ["auto", "native"])
def test_an_unchanged_file_is_computed_by_our_code(directory: Path, model_impl: str) -> None:
    check_gguf(directory, model_impl)


def test_an_implementation_that_does_not_compute_it_is_refused(directory: Path) -> None:
    with pytest.raises(UnsupportedError, match=r"transformers is not supported for .* 'qwen3'; le"):
        check_gguf(directory, "transformers")


def test_a_file_that_has_changed_or_gone_is_named(directory: Path, tmp_path: Path) -> None:
    path = tmp_path / "F32.gguf"
    whole = path.read_bytes()
    os.utime(path, ns=(1, 1))
    check_gguf(directory, "auto")
    for changed in (whole + b" ", whole.replace(b"tiny", b"TINY", 1)):
        path.write_bytes(changed)
        with pytest.raises(WeightsError, match=r"F32\.gguf has changed since the server started"):
            check_gguf(directory, "auto")
    path.unlink()
    with pytest.raises(WeightsError, match=r"cannot read .*F32\.gguf: No such file .* put it back"):
        check_gguf(directory, "auto")


@pytest.mark.parametrize(
    "text",
    [
        b"{",
        b"3",
        b"[1]",
        b"[[1, 2]]",
        b"\xff\xfe",
        b'[["/dev/zero", 0, 3000000000, "a"]]',
        b'[["README.md", 1, -1, "a"]]',
        b'[["/dev/zero", 0, 3000, "a"]]',
        b'[["/x\\u0000", 1, 1, "a"]]',
    ],
)
def test_marks_of_a_stranger_are_refused_at_no_cost(directory: Path, text: bytes) -> None:
    (directory / MARKS).write_bytes(text)
    with pytest.raises(ModelError, match=r"gguf_files\.json|/dev/zero has changed"):
        check_gguf(directory, "auto")
