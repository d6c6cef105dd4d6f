"""``POST /v1/messages``: the complete message and the stream's events, from one event log.

The log is split into content blocks by one function; a complete answer lists them, a stream sends
their pieces as they come.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from service.errors import QuireError
from service.generation.choice import Choice
from service.generation.request import Generation
from service.output.events import Event, Finished
from service.wire.error_shapes import anthropic_type
from service.wire.messages.block_cutter import Block, BlockCutter, blocks_of, stop_reason
from service.wire.messages.partial_json import read_cut_object
from service.wire.messages.signatures import Signer
from service.wire.timings import Timings, timings_of

_json = msgspec.json.Encoder().encode


class TextContent(msgspec.Struct, frozen=True, tag_field="type", tag="text"):
    text: str


class ThinkingContent(msgspec.Struct, frozen=True, tag_field="type", tag="thinking"):
    thinking: str
    signature: str


class ToolUseContent(msgspec.Struct, frozen=True, tag_field="type", tag="tool_use"):
    id: str
    name: str
    input: Any  # an object


AnswerContent = TextContent | ThinkingContent | ToolUseContent


class OutputDetails(msgspec.Struct, frozen=True):
    thinking_tokens: int = 0


class MessagesUsage(msgspec.Struct, frozen=True):
    """Prompt tokens found in the prefix cache count as cache reads, those newly written to it as
    cache creation; neither count as input tokens. Those of thinking are among the output tokens."""

    input_tokens: int
    cache_creation_input_tokens: int
    cache_read_input_tokens: int
    output_tokens: int
    output_tokens_details: OutputDetails = OutputDetails()
    service_tier: str | msgspec.UnsetType = msgspec.UNSET


class AnsweredMessage(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    type: str = "message"
    role: str = "assistant"
    model: str
    content: list[AnswerContent]
    stop_reason: str | None
    stop_sequence: str | None
    usage: MessagesUsage
    timings: Timings | msgspec.UnsetType = msgspec.UNSET


class TokenCount(msgspec.Struct, frozen=True):
    input_tokens: int


PING = b'event: ping\ndata: {"type":"ping"}\n\n'


class MessagesAnswer:
    """Encodes one request's answer. ``shows_thinking``: thinking is sent as text (``display:
    omitted`` leaves it empty, with its signature). ``only_prompt``: the output is neither shown nor
    counted. ``cache_block``: tokens in a block of the prefix cache, if usage is to report cache
    writes; else 0. ``tier``: the one used, if usage is to report it."""

    def __init__(
        self,
        generation: Generation,
        signer: Signer,
        *,
        message_id: str,
        model: str,
        shows_thinking: bool = True,
        shows_timings: bool = False,
        only_prompt: bool = False,
        cache_block: int = 0,
        tier: str | None = None,
    ) -> None:
        self._tier = tier
        self.generation = generation
        self.shows_timings = shows_timings
        self.only_prompt = only_prompt
        self._cache_block = cache_block
        self.signer = signer
        self.shows_thinking = shows_thinking
        self._id = message_id
        self._model = model

    def follow(self, choices: list[Choice]) -> None:
        """Do nothing: a complete message is encoded at its end."""

    def whole(self) -> Iterable[bytes]:
        """Return the finished message."""
        choice = self.generation.choices[0]
        finished = choice.finished
        assert finished is not None
        blocks = [] if self.only_prompt else blocks_of(choice.events)
        content = [self._content(block) for block in blocks]
        has_cut_call = any(block.is_cut for block in blocks)
        reason, sequence = self.stop_reason(finished, has_cut_call=has_cut_call)
        message = self.message(content, reason, sequence, self.usage())
        if self.shows_timings:
            message = msgspec.structs.replace(message, timings=timings_of(self.generation))
        return (_json(message),)

    def message(
        self,
        content: list[AnswerContent],
        reason: str | None,
        sequence: str | None,
        usage: MessagesUsage,
    ) -> AnsweredMessage:
        if self._tier is not None:
            usage = msgspec.structs.replace(usage, service_tier=self._tier)
        return AnsweredMessage(
            id=self._id,
            model=self._model,
            content=content,
            stop_reason=reason,
            stop_sequence=sequence,
            usage=usage,
        )

    def stop_reason(self, finished: Finished, *, has_cut_call: bool) -> tuple[str, str | None]:
        """Return ``stop_reason`` and ``stop_sequence``."""
        if self.only_prompt:
            return "max_tokens", None
        return stop_reason(finished, has_cut_call=has_cut_call)

    def stream(self) -> MessagesStream:
        return MessagesStream(self)

    def _content(self, block: Block) -> AnswerContent:
        if block.kind == "text":
            return TextContent(block.text)
        if block.kind == "thinking":
            return ThinkingContent(block.text if self.shows_thinking else "", self.sign(block))
        assert block.call is not None
        text = block.text
        arguments: Any = msgspec.Raw(text.encode()) if block.complete else read_cut_object(text)
        return ToolUseContent(block.call.id, block.call.name, arguments)

    def sign(self, block: Block) -> str:
        """Sign what the client sees, because that is what it can send back."""
        return self.signer.sign(block.text if self.shows_thinking else "")

    def usage(self) -> MessagesUsage:
        generation = self.generation
        prompt, read = generation.prompt_tokens, generation.cached_tokens
        # As many as the same prompt would read: its last token is always computed.
        readable = prompt - 1
        whole_blocks = readable - readable % self._cache_block if self._cache_block else 0
        written = max(0, whole_blocks - read)
        usage = MessagesUsage(prompt - read - written, written, read, output_tokens=0)
        if self.only_prompt:
            return usage
        return msgspec.structs.replace(
            usage,
            output_tokens=generation.output_tokens,
            output_tokens_details=OutputDetails(generation.reasoning_tokens),
        )


_DELTA_END = b"}}\n\n"


class MessagesStream:
    """Encodes one stream as SSE bytes."""

    def __init__(self, answer: MessagesAnswer) -> None:
        self._answer = answer
        self._choice = answer.generation.choices[0]
        self._cutter = BlockCutter()
        self._read = 0
        self._index = -1  # of the current block
        self._prefix = b""  # of the current block's deltas, up to the text
        self._started = False

    def begin(self) -> bytes:
        """Send nothing yet: the prefix cache hits are known only once the engine begins."""
        return b""

    def text_frame(self) -> tuple[bytes, bytes] | None:
        return (self._prefix, _DELTA_END) if self._cutter.is_in_text else None

    def passed(self, choice: Choice) -> None:
        """Skip text that was sent within its frame: a text block's text is not needed again."""
        self._read = len(choice.events)

    def advance(self, choices: list[Choice]) -> Iterable[bytes]:
        """Return events for everything added to the log since the last call."""
        events, read = self._choice.events, self._read
        pieces = [] if self._started else [self._start()]
        if read < len(events):
            self._read = len(events)
            if not self._answer.only_prompt:
                pieces += [self._encode(event) for event in events[read:]]
        return (b"".join(pieces),)

    def end(self) -> bytes:
        finished = self._choice.finished
        assert finished is not None
        reason, sequence = self._answer.stop_reason(
            finished, has_cut_call=self._cutter.has_cut_call
        )
        delta: dict[str, Any] = {
            "type": "message_delta",
            "delta": {"stop_reason": reason, "stop_sequence": sequence},
            "usage": self._answer.usage(),
        }
        if self._answer.shows_timings:
            delta["timings"] = timings_of(self._answer.generation)
        return _event(b"message_delta", _json(delta)) + _event(
            b"message_stop", b'{"type":"message_stop"}'
        )

    def fail(self, error: QuireError) -> bytes:
        body = {
            "type": "error",
            "error": {"type": anthropic_type(error), "message": error.message},
        }
        return _event(b"error", _json(body))

    def _start(self) -> bytes:
        self._started = True
        usage = msgspec.structs.replace(
            self._answer.usage(), output_tokens=0, output_tokens_details=OutputDetails()
        )
        message = self._answer.message([], None, None, usage)
        start = _event(b"message_start", _json({"type": "message_start", "message": message}))
        return start + PING

    def _encode(self, event: Event) -> bytes:
        out = b""
        for step in self._cutter.take(event):
            if step.ended is not None:
                out += self._stop(step.ended)
            if step.begun is not None:
                out += self._open(step.begun)
            if step.text and self._prefix:
                out += self._prefix + _json(step.text) + _DELTA_END
        return out

    def _open(self, block: Block) -> bytes:
        self._index += 1
        delta, field = {
            "text": (b"text_delta", b"text"),
            "thinking": (b"thinking_delta", b"thinking"),
            "tool_use": (b"input_json_delta", b"partial_json"),
        }[block.kind]
        self._prefix = (
            b'event: content_block_delta\ndata: {"type":"content_block_delta","index":%d,'
            b'"delta":{"type":"%b","%b":' % (self._index, delta, field)
        )
        shown: dict[str, Any]
        if block.kind == "text":
            shown = {"type": "text", "text": ""}
        elif block.kind == "thinking":
            shown = {"type": "thinking", "thinking": "", "signature": ""}
            if not self._answer.shows_thinking:
                self._prefix = b""
        else:
            assert block.call is not None
            call = block.call
            shown = {"type": "tool_use", "id": call.id, "name": call.name, "input": {}}
        start = {"type": "content_block_start", "index": self._index, "content_block": shown}
        return _event(b"content_block_start", _json(start))

    def _stop(self, block: Block) -> bytes:
        out = b""
        if block.kind == "thinking":
            delta = {"type": "signature_delta", "signature": self._answer.sign(block)}
            piece = {"type": "content_block_delta", "index": self._index, "delta": delta}
            out = _event(b"content_block_delta", _json(piece))
        return out + _event(
            b"content_block_stop", b'{"type":"content_block_stop","index":%d}' % self._index
        )


def _event(name: bytes, data: bytes) -> bytes:
    return b"event: %b\ndata: %b\n\n" % (name, data)
