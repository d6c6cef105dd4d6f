"""Cuts the event log of a Messages answer into content blocks."""

from __future__ import annotations

from dataclasses import dataclass, field

from service.output.events import (
    Event,
    Finished,
    ReasoningDelta,
    TextDelta,
    ToolArgumentsDelta,
    ToolCallBegin,
    ToolCallEnd,
)
from service.wire.messages.partial_json import SoundJson


@dataclass(slots=True)
class Block:
    """A growing content block. ``kind``: text, thinking or tool_use; ``text``: its text, its
    thinking, or the valid part of its input's JSON so far, made of ``pieces``."""

    kind: str
    call: ToolCallBegin | None = None
    pieces: list[str] = field(default_factory=list)
    complete: bool = False
    closed: bool = False  # further text belongs to another block

    @property
    def text(self) -> str:
        return "".join(self.pieces)

    @property
    def is_cut(self) -> bool:
        """True for a call whose input lacks members; as long as it grows, too."""
        return self.kind == "tool_use" and not self.complete


@dataclass(frozen=True, slots=True)
class BlockStep:
    """``ended`` ends, ``begun`` begins, and ``text`` is appended to the block that is open then."""

    ended: Block | None = None
    begun: Block | None = None
    text: str = ""


class BlockCutter:
    """Assigns each event of a log to a block. White space alone does not form a text block: it is
    held until text follows, and dropped if none does; nor does a text block after another block
    begin with it.

    A call is held until a member of its input is complete: only then can a client certainly parse
    what follows. A call whose arguments become malformed before that is text. ``has_cut_call``: a
    block's input lacks members, because its call ended, or was cut, within them.
    """

    def __init__(self) -> None:
        self.block: Block | None = None
        self.has_cut_call = False
        self._space = ""
        self._waiting: Block | None = None  # a call
        self._arguments: list[str] = []  # of that call, as the model wrote them
        self._input = SoundJson()

    @property
    def is_in_text(self) -> bool:
        """Text that comes next is appended to the open text block as it is."""
        block = self.block
        if self._waiting is not None or block is None:
            return False
        return block.kind == "text" and not block.closed

    def take(self, event: Event) -> list[BlockStep]:
        match event:
            case TextDelta(text):
                return self._settle() + self._said("text", self._text(text))
            case ReasoningDelta(text):
                return self._settle() + self._said("thinking", text)
            case ToolCallBegin():
                steps = self._settle()
                self._waiting = Block("tool_use", call=event)
                self._arguments, self._input = [], SoundJson()
                return steps
            case ToolArgumentsDelta(text=text):
                return self._argued(text)
            case ToolCallEnd():
                complete = self._input.whole
                steps = self._open_call() if complete else []
                if self.block is not None and self.block.kind == "tool_use":
                    self.block.complete = complete
                return steps
            case Finished(reason=reason):
                # A call that was cut off still counts as a call.
                steps = self._open_call() if reason == "length" else self._settle()
                return [*steps, BlockStep(ended=self._change(None))]

    def _argued(self, text: str) -> list[BlockStep]:
        sound = self._input.push(text)
        if self._waiting is None:
            assert self.block is not None
            self.block.pieces.append(sound)
            return [BlockStep(text=sound)]
        self._arguments.append(text)
        if self._input.has_member:
            return self._open_call()
        return []

    def _open_call(self) -> list[BlockStep]:
        """Begin the block of the held call."""
        call, self._waiting = self._waiting, None
        if call is None:
            return []
        call.pieces = [self._input.text]
        return [BlockStep(self._change(call), call, call.text)]

    def _settle(self) -> list[BlockStep]:
        """Turn a held call into text."""
        call, self._waiting = self._waiting, None
        if call is None or call.call is None:
            return []
        written = f"{call.call.name} {''.join(self._arguments)}"
        block = Block("text", pieces=[written], closed=True)
        return [BlockStep(self._change(block), block, block.text)]

    def _text(self, text: str) -> str:
        if self.is_in_text:
            return text
        held = self._space + text
        if held.strip():
            self._space = ""
            return held if self.block is None else held.lstrip()
        self._space = held
        return ""

    def _said(self, kind: str, text: str) -> list[BlockStep]:
        if not text:
            return []
        ended = begun = None
        if self.block is None or self.block.kind != kind or self.block.closed:
            begun = Block(kind)
            ended = self._change(begun)
        assert self.block is not None
        self.block.pieces.append(text)
        return [BlockStep(ended, begun, text)]

    def _change(self, block: Block | None) -> Block | None:
        ended, self.block = self.block, block
        self.has_cut_call |= ended is not None and ended.is_cut
        self._space = ""
        return ended


def blocks_of(events: list[Event]) -> list[Block]:
    """Return the content blocks of a finished choice."""
    cutter = BlockCutter()
    steps = [step for event in events for step in cutter.take(event)]
    return [step.begun for step in steps if step.begun is not None]


_STOP_REASONS = {"stop": "end_turn", "length": "max_tokens", "tool_calls": "tool_use"}


def stop_reason(finished: Finished, *, has_cut_call: bool) -> tuple[str, str | None]:
    """Return ``stop_reason`` and ``stop_sequence``. A call without all of its input must not run,
    and ``max_tokens`` is the reason with which clients expect one."""
    if isinstance(finished.matched, str):
        return "stop_sequence", finished.matched
    if has_cut_call:
        return "max_tokens", None
    return _STOP_REASONS[finished.reason], None
