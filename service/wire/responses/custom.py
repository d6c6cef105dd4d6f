"""Extracts a custom tool's plain text from the JSON arguments with which the model calls it."""

from __future__ import annotations

import json
import re

import msgspec

from service.wire.responses.tools import CUSTOM_INPUT

_HEAD = re.compile(rf'\s*\{{\s*"{CUSTOM_INPUT}"\s*:\s*"')
_LONGEST_HEAD = 256
# An escape must not be split, nor the two escapes of a character beyond 16 bits.
_WHOLE = re.compile(
    r'(?:[^"\\]'
    r'|\\["\\/bfnrt]'
    r"|\\u(?![dD][89abAB])[0-9a-fA-F]{4}"
    r"|\\u[dD][89abAB][0-9a-fA-F]{2}(?:\\u[0-9a-fA-F]{4}|(?=[^\\]|\\[^u])))+"
)
_CUT = re.compile(r"\\(?:u(?:[0-9a-fA-F]{0,3}|[0-9a-fA-F]{4}(?:\\(?:u[0-9a-fA-F]{0,3})?)?))?\Z")


class CustomInput:
    """Receives ``{"input": "…"}`` in pieces, returns the text as far as it is certain, in linear
    time.

    Arguments of another form (if the model was not constrained) are returned at the end: their
    ``input`` if it is text, else their whole JSON.
    """

    def __init__(self) -> None:
        self._arguments: list[str] = []
        self._held = ""
        self._in_text = False
        self._ended = False

    def feed(self, piece: str) -> str:
        """Return the further text that this piece makes certain."""
        self._arguments.append(piece)
        if self._ended:
            return ""
        self._held += piece
        if not self._in_text:
            head = _HEAD.match(self._held)
            if head is None:
                self._ended = len(self._held) > _LONGEST_HEAD
                return ""
            self._in_text = True
            self._held = self._held[head.end() :]
        match = _WHOLE.match(self._held)
        taken = match.end() if match else 0
        raw, self._held = self._held[:taken], self._held[taken:]
        self._ended = self._held.startswith('"')
        return _unescape(raw)

    def end(self) -> str:
        """Return the rest, when no more arguments come."""
        if self._in_text:
            return "" if self._ended else _rest(self._held)
        arguments = "".join(self._arguments)
        try:
            value = msgspec.json.decode(arguments)
        except (msgspec.DecodeError, RecursionError):
            return arguments
        text = value.get(CUSTOM_INPUT) if isinstance(value, dict) else None
        return text if isinstance(text, str) else arguments


def _rest(held: str) -> str:
    """Return the text up to its closing quote. A backslash that escapes nothing is text, as models
    write ``\\$`` in scripts; an escape that the end cuts off is dropped."""
    pieces = []
    place = 0
    while place < len(held) and held[place] != '"' and not _CUT.match(held, place):
        match = _WHOLE.match(held, place)
        end = match.end() if match else place + 1
        pieces.append(_unescape(held[place:end]) if match else held[place])
        place = end
    return "".join(pieces)


def _unescape(raw: str) -> str:
    if "\\" not in raw:
        return raw
    text: str = json.loads(f'"{raw}"', strict=False)
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
