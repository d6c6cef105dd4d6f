"""Where readers put what they find."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Protocol

from service.output.calls.source import NotACallError

ToolSchemas = Mapping[str, dict[str, Any] | None]
"""The request's tools by name, with their arguments' JSON schema."""

MAX_NAME_CHARS = 512
_NAME = re.compile(r"[^\s<>{}\[\]\"'|`]+")


class CallSink(Protocol):
    """One call after another: ``begin``, ``arguments`` any number of times, ``end``."""

    def begin(self, name: str, call_id: str | None = None) -> None:
        """From here on it is a call, whatever follows. Raises NotACallError for a name that no tool
        can have."""

    def arguments(self, text: str) -> None:
        """A further piece of the arguments' JSON."""

    def end(self, *, whole: bool = True) -> None:
        """The arguments end here; only ``whole`` ones make a complete call."""


def check_name(name: str, tools: ToolSchemas, *, known: bool) -> None:
    """``known``: it must be one of the request's tools. Raises NotACallError."""
    if len(name) > MAX_NAME_CHARS or _NAME.fullmatch(name) is None:
        raise NotACallError
    if known and name not in tools:
        raise NotACallError
