"""Whether encoding with a ``tokenizer.json`` is known to be cheap. Pure.

The file is the model author's: a regular expression may take any time, a replacement may make a
short text a thousand times longer, and steps may be repeated thousands of times. The published ones
have few steps and well-known patterns.
"""

from __future__ import annotations

import base64
import math
from collections import Counter
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
_MOST_CHARS = 4  # that a replacement inserts
_MOST_MAPPED_BYTES = 64  # that a character map inserts: NFKC has up to 33
# How many times as long a text may become, in bytes, by steps that follow one another. T5's map and
# its replacement of spaces make it 99.
_MOST_GROWTH = 100
_GROWTH = {"NFKC": 11, "NFKD": 11, "ByteLevel": 2}  # other steps by their fields
_MOST_BYTE_LEVELS = 2
_MOST_METASPACES = 2  # each adds a character to every piece, and the next one splits there
_MOST_AFFIX_CHARS = 16
_MOST_WORD_CHARS = 256  # that WordPiece looks at, for each character of a text
_MOST_GROWN_WORD_CHARS = 1600  # the same, times the growth of the text
_MOST_PIECE_CHARS = 32  # that Unigram looks at: SentencePiece writes 16, if nothing else is set
_MOST_ADDED_IDS = 16


def is_cheap(fields: Any) -> bool:
    """Return whether encoding takes time and memory in proportion to the text. ``fields``: those of
    the file."""
    steps = list(_steps([fields.get("normalizer"), fields.get("pre_tokenizer")], _MOST_STEPS + 1))
    processors = list(_steps([fields.get("post_processor")], _MOST_STEPS + 1))
    replacements = sum("content" in step for step in steps)
    kinds = Counter(step.get("type") for step in steps)
    growth = math.prod(map(_growth, steps))
    return (
        max(len(steps), len(processors)) <= _MOST_STEPS
        and replacements <= _MOST_REPLACEMENTS
        and kinds["ByteLevel"] <= _MOST_BYTE_LEVELS
        and kinds["Metaspace"] <= _MOST_METASPACES
        and all(map(_is_cheap_step, steps))
        and growth <= _MOST_GROWTH
        and _is_cheap_model(fields["model"], growth)
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
    """Return the largest factor by which a step lengthens a text, in bytes."""
    kind = step.get("type", "")
    longest = _longest_mapped(step) if kind == "Precompiled" else _GROWTH.get(kind, 1)
    return max(1, longest, len((step.get("content") or "").encode()))


def _longest_mapped(step: dict[str, Any]) -> float:
    """Return the length in bytes of the longest text in SentencePiece's map of characters, which
    consists of the size of a trie, the trie, and the texts that it leads to. Infinite if it cannot
    be read."""
    try:
        charsmap = base64.b64decode(step["precompiled_charsmap"], validate=True)
    except (KeyError, TypeError, ValueError):
        return math.inf
    texts = 4 + int.from_bytes(charsmap[:4], "little")
    if texts > len(charsmap):
        return math.inf
    return max(map(len, charsmap[texts:].split(b"\0")))


def _is_cheap_model(model: dict[str, Any], growth: float) -> bool:
    affixes = (model.get("continuing_subword_prefix"), model.get("end_of_word_suffix"))
    if any(len(affix or "") > _MOST_AFFIX_CHARS for affix in affixes):
        return False
    kind = model.get("type")
    if kind == "Unigram":
        return all(len(piece) <= _MOST_PIECE_CHARS for piece, _ in model["vocab"])
    if kind == "WordPiece":
        chars = int(model.get("max_input_chars_per_word") or 0)
        return chars <= _MOST_WORD_CHARS and chars * growth <= _MOST_GROWN_WORD_CHARS
    return kind == "BPE" and not model.get("dropout")  # which tries skipped merges again and again


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
