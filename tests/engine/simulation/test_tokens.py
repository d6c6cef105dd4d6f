"""A directory's tokenizer as a simulated model uses it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.architecture.errors import ModelError
from engine.simulation.tokens import TextTokens
from pocket import MODEL_DIR
from tests.engine.simulation.simulated_engine import TOKENS, SimulatedEngine


def test_a_directory_without_tokenizer_or_end_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="cannot read"):
        SimulatedEngine(f"simulated:tokenizer={tmp_path}")
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(ModelError, match="is not a tokenizer"):
        SimulatedEngine(f"simulated:tokenizer={tmp_path}")
    (tmp_path / "tokenizer.json").write_bytes((MODEL_DIR / "tokenizer.json").read_bytes())
    with pytest.raises(ModelError, match="names no end-of-sequence token"):
        SimulatedEngine(f"simulated:tokenizer={tmp_path}")


def directory(folder: Path, **files: dict[str, Any]) -> Path:
    """Create a directory with the pocket model's tokenizer and the given JSON files."""
    (folder / "tokenizer.json").write_bytes((MODEL_DIR / "tokenizer.json").read_bytes())
    for name, content in files.items():
        (folder / f"{name}.json").write_text(json.dumps(content))
    return folder


@given(st.text())
def test_text_comes_back_as_it_went_in(text: str) -> None:
    assert TOKENS.decode(TOKENS.encode(text)) == text


def test_special_tokens_spelled_out_are_themselves_and_none_is_added() -> None:
    for token_id, text in TOKENS.added.items():
        assert TOKENS.encode(text) == [token_id]
        assert TOKENS.decode([token_id]) == text
    assert TOKENS.encode("") == []
    assert TOKENS.eos in TOKENS.added


def test_ends_are_gathered_from_every_file_and_the_tokenizer_s_own_is_the_one_said(
    tmp_path: Path,
) -> None:
    named = TOKENS.added[TOKENS.eos]
    tokens = TextTokens(
        directory(
            tmp_path,
            tokenizer_config={"eos_token": {"content": named}},
            generation_config={"eos_token_id": [3, 4]},
            config={"eos_token_id": TOKENS.vocab_size},  # the model's table may be larger
        )
    )
    assert tokens.eos == TOKENS.eos
    assert tokens.eos_token_ids == {3, 4, TOKENS.eos}


def test_tokens_in_a_file_of_their_own_are_tokens_too(tmp_path: Path) -> None:
    added = {"<note>": TOKENS.vocab_size}
    tokens = TextTokens(
        directory(tmp_path, added_tokens=added, special_tokens_map={"eos_token": "<note>"})
    )
    assert tokens.encode("<note>") == [TOKENS.vocab_size] == [tokens.eos]


def test_without_a_tokenizers_end_token_the_first_declared_one_is_used(tmp_path: Path) -> None:
    tokens = TextTokens(
        directory(
            tmp_path,
            tokenizer_config={"eos_token": "no such token"},
            generation_config={"eos_token_id": [4, 3]},
            config={"eos_token_id": 5},
        )
    )
    assert (tokens.eos, tokens.eos_token_ids) == (4, {3, 4, 5})
