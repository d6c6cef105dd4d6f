"""Output text to events, incrementally: the one parser, run by a format's description.

The same text cut anywhere gives the same events once adjacent deltas are joined. Half a tag is
held back until it is a tag or a false alarm. White space between a tag and other text belongs to
the tag; text in which no tag ever appears goes out untouched.
"""

from __future__ import annotations

import enum
import re
import uuid
from collections.abc import Callable

from service.generation.events import (
    Event,
    ReasoningDelta,
    TextDelta,
    ToolArgumentsDelta,
    ToolCallBegin,
    ToolCallEnd,
)
from service.generation.formats import OutputFormat
from service.generation.spans import TokenSpans
from service.generation.tool_body import BodyState, ToolBody

# Tokens' texts in which no tag can begin, by the tags' first characters. Tokens are few, so nearly
# every look-up succeeds, and costs a third of the search that it spares.
_PLAIN_TEXTS: dict[str, set[str]] = {}
_MOST_PLAIN_TEXTS = 100_000


class Channel(enum.Enum):
    TEXT = enum.auto()
    REASONING = enum.auto()


def new_call_id() -> str:
    return f"call_{uuid.uuid4().hex[:24]}"


class OutputParser:
    """Feed text in order, then call ``finish`` once. Both append to ``log`` what became certain.

    Feed either each token's text by ``feed_token``, or, where text is held back in between, tell
    ``spans`` of every piece and ``feed`` what comes through. ``tools``: whether tool calls are
    looked for; ``in_reasoning``: the prompt ended inside an open reasoning tag.
    """

    def __init__(
        self,
        output_format: OutputFormat,
        spans: TokenSpans,
        log: list[Event],
        *,
        tools: bool,
        in_reasoning: bool = False,
        mint_id: Callable[[], str] = new_call_id,
    ) -> None:
        self._reasoning = output_format.reasoning
        self._tool_call = output_format.tool_call if tools else None
        self._spans = spans
        self._mint_id = mint_id
        self._channel = Channel.REASONING if in_reasoning else Channel.TEXT
        self._after_tag = in_reasoning  # white space that comes now belongs to a tag
        self._held = ""
        self._offset = 0  # characters of the text that events or dropped tags account for
        self._end = 0  # tokens that events account for
        self._body: ToolBody | None = None
        self._raw_call = ""  # the tag and body so far, in case they turn out to be text
        self._begun = False
        self._closing = False  # the body is complete, its closing tag is awaited
        self.calls = 0  # tool calls begun
        self.complete_calls = 0
        self._events = log
        self._kind: type[ReasoningDelta] | type[TextDelta] = TextDelta
        self._watched: tuple[str, ...] = ()
        self._trigger: re.Pattern[str] | None = None
        self._plain: set[str] = set()
        self._watch()

    @property
    def in_reasoning(self) -> bool:
        return self._channel is Channel.REASONING

    def feed_token(self, text: str, tokens: int) -> None:
        """``text``, not empty, is what the ``tokens``-th output token completed."""
        free = not self._held and not self._after_tag and self._body is None
        if free and (text in self._plain or self._is_plain(text)):
            # Nothing before it is open, so its span needs no looking up.
            self._events.append(self._kind(text, self._end, tokens))
            self._end = tokens
            return
        self._spans.push(len(text), tokens)
        self._feed_held(text)

    def feed(self, text: str) -> None:
        if self._passes(text):
            self._emit_text(text)
        else:
            self._feed_held(text)

    def _passes(self, text: str) -> bool:
        """Whether no part of this text can belong to a tag."""
        if self._held or self._after_tag or self._body is not None:
            return False
        return self._is_plain(text)

    def _is_plain(self, text: str) -> bool:
        """Whether neither a tag nor white space before one can begin in this text."""
        trigger = self._trigger
        if trigger is not None and trigger.search(text) is not None:
            return False
        if len(self._plain) < _MOST_PLAIN_TEXTS:
            self._plain.add(text)
        return True

    def _feed_held(self, text: str) -> None:
        self._held += text
        while self._step():
            pass

    def finish(self, *, truncated: bool) -> None:
        """No more text comes. ``truncated``: the model was cut off (``length``), so that an
        unfinished call is a call all the same and not text."""
        if self._body is None:
            self._emit_text(self._take_held(len(self._held)))
        elif self._closing or self._body.state is BodyState.TAIL:
            self._drop(len(self._held))
            self._end_call()
        elif self._begun:
            self._drop(len(self._held))
        elif truncated:
            self._drop(len(self._raw_call) + len(self._held))
        else:
            self._release_call()
            self._emit_text(self._take_held(len(self._held)))

    # --- one step of the machine: True while there may be more to do -----------------------------

    def _step(self) -> bool:
        if self._body is None:
            return self._step_text()
        if self._closing:
            return self._step_closing()
        return self._step_body(self._body)

    def _step_text(self) -> bool:
        if self._after_tag:
            rest = self._held.lstrip()
            self._drop(len(self._held) - len(rest))
            if not rest:
                return False
            self._after_tag = False
        found = self._first_tag()
        if found is None:
            self._emit_text(self._take_held(len(self._held) - self._possible_tag()))
            return False
        start, tag = found
        before = self._held[:start]
        self._emit_text(self._take_held(len(before.rstrip())))
        self._enter(tag)
        return True

    def _enter(self, tag: str) -> None:
        size = self._held.index(tag) + len(tag)
        if self._tool_call is not None and tag == self._tool_call.open:
            self._raw_call = self._held[:size]
            self._held = self._held[size:]
            self._body = ToolBody(self._tool_call)
            self._begun = False
            return
        self._drop(size)
        self._after_tag = True
        opens = self._reasoning is not None and tag == self._reasoning.open
        self._channel = Channel.REASONING if opens else Channel.TEXT
        self._watch()

    def _step_body(self, body: ToolBody) -> bool:
        text, self._held = self._held, ""
        if not text:
            return False
        arguments = body.feed(text)
        self._raw_call += text
        if body.state is BodyState.INVALID:
            self._release_call()
            return bool(self._held)
        if body.state is BodyState.HEAD:
            return False
        if body.state is BodyState.COMPLETE:
            self._held = body.rest
        consumed = len(self._raw_call) - len(self._held)
        self._raw_call = ""
        self._stream_call(body, arguments, consumed)
        if body.state is BodyState.COMPLETE:
            self._closing = True
            return True
        return False

    def _stream_call(self, body: ToolBody, arguments: str, consumed: int) -> None:
        """``consumed``: characters of text that these events account for."""
        self._offset += consumed
        end = self._spans.tokens_before(self._offset)
        if not self._begun:
            self._begun = True
            self._events.append(
                ToolCallBegin(self.calls, self._mint_id(), body.name, self._end, end)
            )
            self.calls += 1
            self._end = end
        if arguments:
            self._events.append(ToolArgumentsDelta(self.calls - 1, arguments, self._end, end))
            self._end = end

    def _step_closing(self) -> bool:
        """After a complete body: its closing tag, or anything else if the model forgot it."""
        assert self._tool_call is not None
        rest = self._held.lstrip()
        self._drop(len(self._held) - len(rest))
        close = self._tool_call.close
        if rest.startswith(close):
            self._drop(len(close))
        elif close.startswith(rest):
            return False
        self._end_call()
        return bool(self._held)

    def _end_call(self) -> None:
        assert self._body is not None
        if self._body.valid_arguments:
            end = self._spans.tokens_before(self._offset)
            self._events.append(ToolCallEnd(self.calls - 1, self._end, end))
            self._end = end
            self.complete_calls += 1
        self._body = None
        self._closing = False
        self._after_tag = True

    def _release_call(self) -> None:
        """It was no call: what looked like one is text. A later tag in it still counts."""
        raw, self._raw_call = self._raw_call, ""
        assert self._tool_call is not None
        self._body = None
        self._held = raw + self._held
        opened = self._held.index(self._tool_call.open) + len(self._tool_call.open)
        self._emit_text(self._take_held(opened))

    # --- text and its offsets --------------------------------------------------------------------

    def _watch(self) -> None:
        """Which tags mean something in the present channel, and what its text is."""
        self._kind = ReasoningDelta if self._channel is Channel.REASONING else TextDelta
        tags: list[str] = []
        if self._reasoning is not None:
            in_reasoning = self._channel is Channel.REASONING
            tags.append(self._reasoning.close if in_reasoning else self._reasoning.open)
        if self._tool_call is not None:
            tags.append(self._tool_call.open)
        self._watched = tuple(tags)
        starts = "".join(sorted({re.escape(tag[0]) for tag in tags}))
        self._trigger = re.compile(rf"[{starts}]|\s\Z") if tags else None
        self._plain = _PLAIN_TEXTS.setdefault(starts if tags else "", set())

    def _first_tag(self) -> tuple[int, str] | None:
        found = [(start, tag) for tag in self._watched if (start := self._held.find(tag)) >= 0]
        return min(found, default=None)

    def _possible_tag(self) -> int:
        """Length of the longest end of the held text that may turn out to begin a tag, with the
        white space before it."""
        if not self._watched:
            return 0
        held = self._held
        longest = max(map(len, self._watched)) - 1
        partial = 0
        for length in range(min(longest, len(held)), 0, -1):
            if any(tag.startswith(held[-length:]) for tag in self._watched):
                partial = length
                break
        return len(held) - len(held[: len(held) - partial].rstrip())

    def _take_held(self, size: int) -> str:
        text, self._held = self._held[:size], self._held[size:]
        return text

    def _drop(self, size: int) -> None:
        self._held = self._held[size:]
        self._offset += size

    def _emit_text(self, text: str) -> None:
        if not text:
            return
        self._offset += len(text)
        end = self._spans.tokens_before(self._offset)
        self._events.append(self._kind(text, self._end, end))
        self._end = end
