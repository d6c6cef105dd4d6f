"""The tokens that end a sequence, as a model directory's files say."""

from __future__ import annotations

from pathlib import Path

from engine.architecture.fields import read_object
from engine.architecture.tokenizer_files import named_end


def end_tokens(directory: Path) -> frozenset[int]:
    """Return the ids that generation_config.json and config.json declare, and that of the
    tokenizer's ``eos_token``: after fine-tuning, often only the tokenizer names the end of a chat
    turn. Raises ConfigError."""
    named = named_end(directory)
    return frozenset(declared_ends(directory)) | (frozenset() if named is None else {named})


def declared_ends(directory: Path) -> tuple[int, ...]:
    """Return the ids that generation_config.json and config.json declare, in this order. Raises
    ConfigError."""
    ends: tuple[int, ...] = ()
    for name in ("generation_config.json", "config.json"):
        if not (directory / name).is_file():
            continue
        fields = read_object(directory / name)
        ends += fields.token_ids("eos_token_id")
        if (text := fields.section("text_config")) is not None:
            ends += text.token_ids("eos_token_id")
    return ends
