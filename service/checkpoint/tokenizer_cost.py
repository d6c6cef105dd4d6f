"""Whether encoding with a ``tokenizer.json`` is known to be cheap. Pure.

The file is the model author's: a regular expression may take any time, a replacement may make a
short text a thousand times longer, and steps may be repeated thousands of times. The published ones
have few steps and well-known patterns.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Iterator
from typing import Any, Final

from service.gguf.pre_tokenizers import KNOWN_PATTERNS

_KNOWN: Final = KNOWN_PATTERNS | {
    "[\r\n]",  # in some files as the characters themselves
    r"\p{L}+|\p{N}|\n+|[^\s\p{L}\p{N}]+(?: [^\s\p{L}\p{N}]+)*|\s",  # the embedded model's
    *(" {2,}", "[0-9][0-9][0-9]", r"\s+"),  # T5 and others of SentencePiece, Falcon, CLIP
}
_MOST_STEPS = 16
_MOST_REPLACEMENTS = 4
_MOST_CHARS = 4  # that a replacement inserts: four of them make a text up to 256 times as long
_MOST_MAPPED_BYTES = 64  # that a character map inserts: NFKC has up to 33
_MOST_GROWTH = 256  # of a text, by maps and replacements that follow one another
_MOST_BYTE_LEVELS = 2  # each makes what is not ASCII twice as long
_MOST_AFFIX_CHARS = 16
_MOST_WORD_CHARS = 256  # that WordPiece looks at; the time grows with their square
_MOST_PIECE_CHARS = 256  # likewise for Unigram
_MOST_ADDED_IDS = 16


def is_cheap(fields: Any) -> bool:
    """Return whether encoding takes time and memory in proportion to the text. ``fields``: those of
    the file."""
    steps = list(_steps([fields.get("normalizer"), fields.get("pre_tokenizer")], _MOST_STEPS + 1))
    processors = list(_steps([fields.get("post_processor")], _MOST_STEPS + 1))
    replacements = sum("content" in step for step in steps)
    byte_levels = sum(step.get("type") == "ByteLevel" for step in steps)
    return (
        max(len(steps), len(processors)) <= _MOST_STEPS
        and replacements <= _MOST_REPLACEMENTS
        and byte_levels <= _MOST_BYTE_LEVELS
        and all(map(_is_cheap_step, steps))
        and math.prod(map(_growth, steps)) <= _MOST_GROWTH
        and _is_cheap_model(fields["model"])
        and sum(map(_added_ids, processors)) <= _MOST_ADDED_IDS
    )


def _is_cheap_step(step: dict[str, Any]) -> bool:
    pattern = step.get("pattern")
    if isinstance(pattern, dict):
        regex = pattern.get("Regex")
        if regex not in _KNOWN if regex is not None else not pattern.get("String"):
            return False
    if step.get("type") == "Precompiled" and _longest_mapped(step) > _MOST_MAPPED_BYTES:
        return False
    return len(step.get("content") or step.get("prepend") or "") <= _MOST_CHARS


def _growth(step: dict[str, Any]) -> float:
    """Return how many times as long a replacement or a map makes a text, at most."""
    longest = _longest_mapped(step) if step.get("type") == "Precompiled" else 1
    return max(1, longest, len(step.get("content") or ""))


def _longest_mapped(step: dict[str, Any]) -> float:
    """Return the length in bytes of the longest text in SentencePiece's map of characters: the size
    of a trie, the trie, and the texts that it leads to. Infinite if there is no such map."""
    try:
        charsmap = base64.b64decode(step["precompiled_charsmap"], validate=True)
    except (KeyError, TypeError, ValueError):
        return math.inf
    texts = 4 + int.from_bytes(charsmap[:4], "little")
    if texts > len(charsmap):
        return math.inf
    return max(map(len, charsmap[texts:].split(b"\0")))


def _is_cheap_model(model: dict[str, Any]) -> bool:
    affixes = (model.get("continuing_subword_prefix"), model.get("end_of_word_suffix"))
    if any(len(affix or "") > _MOST_AFFIX_CHARS for affix in affixes):
        return False
    kind = model.get("type")
    if kind == "Unigram":
        return all(len(piece) <= _MOST_PIECE_CHARS for piece, _ in model["vocab"])
    if kind == "WordPiece":
        return int(model.get("max_input_chars_per_word") or 0) <= _MOST_WORD_CHARS
    return kind == "BPE"


def _added_ids(processor: dict[str, Any]) -> int:
    """Return how many ids it adds to a text, at most."""
    ids = [len(token["ids"]) for token in (processor.get("special_tokens") or {}).values()]
    pieces = (*(processor.get("single") or ()), *(processor.get("pair") or ()))
    return max(ids, default=0) * len(pieces)


def _steps(rest: list[Any], most: int) -> Iterator[dict[str, Any]]:
    while rest and most:
        step = rest.pop()
        if isinstance(step, list):
            rest += step
        elif isinstance(step, dict):
            most -= 1
            yield step
            rest += [step.get("normalizers"), step.get("pretokenizers"), step.get("processors")]
