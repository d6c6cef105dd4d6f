"""The formats that come with Quire: one file for each way of writing calls, or reasoning.

A family that writes in a new way is a new file; its examples are its tests. The names are those
that operators know from other servers.
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

# What the checkpoint declares, or else what its chat template shows. The later names are those that
# other servers have for a checkpoint's own ``response_template``.
AUTO_NAMES = ("auto", "hf", "response_template")

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

    Formats of reasoning are detected by their own tags. ``reasoning_names``: what the reasoning of
    a format that tells of both is called. ``suffix``: a regex with one group, for what a model may
    write at the end of each of its tags, as its template or its tokens show.
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
    """All of a kind: ``tool_calls`` or ``reasoning``. Some formats of calls tell of reasoning
    too."""
    files = sorted((_FOLDER / kind).glob("*.toml"))
    return tuple(msgspec.toml.decode(file.read_bytes(), type=ShippedFormat) for file in files)


@functools.cache
def format_names(kind: str) -> dict[str, ShippedFormat]:
    """Every format of a kind by each of its names."""
    named = {name: shipped for shipped in shipped_formats(kind) for name in shipped.names}
    if kind == "reasoning":
        for shipped in shipped_formats("tool_calls"):
            named |= dict.fromkeys(shipped.reasoning_names, shipped)
    return named


def named_format(kind: str, name: str) -> ShippedFormat:
    """Hyphens and underscores are the same. Raises ValueError for a name that there is not."""
    names = format_names(kind)
    shipped = names.get(name) or names.get(name.replace("-", "_"))
    if shipped is None:
        raise ValueError(f"there is no format {name!r}; there are {', '.join(sorted(names))}")
    return shipped


def detect_format(
    template: str, *, calls: str | None = None, reasoning: str | None = None, tokens: str = ""
) -> OutputFormat:
    """The format of the family whose chat template this is: its source, and what it writes.
    ``calls`` and ``reasoning`` name one to take instead, or are ``none``. ``tokens``: the texts
    of the vocabulary, one behind the other. Raises ValueError for an unknown name."""
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
    """The same format, its tags with the suffix that the model writes them with."""
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
