"""What a prompt leaves open for the model to continue: text, reasoning, or a message header."""

from __future__ import annotations

import enum
import re

from service.formats.format import Channels, OutputFormat

_MAX_END_CHARS = 1024  # of a prompt's end, searched for tags


class Opening(enum.Enum):
    TEXT = enum.auto()
    REASONING = enum.auto()
    HEADER = enum.auto()


def opening_of(
    output_format: OutputFormat, prompt: str, *, continues: bool, begin: int = 0
) -> Opening:
    """``continues``: the prompt ends in an unfinished assistant message, which begins at
    ``begin``."""
    channels = output_format.channels
    if channels is not None:
        return _in_channel(channels, prompt)
    tags = output_format.reasoning
    if tags is None:
        return Opening.TEXT
    if continues:
        open_now = _last(tags.opens, prompt, begin) > _last(tags.closes, prompt, begin)
    else:
        open_now = prompt.rstrip().endswith(tags.opens)
    return Opening.REASONING if open_now else Opening.TEXT


def reasoning_is_over(
    output_format: OutputFormat, prompt: str, *, continues: bool, begin: int = 0
) -> bool:
    """True if the prompt ends with a closed block of reasoning, as templates write it to disable
    thinking, so that the answer comes next. ``continues`` and ``begin`` as in ``opening_of``; an
    answer that began after such a block still counts."""
    channels = output_format.channels
    if channels is not None:
        return _is_behind_reasoning(channels, prompt)
    tags = output_format.reasoning
    if tags is None:
        return False
    if _ends_with(prompt, tags.closes, output_format.ignored):
        return True
    return continues and _last(tags.closes, prompt, begin) > _last(tags.opens, prompt, begin)


def _last(tags: tuple[str, ...], prompt: str, begin: int) -> int:
    return max(prompt.rfind(tag, begin) for tag in tags)


def _ends_with(prompt: str, tags: tuple[str, ...], ignored: tuple[str, ...]) -> bool:
    """True if the prompt ends with one of ``tags``, ignoring white space and tags without
    meaning."""
    end = prompt.rstrip()[-_MAX_END_CHARS:]
    while not end.endswith(tags):
        framing = next((tag for tag in ignored if end.endswith(tag)), None)
        if framing is None:
            return False
        end = end.removesuffix(framing).rstrip()
    return True


def _is_behind_reasoning(channels: Channels, prompt: str) -> bool:
    """True if the message before the one being opened is reasoning, and closed."""
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
