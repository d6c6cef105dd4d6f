"""The names of arguments: which ones each kind of call can carry, and how they are written and
recognized."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Generator, Iterable

from service.formats.format import (
    Body,
    ElementsBody,
    JsonBody,
    NamedJsonBody,
    ParametersBody,
    PythonBody,
    RelaxedBody,
)
from service.output.calls.sink import MAX_NAME_CHARS
from service.output.calls.source import Source

MAX_PARAMETER_CHARS = 128
ELEMENT = re.compile(r"[^\s<>=/]+")


def can_carry(body: Body, key: str) -> bool:
    """True if a call that is written like this may have an argument with this name, so that it is
    read back."""
    match body:
        case JsonBody() | NamedJsonBody():
            return True
        case ParametersBody():
            text = written_name(key, body)
            fits = 0 < len(text) <= MAX_PARAMETER_CHARS and key == key.strip()
            return fits and not set(text) & set(ends_of_key(body))
        case ElementsBody():
            return len(key) <= MAX_NAME_CHARS and ELEMENT.fullmatch(key) is not None
        case PythonBody() | RelaxedBody():
            # Read as one of the tool's own names. A call may end where a bracket comes instead.
            return 0 < len(key) <= MAX_NAME_CHARS and not (key[0].isspace() or key[0] in ")}")


def ends_of_key(body: ParametersBody) -> tuple[str, ...]:
    """Return the characters that end a key, one of which begins ``key_end``."""
    others = ("<", ">", "\n", *(("=",) if body.attributes else ()))
    return tuple(dict.fromkeys((body.key_end[0], *others)))


def written_name(name: str, body: ParametersBody) -> str:
    """Return the name of a tool or argument with the format's escapes."""
    return name.replace("&", "&amp;").replace('"', "&quot;") if body.escaped else name


def read_name(text: str, body: ParametersBody) -> str:
    """Return a written name without white space and escapes."""
    text = text.strip()
    return text.replace("&quot;", '"').replace("&amp;", "&") if body.escaped else text


class OwnNames:
    """The names that a tool's schema gives, to be recognized even if they hold characters that end
    other names."""

    def __init__(self, names: Iterable[str]) -> None:
        self._names = sorted(name for name in names if 0 < len(name) <= MAX_NAME_CHARS)

    def ahead(self, source: Source, start: int, end: str) -> Generator[None, None, str | None]:
        """Return the longest of the names that comes ``start`` characters ahead and is followed by
        ``end``, with optional white space before it; None if there is none. Consumes nothing."""
        found: list[str] = []
        size = 1
        while self._names:
            text = (yield from source.peek(start + size))[start:]
            place = bisect_left(self._names, text)
            if len(text) < size or place == len(self._names):
                break
            if self._names[place] == text:
                found.append(text)
            elif not self._names[place].startswith(text):
                break
            size += 1
        for name in reversed(found):
            if (yield from source.spells(end, start=start + len(name))):
                return name
        return None
