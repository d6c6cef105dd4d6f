"""Encoding, and what a long text costs everybody else."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from tokenizers import Tokenizer as FastTokenizer

from service.prompt.tokenizer import THREAD_CHARS, Tokenizer


@pytest.fixture(scope="module")
def tokenizer(tiny_model: Path) -> Tokenizer:
    return Tokenizer(tiny_model / "tokenizer.json")


@pytest.mark.parametrize("special", [False, True])
def test_ids_and_text_are_those_of_the_tokenizers_own_calls(
    tokenizer: Tokenizer, tiny_model: Path, special: bool
) -> None:
    reference = FastTokenizer.from_file(str(tiny_model / "tokenizer.json"))
    for text in ("", "Hello there", "<|im_start|>user\nGrüße 🚀<|im_end|>"):
        ids = reference.encode(text, add_special_tokens=special).ids
        assert tokenizer.encode(text, add_special_tokens=special) == ids
        assert tokenizer.decode(ids) == reference.decode(ids, skip_special_tokens=False)


async def test_the_event_loop_runs_on_while_a_long_text_is_encoded(tokenizer: Tokenizer) -> None:
    text = "a b " * 100_000
    assert len(text) > THREAD_CHARS
    encoding = asyncio.ensure_future(tokenizer.encode_async(text, add_special_tokens=False))
    turns = 0
    while not encoding.done():
        await asyncio.sleep(0.001)
        turns += 1
    assert len(await encoding) > 100_000
    # Holding the GIL, the thread would let the loop turn once or twice.
    assert turns > 10
