"""The formats that come with Quire: one file for each way of writing calls or reasoning.

To support a new way of writing, add a file; its examples are its tests. The names are those that
operators know from other servers.
"""

from __future__ import annotations

import functools
import re
from pathlib import Path
from typing import Any

import msgspec

from service.formats.format import (
    Channels,
    OutputFormat,
    ReasoningTags,
    ToolCallTags,
)

# Use what the checkpoint declares, or else detect the format from its chat template. The last two
# are other servers' names for a checkpoint's own ``response_template``.
AUTO_NAMES = ("auto", "hf", "response_template")

_FOLDER = Path(__file__).parent


class Example(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A whole output and its meaning; ``calls`` are pairs of name and arguments' JSON. ``lenient``:
    a spelling that is accepted but never required."""

    text: str
    lenient: bool = False
    calls: tuple[tuple[str, str], ...] = ()
    content: str = ""
    reasoning: str = ""


class ShippedFormat(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``detect``: sets of texts; a chat template that contains all texts of one set belongs to this
    family. If several families match, the one with the longest texts wins.

    Reasoning formats are detected by their own tags. ``reasoning_names``: the reasoning format
    names of a file that describes both calls and reasoning. ``suffix``: a regex with one group, for
    what a model may write at the end of each of its tags, found in its template or tokens.
    """

    names: tuple[str, ...]
    models: str
    detect: tuple[tuple[str, ...], ...] = ()
    calls: ToolCallTags | None = None
    reasoning: ReasoningTags | None = None
    channels: Channels | None = None
    ignored: tuple[str, ...] = ()
    marks: tuple[tuple[str, str], ...] = ()
    reasoning_names: tuple[str, ...] = ()
    suffix: str = ""
    examples: tuple[Example, ...] = ()

    @property
    def markers(self) -> tuple[tuple[str, ...], ...]:
        if self.detect or self.reasoning is None:
            return self.detect
        return tuple((tag,) for tag in (*self.reasoning.opens, *self.reasoning.closes))


@functools.cache
def shipped_formats(kind: str) -> tuple[ShippedFormat, ...]:
    """Return all formats of a kind: ``tool_calls`` or ``reasoning``. Some formats for calls
    describe reasoning too."""
    files = sorted((_FOLDER / kind).glob("*.toml"))
    return tuple(msgspec.toml.decode(file.read_bytes(), type=ShippedFormat) for file in files)


@functools.cache
def format_names(kind: str) -> dict[str, ShippedFormat]:
    """Return every format of a kind, by each of its names."""
    named = {name: shipped for shipped in shipped_formats(kind) for name in shipped.names}
    if kind == "reasoning":
        for shipped in shipped_formats("tool_calls"):
            named |= dict.fromkeys(shipped.reasoning_names, shipped)
    return named


def named_format(kind: str, name: str) -> ShippedFormat:
    """Find a format; hyphens and underscores are equivalent. Raises ValueError for an unknown
    name."""
    names = format_names(kind)
    shipped = names.get(name) or names.get(name.replace("-", "_"))
    if shipped is None:
        raise ValueError(f"there is no format {name!r}; there are {', '.join(sorted(names))}")
    return shipped


def detect_format(
    template: str, *, calls: str | None = None, reasoning: str | None = None, tokens: str = ""
) -> OutputFormat:
    """Detect the format of a model family from the source of its chat template and what it renders.
    ``calls`` and ``reasoning`` name a format to use instead, or are ``none``. ``tokens``: the texts
    of the vocabulary, concatenated. Raises ValueError for an unknown name."""
    written = _chosen("tool_calls", calls, template)
    thought = _chosen("reasoning", reasoning, template)
    parts = [part for part in (thought, written) if part is not None]
    if thought is written:
        parts = parts[:1]
    channels = written.channels if written is not None else None
    if channels is None and thought is not None and thought.channels is not None:
        channels = msgspec.structs.replace(thought.channels, call="")
    return _suffixed(
        OutputFormat(
            reasoning=None if thought is None else thought.reasoning,
            tool_call=None if written is None else written.calls,
            channels=channels,
            ignored=tuple(dict.fromkeys(tag for part in parts for tag in part.ignored)),
            marks=tuple(dict.fromkeys(mark for part in parts for mark in part.marks)),
            name="+".join(part.names[0] for part in parts),
        ),
        next((part.suffix for part in parts if part.suffix), ""),
        template + tokens,
    )


def _suffixed(plain: OutputFormat, suffix: str, shown: str) -> OutputFormat:
    """Return the format with the model's suffix added to its tags."""
    found = re.search(suffix, shown) if suffix else None
    if found is None:
        return plain

    def written(part: Any) -> Any:
        match part:
            case str():
                return (
                    f"{part[:-1]}{found[1]}>" if part.startswith("<") and part[-1] == ">" else part
                )
            case list():
                return [written(item) for item in part]
            case dict():
                return {key: written(value) for key, value in part.items()}
        return part

    return msgspec.convert(written(msgspec.to_builtins(plain)), OutputFormat)


def _chosen(kind: str, name: str | None, template: str) -> ShippedFormat | None:
    if name == "none":
        return None
    if name is not None and name not in AUTO_NAMES:
        return named_format(kind, str(name))
    fitting = [
        (sum(map(len, markers)), shipped)
        for shipped in shipped_formats(kind)
        for markers in shipped.markers
        if all(marker in template for marker in markers)
    ]
    return max(fitting, key=lambda fit: fit[0])[1] if fitting else None
