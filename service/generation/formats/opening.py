"""Where a prompt leaves the model to go on: in text, in reasoning, in a message's header."""

from __future__ import annotations

import enum
import re

from service.generation.formats.format import Channels, OutputFormat


class Opening(enum.Enum):
    TEXT = enum.auto()
    REASONING = enum.auto()
    HEADER = enum.auto()


def opening_of(output_format: OutputFormat, prompt: str, *, continues: bool) -> Opening:
    """``continues``: the prompt ends in an unfinished message of the assistant's."""
    channels = output_format.channels
    if channels is not None:
        return _in_channel(channels, prompt)
    tags = output_format.reasoning
    if tags is None:
        return Opening.TEXT
    if continues:
        last_open = max(prompt.rfind(tag) for tag in tags.opens)
        last_close = max(prompt.rfind(tag) for tag in tags.closes)
        open_now = last_open > last_close
    else:
        open_now = prompt.rstrip().endswith(tags.opens)
    return Opening.REASONING if open_now else Opening.TEXT


def reasoning_is_over(output_format: OutputFormat, prompt: str, *, continues: bool) -> bool:
    """Whether the prompt ends in a block of reasoning that is closed, as templates write it that
    switch thinking off: what comes next is the answer. ``continues`` as in ``opening_of``; an
    answer that has begun behind a block is behind it still."""
    channels = output_format.channels
    if channels is not None:
        return _is_behind_reasoning(channels, prompt)
    tags = output_format.reasoning
    if tags is None:
        return False
    if prompt.rstrip().endswith(tags.closes):
        return True
    last_close = max(prompt.rfind(tag) for tag in tags.closes)
    return continues and last_close > max(prompt.rfind(tag) for tag in tags.opens)


def _is_behind_reasoning(channels: Channels, prompt: str) -> bool:
    """Whether the message before the one that is being opened is reasoning, and closed."""
    before = prompt[: max(prompt.rfind(channels.opens[0]), 0)].rstrip()
    if _in_channel(channels, prompt) is not Opening.HEADER or not before.endswith(channels.closes):
        return False
    return _in_channel(channels, before) is Opening.REASONING


def _in_channel(channels: Channels, prompt: str) -> Opening:
    rest = prompt[max(prompt.rfind(channels.opens[0]), 0) :]
    found = re.search("|".join(map(re.escape, channels.message)), rest)
    if found is None:
        return Opening.HEADER
    return Opening.REASONING if channels.is_reasoning(rest[: found.end()]) else Opening.TEXT
