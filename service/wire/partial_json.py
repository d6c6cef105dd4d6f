"""Reading JSON that was cut off: what had been said completely."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

_CLOSERS = {"{": "}", "[": "]"}


def read_cut_object(text: str) -> dict[str, Any]:
    """The object that ``text`` begins, with every member that is whole; one that is cut is left
    out, with all after it. Linear in the text."""
    cut = _last_cut(text)
    closers = "".join(_CLOSERS[bracket] for bracket in reversed(_open_brackets(text[:cut])))
    try:
        value = msgspec.json.decode(text[:cut] + closers)
    except (msgspec.DecodeError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def _last_cut(text: str) -> int:
    """Where the last whole member ends."""
    cut = depth = 0
    for index, character in _outside_strings(text):
        if character == ",":
            cut = index
        elif character in _CLOSERS:
            cut, depth = index + 1, depth + 1
        elif character in "}]" and depth:
            cut, depth = index + 1, depth - 1
    return cut


def _open_brackets(text: str) -> list[str]:
    brackets: list[str] = []
    for _, character in _outside_strings(text):
        if character in _CLOSERS:
            brackets.append(character)
        elif character in "}]" and brackets:
            brackets.pop()
    return brackets


def _outside_strings(text: str) -> Iterator[tuple[int, str]]:
    in_string = escaped = False
    for index, character in enumerate(text):
        if in_string:
            in_string = escaped or character != '"'
            escaped = character == "\\" and not escaped
            continue
        if character == '"':
            in_string = True
        else:
            yield index, character
