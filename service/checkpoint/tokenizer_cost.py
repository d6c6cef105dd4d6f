"""Whether a ``tokenizer.json`` is known to be cheap. Pure.

The file is the model author's: a regular expression may take any time, and a replacement may make a
short text a thousand times longer. The published ones use a few well-known patterns.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from service.gguf.pre_tokenizers import KNOWN_PATTERNS

_KNOWN: Final = KNOWN_PATTERNS | {
    "[\r\n]",  # in some files as the characters themselves
    r"\p{L}+|\p{N}|\n+|[^\s\p{L}\p{N}]+(?: [^\s\p{L}\p{N}]+)*|\s",  # the embedded model's
}
_MOST_REPLACEMENTS = 4
_MOST_CHARS = 4  # of the text that a replacement inserts: a text grows to 256 times its length


def is_cheap(fields: Any) -> bool:
    """Return whether encoding takes time and memory in proportion to the text. ``fields``: those of
    the file."""
    replacements = 0
    for step in _steps([fields.get("normalizer"), fields.get("pre_tokenizer")]):
        pattern = step.get("pattern")
        regex = pattern.get("Regex") if isinstance(pattern, dict) else None
        if regex is not None and regex not in _KNOWN:
            return False
        if len(step.get("content") or step.get("prepend") or "") > _MOST_CHARS:
            return False
        replacements += "content" in step
    return replacements <= _MOST_REPLACEMENTS


def _steps(rest: list[Any]) -> Iterator[dict[str, Any]]:
    while rest:
        step = rest.pop()
        if isinstance(step, list):
            rest += step
        elif isinstance(step, dict):
            yield step
            rest += [step.get("normalizers"), step.get("pretokenizers")]
