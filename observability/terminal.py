"""Makes text from elsewhere safe to show on a terminal. Standard library only."""

from __future__ import annotations

_OBEYED = {*range(0x20), *range(0x7F, 0xA0)} - {ord("\t"), ord("\n")}
_REORDERING = {0x061C, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A)}
_SHOWN = (
    {code: f"<{code:04X}>" for code in _REORDERING | _OBEYED}
    | {code: chr(0x2400 + code) for code in _OBEYED if code < 0x20}
    | {0x7F: "\u2421"}
    | dict.fromkeys(range(55296, 57344), "�")  # lone surrogates cannot be encoded
)


def for_terminal(text: str) -> str:
    """Make text from a model, a hub or a server safe to print: control characters except tab and
    newline are replaced by their pictures, and characters that reorder text by their codes."""
    return text.translate(_SHOWN)
