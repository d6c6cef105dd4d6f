"""A directory's GGUF file must be the same as before, and is computed by what can compute it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from engine.architecture.errors import UnsupportedError, WeightsError
from engine.gguf.names import gguf_of
from engine.gguf.served import FACTS, check_gguf, file_facts
from tests.engine.gguf.directories import file_directory
from tests.engine.tiny_models import VARIANTS, save_model


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    save_model(VARIANTS["qwen3"], tmp_path / "original")
    made = file_directory(tmp_path / "original", tmp_path, "F32")
    (made / FACTS).write_text(json.dumps([file_facts(tmp_path / "F32.gguf")]))
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
    path.write_bytes(path.read_bytes() + b" ")
    with pytest.raises(WeightsError, match=r"F32\.gguf has changed since the server started; rest"):
        check_gguf(directory, "auto")
    path.unlink()
    with pytest.raises(WeightsError, match=r"cannot read .*F32\.gguf: No such file .* put it back"):
        check_gguf(directory, "auto")
