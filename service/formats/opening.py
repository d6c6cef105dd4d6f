"""Where a prompt leaves the model to go on: in text, in reasoning, in a message's header."""

from __future__ import annotations

import enum
import re

from service.formats.format import Channels, OutputFormat

_MAX_END_CHARS = 1024  # of a prompt, in which the tags of its end are looked for


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
    if _ends_with(prompt, tags.closes, output_format.ignored):
        return True
    last_close = max(prompt.rfind(tag) for tag in tags.closes)
    return continues and last_close > max(prompt.rfind(tag) for tag in tags.opens)


def _ends_with(prompt: str, tags: tuple[str, ...], ignored: tuple[str, ...]) -> bool:
    """Whether one of ``tags`` comes last, but for white space and tags that mean nothing."""
    end = prompt.rstrip()[-_MAX_END_CHARS:]
    while not end.endswith(tags):
        framing = next((tag for tag in ignored if end.endswith(tag)), None)
        if framing is None:
            return False
        end = end.removesuffix(framing).rstrip()
    return True


def _is_behind_reasoning(channels: Channels, prompt: str) -> bool:
    """Whether the message before the one that is being opened is reasoning, and closed."""
    if _in_channel(channels, prompt) is not Opening.HEADER:
        return False
    before = prompt[: max(prompt.rfind(channels.opens[0]), 0)].rstrip()
    message = before[max(before.rfind(channels.opens[0]), 0) :]
    ends = (*channels.closes, channels.between[0])
    closed = re.search("|".join(map(re.escape, ends)), message)
    if closed is None or closed.end() < len(message):
        return False
    return _in_channel(channels, message) is Opening.REASONING


def _in_channel(channels: Channels, prompt: str) -> Opening:
    rest = prompt[max(prompt.rfind(channels.opens[0]), 0) :]
    found = re.search("|".join(map(re.escape, channels.message)), rest)
    if found is None:
        return Opening.HEADER
    header = rest[: found.end()]
    is_header = re.search(channels.header, header) is not None  # of the assistant's
    return Opening.REASONING if is_header and channels.is_reasoning(header) else Opening.TEXT
