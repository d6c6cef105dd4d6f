"""Decodes request bodies to structs: bounded, typed, with errors that name the field.

A body is first decoded strictly. If that fails it is decoded again leniently (``leniency``):
unknown fields are dropped and reported rather than rejected, as clients of "OpenAI-compatible"
servers expect.
"""

from __future__ import annotations

import difflib
import functools
import re
from collections.abc import Set
from typing import Any, Literal, TypeVar, get_args, get_origin
from urllib.parse import quote

import msgspec

from service.errors import InvalidRequestError
from service.wire.leniency import lenient

_T = TypeVar("_T", bound=msgspec.Struct)

_PATH = re.compile(r" - at `\$?\.?(.*)`\Z", re.DOTALL)
_UNKNOWN = re.compile(r"Object contains unknown field `(.*)`\Z", re.DOTALL)
_MISSING = re.compile(r"Object missing required field `(.*)`\Z", re.DOTALL)

# Clients send back what their own SDK, or another server, added to these: never rejected.
_HISTORY = re.compile(r"(messages|tools|functions|system)\b[.\[]")
_MAX_KEPT = 256
_MAX_SEARCHED_BYTES = 256 * 1024
_MAX_SHOWN = 32
_MAX_NAME = 64
# Clients and proxies reject responses with large headers; escaping can make names much longer.
_MAX_SUMMARY = 2048
_MAX_HINTS = 4
_MAX_HINT = 64  # characters; a longer name is not a misspelling


class Ignored:
    """The parts of a request that have no effect here, as paths in the request's order. ``refuse``:
    an unknown field, other than in messages and tools, is an error instead."""

    def __init__(
        self,
        *,
        refuse: bool = False,
        names: list[str] | None = None,
        meant: dict[str, str] | None = None,
    ) -> None:
        """``names`` and ``meant`` are added to, if given."""
        self.names: list[str] = [] if names is None else names
        # Unknown fields and what they may be misspellings of.
        self.meant: dict[str, str] = {} if meant is None else meant
        self.refuse = refuse
        # The request, once decoded: later checks may still reject it.
        self.request: msgspec.Struct | None = None
        # The model that the body names, if another of its fields is wrong.
        self.named_model: str | None = None

    def add(self, *names: str) -> None:
        """Add each name once, up to a limit: a message may have a million parts."""
        for name in names:
            if len(self.names) >= _MAX_KEPT:
                return
            if name not in self.names:
                self.names.append(name)

    def drop_options(self, paths: tuple[str, ...]) -> None:
        """Forget the unknown fields of tools that are left out, at these paths: the tools' own
        names say enough."""
        inside = tuple(f"{path}." for path in paths)
        self.names[:] = [name for name in self.names if not name.startswith(inside)]

    def summary(self) -> str:
        """Return a summary for a header or a log line: bounded, printable, without values. The
        request's own fields come first, because those in its messages may be numerous."""
        names = sorted(dict.fromkeys(self.names), key=lambda name: "[" in name)
        shown = ", ".join(map(_shown, names[:_MAX_SHOWN]))
        if len(shown) > _MAX_SUMMARY:
            shown = shown[:_MAX_SUMMARY].rpartition(", ")[0]
        return shown

    def hint(self) -> str:
        """Return what was probably meant, for a header; empty if nothing is known."""
        return ", ".join(f"{_shown(name)}: perhaps {meant}" for name, meant in self.meant.items())


def _shown(name: str) -> str:
    return quote(name[:_MAX_NAME], safe="_.-[]/ ")


def decode(decoder: msgspec.json.Decoder[_T], body: bytes, ignored: Ignored | None = None) -> _T:
    """Decode a body. ``ignored`` gains the paths of unknown fields.

    Raises InvalidRequestError whose ``param`` is the path of the field at fault.
    """
    ignored = ignored or Ignored()
    try:
        request = decoder.decode(body)
    except msgspec.ValidationError as error:
        request = _decode_leniently(decoder.type, body, ignored, str(error))
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InvalidRequestError(f"The body is not valid JSON: {error}.") from None
    except RecursionError:
        raise InvalidRequestError("The body is nested too deeply.") from None
    ignored.request = request
    return request


class _Naming(msgspec.Struct):
    model: str | None = None


_naming = msgspec.json.Decoder(_Naming)


def named_model(body: bytes) -> str | None:
    """Return the model that a body names, which has not been decoded; None if that is not sound or
    too large to look for it."""
    if len(body) > _MAX_SEARCHED_BYTES:
        return None
    try:
        return _naming.decode(body).model
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None


def _decode_leniently(kind: type[_T], body: bytes, ignored: Ignored, refused: str) -> _T:
    """``refused``: why it was not decoded strictly."""
    unknown: list[str] = []
    try:
        given = _any_json(body, refused)
        if isinstance(given, dict) and isinstance(named := given.get("model"), str):
            ignored.named_model = named
        request = msgspec.convert(lenient(given, kind, unknown), kind)
    except msgspec.ValidationError as error:
        raise _explain(str(error), kind=kind) from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InvalidRequestError(f"The body is not valid JSON: {error}.") from None
    except RecursionError:
        raise InvalidRequestError("The body is nested too deeply.") from None
    set_fields = {name for name, value in given.items() if value is not None}
    if ignored.refuse:
        for name in unknown:
            if not _HISTORY.match(name):
                raise _unrecognized(name, kind, set_fields)
    ignored.add(*unknown)
    for name in unknown[:_MAX_HINTS]:
        if (meant := likely_meant(name, kind, set_fields)) is not None:
            ignored.meant[name] = meant
    return request


def _any_json(body: bytes, refused: str) -> Any:
    """Decode a body without a type. Raises InvalidRequestError for a number out of range."""
    try:
        return msgspec.json.decode(body)
    except msgspec.ValidationError as error:
        # This path has no names, but the strict decoder's has some, if it refused the same number.
        if refused.startswith(_PATH.sub("", str(error))) and _PATH.search(refused):
            raise _explain(refused) from None
        raise InvalidRequestError(
            "The body contains a number that is out of range; the largest is 1.8e308."
        ) from None


def _unrecognized(
    name: str, kind: type[msgspec.Struct], set_fields: Set[str]
) -> InvalidRequestError:
    message = f"Unrecognized request argument supplied: {name}"
    if (meant := likely_meant(name, kind, set_fields)) is not None:
        message += f". Did you mean '{meant}'?"
    return InvalidRequestError(message, param=name)


def likely_meant(
    name: str, kind: type[msgspec.Struct], set_fields: Set[str] = frozenset()
) -> str | None:
    """Return the field of ``kind`` that ``name`` may be a misspelling of, unless it is one of
    ``set_fields``: then something else was meant."""
    if len(name) > _MAX_HINT:
        return None
    near = next(iter(difflib.get_close_matches(name, _fields(kind), n=1, cutoff=0.8)), None)
    return None if near in set_fields else near


@functools.cache  # to list them takes long, and leaves a cycle of references
def _fields(kind: type[msgspec.Struct]) -> tuple[str, ...]:
    return tuple(field.encode_name for field in msgspec.structs.fields(kind))


def convert(value: Any, wanted: type[_T], at: str) -> _T:
    """Convert a part of a body that was decoded without a type; ``at`` is its path.

    Raises InvalidRequestError as ``decode`` does.
    """
    try:
        return msgspec.convert(value, wanted)
    except msgspec.ValidationError as error:
        raise _explain(str(error), at) from None


def _explain(
    text: str, at: str = "", kind: type[msgspec.Struct] | None = None
) -> InvalidRequestError:
    path = at
    if match := _PATH.search(text):
        # msgspec writes [...] for the keys and values of a map: what is inside has no path.
        path, text = _join(at, match[1].partition("[...]")[0]), text[: match.start()]
    if match := _UNKNOWN.match(text):
        name = _join(path, match[1])
        return InvalidRequestError(f"Unrecognized request argument supplied: {name}", param=name)
    if match := _MISSING.match(text):
        name = _join(path, match[1])
        return InvalidRequestError(f"Missing required parameter: '{name}'.", param=name)
    if not path:
        return InvalidRequestError(f"The body is not as expected: {text}.")
    if kind is not None and text.startswith("Invalid enum value") and (names := _names(kind, path)):
        text = f"{text}; it must be one of {', '.join(map(repr, names))}"
    return InvalidRequestError(f"Invalid value for '{path}': {text}.", param=path)


def _names(kind: type[msgspec.Struct], path: str) -> tuple[str, ...]:
    """Return the values that a field of ``kind`` may have, if it is one of a closed set of names
    or null."""
    for field in msgspec.structs.fields(kind):
        if field.encode_name == path:
            options = get_args(field.type)
            literals = [each for each in (field.type, *options) if get_origin(each) is Literal]
            return tuple(name for each in literals for name in get_args(each))
    return ()


def _join(path: str, name: str) -> str:
    if not path or name.startswith("["):
        return path + name
    return f"{path}.{name}" if name else path
