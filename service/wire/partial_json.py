"""Reading JSON that was cut off: what had been said completely."""

from __future__ import annotations

from typing import Any

import msgspec

_CLOSERS = {"{": "}", "[": "]"}


def read_cut_object(text: str) -> dict[str, Any]:
    """The object that ``text`` begins, with every member that is whole; one that is cut is left
    out, with all after it. Linear in the text."""
    cut, closers = 0, ""
    open_brackets: list[str] = []
    in_string = escaped = False
    for index, character in enumerate(text):
        if in_string:
            in_string = escaped or character != '"'
            escaped = character == "\\" and not escaped
            continue
        if character == '"':
            in_string = True
        elif character in _CLOSERS:
            open_brackets.append(character)
            cut, closers = index + 1, _closing(open_brackets)
        elif character in "}]" and open_brackets:
            open_brackets.pop()
            cut, closers = index + 1, _closing(open_brackets)
        elif character == ",":
            cut, closers = index, _closing(open_brackets)
    try:
        value = msgspec.json.decode(text[:cut] + closers)
    except (msgspec.DecodeError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def _closing(open_brackets: list[str]) -> str:
    return "".join(_CLOSERS[bracket] for bracket in reversed(open_brackets))
