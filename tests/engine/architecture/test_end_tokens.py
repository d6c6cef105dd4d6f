"""Which tokens end a sequence."""

from __future__ import annotations

import json
from pathlib import Path

from engine.architecture.end_tokens import declared_ends, end_tokens
from pocket import MODEL_DIR


def test_ends_come_from_every_file(tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_bytes((MODEL_DIR / "tokenizer.json").read_bytes())
    files = {
        "tokenizer_config": {"eos_token": "<|im_end|>"},
        "generation_config": {"eos_token_id": [8, 7]},
        "config": {"eos_token_id": 9, "text_config": {"eos_token_id": [10]}},
    }
    for name, content in files.items():
        (tmp_path / f"{name}.json").write_text(json.dumps(content))
    assert declared_ends(tmp_path) == (8, 7, 9, 10)
    assert end_tokens(tmp_path) == {2, 7, 8, 9, 10}


def test_a_directory_without_files_names_none(tmp_path: Path) -> None:
    assert (declared_ends(tmp_path), end_tokens(tmp_path)) == ((), frozenset())
