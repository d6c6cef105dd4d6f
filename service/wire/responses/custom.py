"""A custom tool's plain text, out of the JSON arguments that carry it to the model."""

from __future__ import annotations

import json
import re

import msgspec

from service.wire.responses.tools import CUSTOM_INPUT

_HEAD = re.compile(rf'\s*\{{\s*"{CUSTOM_INPUT}"\s*:\s*"')
_LONGEST_HEAD = 256
# What must not be cut is an escape, and the two escapes of a character beyond 16 bits.
_WHOLE = re.compile(
    r'(?:[^"\\]'
    r'|\\["\\/bfnrt]'
    r"|\\u(?![dD][89abAB])[0-9a-fA-F]{4}"
    r"|\\u[dD][89abAB][0-9a-fA-F]{2}(?:\\u[0-9a-fA-F]{4}|(?=[^\\]|\\[^u])))+"
)


class CustomInput:
    """Fed with ``{"input": "…"}`` in pieces, gives the text as far as it is certain. Linear.

    Arguments of another form (nothing constrained the model) are given as they are, at the end:
    their ``input`` if they have one that is text, else their whole JSON.
    """

    def __init__(self) -> None:
        self._arguments: list[str] = []
        self._held = ""
        self._in_text = False
        self._ended = False

    def feed(self, piece: str) -> str:
        """The further text that this piece makes certain."""
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
        """What is left to give once no more arguments come."""
        if self._in_text:
            return ""
        arguments = "".join(self._arguments)
        try:
            value = msgspec.json.decode(arguments)
        except (msgspec.DecodeError, RecursionError):
            return arguments
        text = value.get(CUSTOM_INPUT) if isinstance(value, dict) else None
        return text if isinstance(text, str) else arguments


def _unescape(raw: str) -> str:
    if "\\" not in raw:
        return raw
    text: str = json.loads(f'"{raw}"', strict=False)
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
