from __future__ import annotations

from pathlib import Path

from service.gguf.name import is_gguf_name


def test_a_path_that_ends_in_gguf_is_a_file_unless_it_is_a_directory(tmp_path: Path) -> None:
    assert is_gguf_name("models/tiny.gguf")
    assert is_gguf_name("TINY.GGUF")
    assert not is_gguf_name("Qwen/Qwen3-0.6B-GGUF")
    assert not is_gguf_name("tiny.safetensors")
    folder = tmp_path / "folder.gguf"
    folder.mkdir()
    assert not is_gguf_name(str(folder))
