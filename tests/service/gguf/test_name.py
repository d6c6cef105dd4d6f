from __future__ import annotations

from pathlib import Path

from service.gguf.name import is_gguf_name, model_name


def test_a_path_that_ends_in_gguf_is_a_file_unless_it_is_a_directory(tmp_path: Path) -> None:
    assert is_gguf_name("models/tiny.gguf")
    assert is_gguf_name("TINY.GGUF")
    assert not is_gguf_name("Qwen/Qwen3-0.6B-GGUF")
    assert not is_gguf_name("tiny.safetensors")
    folder = tmp_path / "folder.gguf"
    folder.mkdir()
    assert not is_gguf_name(str(folder))


def test_a_model_is_called_as_its_file_without_the_number_of_a_part() -> None:
    assert model_name(Path("models/tiny-Q8_0.gguf")) == "tiny-Q8_0"
    assert model_name(Path("models/tiny-Q8_0-00001-of-00003.gguf")) == "tiny-Q8_0"
