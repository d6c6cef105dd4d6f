"""Paths of request fields as logs and spans may show them."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator

import msgspec

_MOST_CHARS = 128
_INDEX = re.compile(r"[0-9]{1,4}")
_PART = re.compile(r"[^.\[\]]+")
# Query parameters and headers; all other names are fields of the requests' structs.
_OTHER_NAMES = frozenset({"after", "Last-Event-ID", "limit", "order", "starting_after", "stream"})


def public_path(path: str | None) -> str | None:
    """Return a field's path without the names that a client may have made up, such as the keys of a
    schema: each of them is shown as ``*``."""
    if not path:
        return None
    return _PART.sub(_public, path[:_MOST_CHARS])


def _public(part: re.Match[str]) -> str:
    name = part[0]
    return name if _INDEX.fullmatch(name) or name in _known_names() else "*"


@functools.cache
def _known_names() -> frozenset[str]:
    return _OTHER_NAMES.union(*map(_names, _structs(msgspec.Struct)))


def _structs(base: type[msgspec.Struct]) -> Iterator[type[msgspec.Struct]]:
    """Yield all structs of requests and answers that are loaded."""
    for kind in base.__subclasses__():
        if kind.__module__.startswith("service.wire."):
            yield kind
        yield from _structs(kind)


def _names(kind: type[msgspec.Struct]) -> Iterator[str]:
    return (field.encode_name for field in msgspec.structs.fields(kind))
