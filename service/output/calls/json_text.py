"""Parses JSON as models write it, incrementally.

A number too large for a float, such as ``1e999``, is an error, as ``NaN`` and ``Infinity`` are:
JSON parsers either reject it or turn it into infinity, which JSON cannot represent (JavaScript
writes null). A call that contains one must not be reported as valid.
"""

from __future__ import annotations

import enum
import json
import math
import re
from collections.abc import Generator
from typing import Any

from service.output.calls.source import Emit, NotACallError, Source, Stop, literals_of

_SCALAR = re.compile(r"[^\s,:\[\]{}\"]+")

_SPACE = re.compile(r"[ \t\n\r]+")
_IN_STRING = re.compile(r"[\"\\\x00-\x1f]")
_BARE = re.compile(r"[^ \t\n\r,:\[\]{}\"]+")
_BARE_START = re.compile(
    r"t(?:r(?:ue?)?)?|f(?:a(?:l(?:se?)?)?)?|n(?:u(?:ll?)?)?"
    r"|-?(?:(?:0|[1-9][0-9]*)(?:\.(?:[0-9]+)?)?(?:(?<=[0-9])[eE][+-]?[0-9]*)?)?"
)
_BARE_WHOLE = re.compile(r"true|false|null|-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")

_MAX_BARE_CHARS = 4300  # digits of a number; Python does not parse longer ones


# What the scanner expects next.
_VALUE = 0
_FIRST_VALUE = 1  # or the end of the array
_KEY = 2
_FIRST_KEY = 3  # or the end of the object
_COLON = 4
_NEXT = 5  # a comma, or the end of the open array or object


class JsonScanner:
    """Scans a JSON object or array as it arrives, up to its end or to the first invalid character.

    ``raw_controls``: offsets, in the text last scanned, of unescaped control characters in a
    string. Models write them, but JSON and every client's parser forbid them. ``broken_at``: the
    offset there of the first invalid character; escapes are not checked. ``has_member``: the first
    member or item is complete.
    """

    __slots__ = (
        *("_bare", "_escaped", "_expect", "_key", "_brace", "_open"),
        *("broken_at", "has_member", "in_string", "raw_controls"),
    )

    def __init__(self) -> None:
        self.raw_controls: list[int] = []
        self.broken_at: int | None = None
        self.in_string = False
        self.has_member = False
        self._key = False  # the current string is a key
        self._escaped = False
        self._brace = False  # the last string read ends in a brace
        self._bare = ""  # the number or literal read so far
        self._open: list[str] = []  # brackets
        self._expect = _VALUE

    @property
    def depth(self) -> int:
        return len(self._open)

    @property
    def unfinished(self) -> int:
        """Length of a number or literal that may be incomplete."""
        return len(self._bare)

    @property
    def followers(self) -> str:
        """The characters that may follow the open string."""
        if self._key:
            return ":"
        return ",}" if self._open[-1] == "{" else ",]"

    @property
    def string_ended_in_a_brace(self) -> bool:
        """True if the last string read appears to include the start of another object."""
        return self._brace

    def scan(self, text: str) -> int | None:
        """Return the offset just after the value's last character; None if it is incomplete or
        invalid."""
        self.raw_controls = []
        at, size = 0, len(text)
        while at < size:
            if self.in_string:
                at = self._string(text, at)
                continue
            if (space := _SPACE.match(text, at)) is not None:
                if not self._ends_bare():
                    break
                at = space.end()
                continue
            if (bare := _BARE.match(text, at)) is not None:
                went = self._bare_goes_on(bare[0])
                at += went
                if went < len(bare[0]):
                    break
                continue
            if not ((not self._bare or self._ends_bare()) and self._mark(text[at])):
                break
            at += 1
            if not self._open:
                return at
        if at < size:
            self.broken_at = at
        return None

    def _string(self, text: str, at: int) -> int:
        if self._escaped:
            self._escaped = False
            if text[at] < " ":
                self.raw_controls.append(at)
            self._brace = False
            return at + 1
        match = _IN_STRING.search(text, at)
        end = len(text) if match is None else match.start()
        if end > at:
            if text[end - 1] > " ":
                self._brace = text[end - 1] == "{"
            elif solid := text[at:end].rstrip():
                self._brace = solid[-1] == "{"
        if match is None:
            return end
        if match[0] == '"':
            self.in_string = False
            if self._key:
                self._expect = _COLON
            else:
                self._ends_value()
        elif match[0] == "\\":
            self._escaped = True
        else:
            self.raw_controls.append(end)
        return end + 1

    def _bare_goes_on(self, text: str) -> int:
        """Return how many characters may belong to a number or literal."""
        if not self._bare and self._expect not in (_VALUE, _FIRST_VALUE):
            return 0
        before = self._bare
        match = _BARE_START.match(before + text)
        good = 0 if match is None else min(match.end(), _MAX_BARE_CHARS) - len(before)
        if good > 0:
            self._bare = before + text[:good]
        return max(good, 0)

    def _ends_bare(self) -> bool:
        if not self._bare:
            return True
        bare, self._bare = self._bare, ""
        whole = _BARE_WHOLE.fullmatch(bare) is not None
        if whole and bare[0] not in "tfn":
            whole = math.isfinite(float(bare))
        self._ends_value()
        return whole

    def _ends_value(self) -> None:
        self._expect = _NEXT
        if len(self._open) == 1:
            self.has_member = True

    def _mark(self, char: str) -> bool:
        """Process a quote, bracket, comma or colon. False if it is invalid here."""
        expect = self._expect
        if char == ",":
            self._expect = _KEY if self._open[-1:] == ["{"] else _VALUE
            return expect == _NEXT
        if char == ":":
            self._expect = _VALUE
            return expect == _COLON
        if char == '"':
            self.in_string, self._key, self._brace = True, expect in (_KEY, _FIRST_KEY), False
            return expect <= _FIRST_KEY
        if char in "{[":
            self._open.append(char)
            self._expect = _FIRST_KEY if char == "{" else _FIRST_VALUE
            return expect <= _FIRST_VALUE
        opening, empty = ("{", _FIRST_KEY) if char == "}" else ("[", _FIRST_VALUE)
        if self._open[-1:] != [opening] or expect not in (_NEXT, empty):
            return False
        self._open.pop()
        self._ends_value()
        return True


class ValueEnding(enum.Enum):
    """How an object or array ended."""

    WHOLE = enum.auto()
    BROKEN = enum.auto()  # it is not valid JSON
    AT_CALL = enum.auto()  # not valid either, and the object of another call begins here
    IN_CALL = enum.auto()  # the same, and that object's brace and first quote have been consumed


def read_container(
    source: Source, emit: Emit, *, first_keys: tuple[str, ...] = ()
) -> Generator[None, None, ValueEnding]:
    """Emit the object or array that begins here, with control characters in its strings escaped.
    Invalid JSON is emitted too, up to the point where its brackets balance, or to one of the
    format's own tags, or to another call: an object that begins with one of ``first_keys``.

    Raises EndOfTextError after emitting everything.
    """
    scanner = JsonScanner()
    checked = 0  # up to this offset the string is known to continue
    known = literals_of(source.stop_tags)
    while True:
        ready = source.ready(known)
        if ready is None:
            yield from source.more()
            continue
        text, tag = ready
        if not text:
            assert tag is not None
            kind = Stop.TEXT if source.offset < checked else source.stop(tag)
            if kind is Stop.PERHAPS and scanner.in_string:
                goes_on = yield from _string_goes_on(source, scanner)
                if goes_on:
                    checked = source.offset + goes_on
                    kind = Stop.TEXT
            if kind is not Stop.TEXT:
                return ValueEnding.BROKEN
            text = tag
        end = scanner.scan(text)
        broken = scanner.broken_at
        used = end if end is not None else len(text) if broken is None else broken
        if used:
            taken = source.take(used)
            emit(_escaped(taken, scanner.raw_controls) if scanner.raw_controls else taken)
        if end is not None:
            return ValueEnding.WHOLE
        if broken is not None:
            return (yield from _read_broken(source, emit, scanner, first_keys))


def _string_goes_on(source: Source, scanner: JsonScanner) -> Generator[None, None, int]:
    """If the open string contains one of the format's own tags but still ends where a string may
    end, return the distance to that end, else 0."""
    at = 0
    while True:
        at, found = yield from source.find(at, '"', "\\")
        if found is None:
            return 0
        if found == '"':
            _, follower = yield from source.solid(at + 1)
            return at if follower and follower in scanner.followers else 0
        at += 2


def _read_broken(
    source: Source, emit: Emit, scanner: JsonScanner, first_keys: tuple[str, ...]
) -> Generator[None, None, ValueEnding]:
    """Emit the rest of a value that turned out not to be JSON."""
    keys = tuple(map(dumps, first_keys))
    rests = tuple(key[1:] for key in keys)
    if scanner.string_ended_in_a_brace and (yield from _begins(source, "", rests)):
        return ValueEnding.IN_CALL
    depth, in_string = scanner.depth, False
    while True:
        text, found = yield from source.stretch(*'"\\{}[]', *source.stop_tags)
        if text:
            emit(source.take(len(text)))
            continue
        assert found is not None
        if found in source.stop_tags and source.stop(found) is not Stop.TEXT:
            return ValueEnding.BROKEN
        if found == "{" and (yield from _begins(source, "{", keys)):
            return ValueEnding.AT_CALL
        size = len(found)
        if found == "\\":
            size = len((yield from source.peek(2)))
        elif found == '"':
            in_string = not in_string
        elif not in_string:
            depth += {"{": 1, "[": 1, "}": -1, "]": -1}.get(found, 0)
        emit(source.take(size))
        if depth <= 0:
            return ValueEnding.BROKEN


def _begins(source: Source, brace: str, keys: tuple[str, ...]) -> Generator[None, None, bool]:
    """True if an object with one of these keys begins here."""
    for key in keys:
        if (yield from source.spells(*(part for part in (brace, key, ":") if part))):
            return True
    return False


def read_string(source: Source, *, begun: bool = False) -> Generator[None, None, str]:
    """Read a string. ``begun``: its first quote has been consumed. Raises NotACallError if there is
    no string here."""
    if not begun:
        if (yield from source.peek()) != '"':
            raise NotACallError
        source.take(1)
    pieces: list[str] = []
    while (yield from source.until('"', "\\", emit=pieces.append)) == "\\":
        pieces.append("\\" + (yield from source.peek()))
        source.take(len(pieces[-1]) - 1)
    text = loads(f'"{"".join(pieces)}"')
    if not isinstance(text, str) or not is_unicode(text):
        raise NotACallError
    return text


def read_value(source: Source) -> Generator[None, None, Any]:
    """Read a JSON value. Raises NotACallError if there is none here."""
    first = yield from source.peek()
    if first == '"':
        return (yield from read_string(source))
    pieces: list[str] = []
    if first in ("{", "["):
        if (yield from read_container(source, pieces.append)) is not ValueEnding.WHOLE:
            raise NotACallError
    else:
        yield from source.run(_SCALAR, pieces.append)
    value = loads("".join(pieces))
    if value is INVALID:
        raise NotACallError
    return value


INVALID = object()
"""Returned by ``loads`` for text that is not valid JSON."""


def loads(text: str, *, strict: bool = False) -> Any:
    """Parse JSON. ``strict``: control characters in strings must be escaped."""
    try:
        return json.loads(
            text,
            strict=strict,
            parse_constant=_no_constant,
            parse_float=_float,
            parse_int=_int,
        )
    except (ValueError, RecursionError):
        return INVALID


def _float(text: str) -> float:
    value = float(text)
    if math.isinf(value):
        raise ValueError("a number beyond any float")
    return value


def _int(text: str) -> int:
    _float(text)
    return int(text)


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def dumps(value: Any) -> str:
    """Serialize as models do, with ASCII escapes only if the text cannot be encoded as UTF-8."""
    text = json.dumps(value, ensure_ascii=False)
    return text if is_unicode(text) else json.dumps(value)


def string_inside(text: str) -> str:
    """Return ``text`` escaped for use inside a JSON string, without the quotes."""
    return json.dumps(text, ensure_ascii=False)[1:-1]


def is_unicode(text: str) -> bool:
    """True if the text can be encoded as UTF-8. A model may escape half of a surrogate pair."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _escaped(text: str, offsets: list[int]) -> str:
    """Return ``text`` with the control characters at ``offsets`` escaped for JSON."""
    if not offsets:
        return text
    pieces, start = [], 0
    for offset in offsets:
        pieces += [text[start:offset], json.dumps(text[offset])[1:-1]]
        start = offset + 1
    return "".join(pieces) + text[start:]
