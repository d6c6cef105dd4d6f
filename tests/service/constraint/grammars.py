"""Which texts a constraint allows, according to the engine's own grammar code."""

from __future__ import annotations

import functools
import tempfile
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Tokenizer

from engine.constraint.grammar import Tokens, compile_grammar
from engine.messages import Constraint
from service.constraint.schema_grammar import schema_grammar
from tests.service.tiny_model import build_tokenizer


@functools.cache
def tokenizer() -> Tokenizer:
    return build_tokenizer()


@functools.cache
def tokens() -> Tokens:
    with tempfile.TemporaryDirectory() as folder:
        tokenizer().save(f"{folder}/tokenizer.json")
        end = tokenizer().token_to_id("<|im_end|>")
        return Tokens(Path(folder), vocab_size=None, eos_token_ids=frozenset({end}))


def token_id(text: str) -> int | None:
    found: int | None = tokenizer().token_to_id(text)
    return found


def accepts(constraint: Constraint | None, text: str) -> bool:
    """Whether this is a whole text of the grammar, tags spelled by their tokens."""
    assert constraint is not None
    matcher = compile_grammar(constraint, tokens())
    ids = tokenizer().encode(text, add_special_tokens=False).ids
    return matcher.try_consume_tokens(ids) == len(ids) and matcher.is_accepting()


def spelled(constraint: Constraint | None, text: str) -> bool:
    """The same for a text in which every byte is a separate token, also in tags."""
    assert constraint is not None
    matcher = compile_grammar(constraint, tokens())
    ids = [tokenizer().encode(char, add_special_tokens=False).ids for char in text]
    flat = [token for part in ids for token in part]
    return matcher.try_consume_tokens(flat) == len(flat) and matcher.is_accepting()


def grammar(source: str) -> Constraint:
    return Constraint(grammar=source)


def enforced(schema: dict[str, Any] | bool, text: str, **options: bool) -> bool:
    """Whether the grammar of this schema allows the text."""
    return accepts(grammar(f"start: {schema_grammar(schema, **options)}\n"), text)


@functools.cache
def special_tokenizer(tags: tuple[str, ...]) -> tuple[Tokenizer, Tokens]:
    """The same, with these as special tokens; and what grammars are compiled with."""
    made = build_tokenizer()
    known = made.get_vocab()
    made.add_special_tokens([AddedToken(tag, special=True) for tag in tags if tag not in known])
    with tempfile.TemporaryDirectory() as folder:
        made.save(f"{folder}/tokenizer.json")
        end = made.token_to_id("<|im_end|>")
        return made, Tokens(Path(folder), vocab_size=None, eos_token_ids=frozenset({end}))
