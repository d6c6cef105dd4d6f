"""The formats that come with Quire: one file for each way of writing calls, or reasoning.

A family that writes in a new way is a new file; its examples are its tests. The names are those
that operators know from other servers.
"""

from __future__ import annotations

import functools
from pathlib import Path

import msgspec

from service.generation.formats.format import (
    Channels,
    OutputFormat,
    ReasoningTags,
    ToolCallTags,
)

_FOLDER = Path(__file__).parent


class Example(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A whole output and what it says; ``calls`` are pairs of name and arguments' JSON.
    ``lenient``: a spelling that is understood, but never demanded."""

    text: str
    lenient: bool = False
    calls: tuple[tuple[str, str], ...] = ()
    content: str = ""
    reasoning: str = ""


class ShippedFormat(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``detect``: sets of texts; a chat template that holds all of one set is of this family. Where
    several families fit, the one with the longest texts does.

    Formats of reasoning are detected by their own tags.
    """

    names: tuple[str, ...]
    models: str
    detect: tuple[tuple[str, ...], ...] = ()
    calls: ToolCallTags | None = None
    reasoning: ReasoningTags | None = None
    channels: Channels | None = None
    ignored: tuple[str, ...] = ()
    examples: tuple[Example, ...] = ()

    @property
    def markers(self) -> tuple[tuple[str, ...], ...]:
        if self.detect or self.reasoning is None:
            return self.detect
        return tuple((tag,) for tag in (*self.reasoning.opens, *self.reasoning.closes))


@functools.cache
def shipped_formats(kind: str) -> tuple[ShippedFormat, ...]:
    """All of a kind: ``tool_calls`` or ``reasoning``. Some formats of calls tell of reasoning
    too."""
    files = sorted((_FOLDER / kind).glob("*.toml"))
    return tuple(msgspec.toml.decode(file.read_bytes(), type=ShippedFormat) for file in files)


def named_format(kind: str, name: str) -> ShippedFormat:
    """Raises ValueError for a name that there is not."""
    for shipped in shipped_formats(kind):
        if name in shipped.names:
            return shipped
    known = ", ".join(sorted(name for shipped in shipped_formats(kind) for name in shipped.names))
    raise ValueError(f"there is no format {name!r}; there are {known}")


def detect_format(
    template: str, *, calls: str | None = None, reasoning: str | None = None
) -> OutputFormat:
    """The format of the family whose chat template this is. ``calls`` and ``reasoning`` name one
    to take instead, or are ``none``. Raises ValueError for an unknown name."""
    written = _chosen("tool_calls", calls, template)
    thought = _chosen("reasoning", reasoning, template)
    return OutputFormat(
        reasoning=None if thought is None else thought.reasoning,
        tool_call=None if written is None else written.calls,
        channels=None if written is None else written.channels,
        ignored=_ignored(written, thought),
        name="+".join(part.names[0] for part in (thought, written) if part is not None),
    )


def _chosen(kind: str, name: str | None, template: str) -> ShippedFormat | None:
    if name == "none":
        return None
    if name not in (None, "auto"):
        return named_format(kind, str(name))
    fitting = [
        (sum(map(len, markers)), shipped)
        for shipped in shipped_formats(kind)
        for markers in shipped.markers
        if all(marker in template for marker in markers)
    ]
    return max(fitting, key=lambda fit: fit[0])[1] if fitting else None


def _ignored(*parts: ShippedFormat | None) -> tuple[str, ...]:
    return tuple(dict.fromkeys(tag for part in parts if part is not None for tag in part.ignored))
