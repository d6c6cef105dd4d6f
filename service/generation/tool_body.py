"""The body of one tool call, a JSON object, read as it arrives.

``{"name": "get_weather", "arguments": {"city": "Oslo"}}`` gives the name, then the arguments'
characters untouched. Bodies whose order or kind does not allow that (arguments before the name,
arguments inside a string) are read when the object is complete. Nothing here knows of tags.
"""

from __future__ import annotations

import enum
import json
import re
from typing import Any

from service.generation.formats import ToolCallTags

_SPACE = " \t\r\n"
# A longer head is looked at again only when the object ends, so that reading stays linear.
_MAX_HEAD_CHARS = 1024
_STRING = r'"(?:[^"\\]|\\.)*"'


class BodyState(enum.Enum):
    HEAD = enum.auto()  # the name or the start of the arguments is still missing
    ARGUMENTS = enum.auto()  # inside the arguments object
    TAIL = enum.auto()  # after it, before the object's closing brace
    COMPLETE = enum.auto()
    INVALID = enum.auto()  # not a tool call


class JsonScanner:
    """Finds where a JSON value that began with a brace or bracket ends, string-aware.

    ``raw_controls``: offsets, in the text last scanned, of control characters that stand raw in a
    string. Models write them; JSON, and every client's parser, forbids them.
    """

    __slots__ = ("_depth", "_escaped", "_in_string", "raw_controls")

    def __init__(self) -> None:
        self.raw_controls: list[int] = []
        self._depth = 0
        self._in_string = False
        self._escaped = False

    def scan(self, text: str) -> int | None:
        """The offset just after the value's last character, None if it goes on."""
        self.raw_controls = []
        for offset, char in enumerate(text):
            if self._in_string:
                if char < " ":
                    self.raw_controls.append(offset)
                self._inside_string(char)
            elif char == '"':
                self._in_string = True
            elif char in "{[":
                self._depth += 1
            elif char in "}]":
                self._depth -= 1
                if self._depth == 0:
                    return offset + 1
        return None

    def _inside_string(self, char: str) -> None:
        if self._escaped:
            self._escaped = False
        elif char == "\\":
            self._escaped = True
        elif char == '"':
            self._in_string = False


class ToolBody:
    """Feed text until ``state`` is COMPLETE or INVALID; ``rest`` is then what followed the body.

    ``name`` is set from ARGUMENTS or COMPLETE on. ``valid_arguments`` tells, once complete,
    whether the arguments are a JSON object.
    """

    def __init__(self, tags: ToolCallTags) -> None:
        key = "|".join(map(re.escape, tags.arguments_keys))
        self._streamable = re.compile(
            rf'\s*\{{\s*"{re.escape(tags.name_key)}"\s*:\s*({_STRING})\s*,\s*"(?:{key})"\s*:\s*(?=\{{)',
            re.DOTALL,
        )
        self._tags = tags
        self._raw = ""
        self._object = JsonScanner()
        self._arguments = JsonScanner()
        self._seen: list[str] = []
        self._head_end = 0
        self.state = BodyState.HEAD
        self.name = ""
        self.rest = ""

    @property
    def valid_arguments(self) -> bool:
        try:
            return isinstance(json.loads("".join(self._seen), strict=False), dict)
        except (ValueError, RecursionError):
            return False

    def feed(self, text: str) -> str:
        """The arguments' characters that ``text`` brings."""
        match self.state:
            case BodyState.HEAD:
                return self._feed_head(text)
            case BodyState.ARGUMENTS:
                return self._feed_arguments(text)
            case BodyState.TAIL:
                self._feed_tail(text)
        return ""

    def _feed_head(self, text: str) -> str:
        before = len(self._raw)
        self._raw += text
        if before < _MAX_HEAD_CHARS:
            start = self._raw.lstrip(_SPACE)
            if start and not start.startswith("{"):
                self.state = BodyState.INVALID
                return ""
            if self._match_head():
                return self._feed_arguments(self._raw[self._head_end :])
        end = self._object.scan(text)
        if end is None:
            return ""
        if self._match_head():
            return self._feed_arguments(self._raw[self._head_end :])
        return self._finish_whole(before + end)

    def _match_head(self) -> bool:
        head = self._streamable.match(self._raw)
        if head is None or not (name := _json_string(head[1])):
            return False
        self.name = name
        self._head_end = head.end()
        self.state = BodyState.ARGUMENTS
        return True

    def _finish_whole(self, end: int) -> str:
        """The whole object is there and could not be streamed."""
        self.rest = self._raw[end:]
        call = _tool_call(self._raw[:end], self._tags)
        if call is None:
            self.state = BodyState.INVALID
            return ""
        self.name, arguments = call
        self._seen.append(arguments)
        self.state = BodyState.COMPLETE
        return arguments

    def _feed_arguments(self, text: str) -> str:
        end = self._arguments.scan(text)
        arguments = _escaped(text[:end], self._arguments.raw_controls)
        self._seen.append(arguments)
        if end is not None:
            self.state = BodyState.TAIL
            self._feed_tail(text[end:])
        return arguments

    def _feed_tail(self, text: str) -> None:
        """Only the closing brace may follow; without it the body ends where other text begins."""
        self.rest = self.rest + text
        stripped = self.rest.lstrip(_SPACE)
        if stripped:
            self.state = BodyState.COMPLETE
            self.rest = stripped.removeprefix("}")


def _escaped(text: str, offsets: list[int]) -> str:
    """``text`` with the control characters at ``offsets`` written as JSON wants them."""
    if not offsets:
        return text
    pieces, start = [], 0
    for offset in offsets:
        pieces += [text[start:offset], json.dumps(text[offset])[1:-1]]
        start = offset + 1
    return "".join(pieces) + text[start:]


def _json_string(literal: str) -> str:
    try:
        value = json.loads(literal, strict=False)
    except ValueError:
        return ""
    return value if isinstance(value, str) and _is_unicode(value) else ""


def _is_unicode(text: str) -> bool:
    """Whether it can be sent. A model may write an escape of half a surrogate pair."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _tool_call(raw: str, tags: ToolCallTags) -> tuple[str, str] | None:
    """Name and arguments' JSON text of a complete body, or None."""
    try:
        body: Any = json.loads(raw, strict=False)
    except (ValueError, RecursionError):
        return None
    if not isinstance(body, dict):
        return None
    name = body.get(tags.name_key)
    if not isinstance(name, str) or not name or not _is_unicode(name):
        return None
    arguments: Any = next((body[key] for key in tags.arguments_keys if key in body), {})
    if isinstance(arguments, str):
        arguments = _json_object(arguments)
    if not isinstance(arguments, dict):
        return None
    text = json.dumps(arguments, ensure_ascii=False)
    return name, text if _is_unicode(text) else json.dumps(arguments)


def _json_object(text: str) -> dict[str, Any] | None:
    try:
        value = json.loads(text, strict=False)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None
