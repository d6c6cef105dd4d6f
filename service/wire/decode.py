"""Bytes to request structs, strictly, with errors that name the field."""

from __future__ import annotations

import re
from typing import Any, TypeVar

import msgspec

from service.errors import InvalidRequestError

T = TypeVar("T", bound=msgspec.Struct)

_PATH = re.compile(r" - at `\$?\.?(.*)`\Z", re.DOTALL)
_UNKNOWN = re.compile(r"Object contains unknown field `(.*)`\Z", re.DOTALL)
_MISSING = re.compile(r"Object missing required field `(.*)`\Z", re.DOTALL)


def decode(decoder: msgspec.json.Decoder[T], body: bytes) -> T:
    """Raises InvalidRequestError whose ``param`` is the path of the field at fault."""
    try:
        return decoder.decode(body)
    except msgspec.ValidationError as error:
        raise _explain(str(error)) from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InvalidRequestError(f"The body is not valid JSON: {error}.") from None
    except RecursionError:
        raise InvalidRequestError("The body is nested too deeply.") from None


def convert(value: Any, wanted: type[T], at: str) -> T:
    """A part of a body that was decoded without a type; ``at`` is its path.

    Raises InvalidRequestError as ``decode`` does.
    """
    try:
        return msgspec.convert(value, wanted)
    except msgspec.ValidationError as error:
        raise _explain(str(error), at) from None


def _explain(text: str, at: str = "") -> InvalidRequestError:
    path = at
    if match := _PATH.search(text):
        # msgspec writes [...] for the keys and values of a map.
        path, text = _join(at, match[1].replace("[...]", "")), text[: match.start()]
    if match := _UNKNOWN.match(text):
        name = _join(path, match[1])
        return InvalidRequestError(f"Unrecognized request argument supplied: {name}", param=name)
    if match := _MISSING.match(text):
        name = _join(path, match[1])
        return InvalidRequestError(f"Missing required parameter: '{name}'.", param=name)
    if not path:
        return InvalidRequestError(f"The body is not as expected: {text}.")
    return InvalidRequestError(f"Invalid value for '{path}': {text}.", param=path)


def _join(path: str, name: str) -> str:
    if not path or name.startswith("["):
        return path + name
    return f"{path}.{name}" if name else path
