"""The interface through which parsers report the calls they find."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Protocol

from service.output.calls.source import NotACallError

ToolSchemas = Mapping[str, dict[str, Any] | None]
"""The request's tools by name, with the JSON schema of their arguments."""

MAX_NAME_CHARS = 512
_NAME = re.compile(r"[^\s<>{}\[\]\"'|`]+")


class CallSink(Protocol):
    """Receives calls one after another: ``begin``, then ``arguments`` any number of times, then
    ``end``."""

    def begin(self, name: str, call_id: str | None = None) -> None:
        """Begin a call; from here on it is a call, whatever follows. Raises NotACallError for a
        name that no tool can have."""

    def arguments(self, text: str) -> None:
        """Append a piece of the arguments' JSON."""

    def end(self, *, whole: bool = True) -> None:
        """End the arguments. The call is complete only if they are ``whole``."""


def check_name(name: str, tools: ToolSchemas, *, known: bool) -> None:
    """Raise NotACallError for an invalid name. The request's tools may have any name. ``known``: it
    must be the name of one of them."""
    if name in tools:
        return
    if known or len(name) > MAX_NAME_CHARS or _NAME.fullmatch(name) is None:
        raise NotACallError
