"""The description by which the one parser reads any family's output."""

from __future__ import annotations

import msgspec


class ReasoningTags(msgspec.Struct, frozen=True):
    """Text between ``open`` and ``close`` is reasoning."""

    open: str
    close: str


class ToolCallTags(msgspec.Struct, frozen=True):
    """Between ``open`` and ``close`` stands one JSON object with the tool's name under
    ``name_key`` and its arguments, an object, under one of ``arguments_keys``."""

    open: str
    close: str
    name_key: str = "name"
    arguments_keys: tuple[str, ...] = ("arguments", "parameters")


class OutputFormat(msgspec.Struct, frozen=True):
    """None where a family has no such thing. White space around the tags belongs to them."""

    reasoning: ReasoningTags | None = None
    tool_call: ToolCallTags | None = None

    @property
    def tags(self) -> tuple[str, ...]:
        """Every tag, for a tokenizer that declares some of them special."""
        pairs = (self.reasoning, self.tool_call)
        return tuple(tag for pair in pairs if pair is not None for tag in (pair.open, pair.close))


PLAIN = OutputFormat()
