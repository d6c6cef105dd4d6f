"""Encodes the event log as gRPC messages: the common beginning and end, and the two streams.

Each is an ``AnswerStream`` of serialized messages, several if one would grow too large.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from engine.messages import TokenLogprobs
from service.checkpoint.vocabulary import Vocabulary
from service.errors import QuireError
from service.generation.choice import Choice
from service.generation.request import Generation
from service.output.events import (
    Event,
    Finished,
    ReasoningDelta,
    TextDelta,
    ToolArgumentsDelta,
    ToolCallBegin,
    ToolCallEnd,
)
from service.output.log import shown_tokens
from service.proto.quire.v1 import quire_pb2 as pb
from service.wire.logprobs import MIN_LOGPROB
from service.wire.usage import usage_of

# Clients accept 4 MiB by default.
_MESSAGE_BYTES = 256 * 1024
_LOGPROBS_PER_EVENT = 128


def _packed(response: Callable[..., Any], events: Iterable[Any]) -> Iterator[list[bytes]]:
    """Pack ``events`` into as few messages as possible, each created lazily; a single event is
    never split."""
    held: list[Any] = []
    size = 0
    for event in events:
        grown = size + event.ByteSize()
        if held and grown > _MESSAGE_BYTES:
            yield [response(events=held).SerializeToString()]
            held, grown = [], grown - size
        held.append(event)
        size = grown
    if held:
        yield [response(events=held).SerializeToString()]


def _started(generation: Generation, *, model: str, created: int, tier: str | None) -> pb.Started:
    return pb.Started(
        request_id=generation.request.request_id,
        model=model,
        created=created,
        prompt_tokens=generation.prompt_tokens,
        service_tier=tier,
    )


def _finished(event: Finished) -> pb.Finished:
    result = pb.Finished(reason=event.reason, tokens=event.tokens)
    if isinstance(event.matched, str):
        result.stop_string = event.matched
    elif event.matched is not None:
        result.stop_token_id = event.matched
    return result


def _completed(generation: Generation) -> pb.Completed:
    usage = usage_of(generation)
    return pb.Completed(
        usage=pb.Usage(
            prompt_tokens=usage.prompt_tokens,
            completion_tokens=usage.completion_tokens,
            total_tokens=usage.total_tokens,
            cached_tokens=usage.prompt_tokens_details.cached_tokens,
            reasoning_tokens=usage.completion_tokens_details.reasoning_tokens,
        )
    )


def _logprobs(
    vocabulary: Vocabulary, tokens: Iterable[int], logprobs: Iterable[TokenLogprobs], top: int
) -> list[pb.TokenLogprob]:
    return [
        pb.TokenLogprob(
            token_id=token,
            token=vocabulary.bytes_of(token),
            logprob=max(entry.logprob, MIN_LOGPROB),
            top=[
                pb.TopLogprob(
                    token_id=other,
                    token=vocabulary.bytes_of(other),
                    logprob=max(logprob, MIN_LOGPROB),
                )
                for other, logprob in entry.pairs(top)
            ],
        )
        for token, entry in zip(tokens, logprobs, strict=True)
    ]


class _Events:
    """The common part of both streams. ``logprobs``: how many likely alternatives of each token are
    reported; None: no logprobs. ``tier``: the one used, if it is to be reported. ``failure``: the
    error of a failed stream."""

    _response: Callable[..., Any]
    _event: Callable[..., Any]

    def __init__(
        self,
        generation: Generation,
        vocabulary: Vocabulary,
        *,
        model: str,
        created: int,
        logprobs: int | None,
        tier: str | None = None,
    ) -> None:
        self.failure: QuireError | None = None
        self._generation = generation
        self._vocabulary = vocabulary
        self._model = model
        self._created = created
        self._top = logprobs
        self._tier = tier
        self._read = [0] * len(generation.choices)  # events encoded, per choice
        self._sent = [0] * len(generation.choices)  # tokens, or their logprobs, sent so far

    def begin(self) -> list[bytes]:
        return self._one(
            started=_started(
                self._generation, model=self._model, created=self._created, tier=self._tier
            )
        )

    def text_frame(self) -> None:
        """Return None: pieces are lists of messages."""

    def passed(self, choice: Choice) -> None:
        """Do nothing: there is no frame."""

    def advance(self, choices: list[Choice]) -> Iterator[list[bytes]]:
        """Yield everything added to these choices since the last call."""
        return _packed(self._response, self._fresh_events(choices))

    def end(self) -> list[bytes]:
        return self._one(completed=_completed(self._generation))

    def fail(self, error: QuireError) -> list[bytes]:
        self.failure = error
        return []

    def _one(self, **content: Any) -> list[bytes]:
        return [self._response(events=[self._event(**content)]).SerializeToString()]

    def _fresh_events(self, choices: list[Choice]) -> Iterator[Any]:
        raise NotImplementedError


class ChatEvents(_Events):
    """Streams the event log as it is."""

    _response = pb.ChatResponse
    _event = pb.ChatEvent

    def _fresh_events(self, choices: list[Choice]) -> Iterator[pb.ChatEvent]:
        for choice in choices:
            read, log = self._read[choice.index], choice.events
            self._read[choice.index] = len(log)
            for event in log[read:]:
                if self._top is not None and isinstance(event, Finished):
                    yield from self._logprob_events(choice, shown_tokens(log), self._top)
                yield _chat_event(choice.index, event)
                if self._top is not None and not isinstance(event, Finished):
                    yield from self._logprob_events(choice, event.end, self._top)

    def _logprob_events(self, choice: Choice, end: int, top: int) -> Iterator[pb.ChatEvent]:
        begin, self._sent[choice.index] = self._sent[choice.index], end
        for start in range(begin, end, _LOGPROBS_PER_EVENT):
            stop = min(end, start + _LOGPROBS_PER_EVENT)
            tokens = choice.tokens_between(start, stop)
            entries = _logprobs(self._vocabulary, tokens, choice.logprobs[start:stop], top)
            sent = pb.Logprobs(start=start, tokens=entries)
            yield pb.ChatEvent(choice=choice.index, logprobs=sent)


def _chat_event(choice: int, event: Event) -> pb.ChatEvent:
    match event:
        case TextDelta(text, start, end):
            text_delta = pb.TextDelta(text=text, start=start, end=end)
            return pb.ChatEvent(choice=choice, text_delta=text_delta)
        case ReasoningDelta(text, start, end):
            reasoning_delta = pb.ReasoningDelta(text=text, start=start, end=end)
            return pb.ChatEvent(choice=choice, reasoning_delta=reasoning_delta)
        case ToolCallBegin(index, call_id, name, start, end):
            begin = pb.ToolCallBegin(index=index, id=call_id, name=name, start=start, end=end)
            return pb.ChatEvent(choice=choice, tool_call_begin=begin)
        case ToolArgumentsDelta(index, text, start, end):
            arguments = pb.ToolArgumentsDelta(index=index, text=text, start=start, end=end)
            return pb.ChatEvent(choice=choice, tool_arguments_delta=arguments)
        case ToolCallEnd(index, start, end):
            call_end = pb.ToolCallEnd(index=index, start=start, end=end)
            return pb.ChatEvent(choice=choice, tool_call_end=call_end)
        case Finished():
            return pb.ChatEvent(choice=choice, finished=_finished(event))


class GenerateEvents(_Events):
    """Streams tokens at once, with the text that is certain by then."""

    _response = pb.GenerateResponse
    _event = pb.GenerateEvent

    def _fresh_events(self, choices: list[Choice]) -> Iterator[pb.GenerateEvent]:
        for choice in choices:
            read, log = self._read[choice.index], choice.events
            self._read[choice.index] = len(log)
            text = "".join([event.text for event in log[read:] if isinstance(event, TextDelta)])
            yield from self._token_events(choice, text)
            if choice.finished is not None and read < len(log):
                finished = _finished(choice.finished)
                yield pb.GenerateEvent(choice=choice.index, finished=finished)

    def _token_events(self, choice: Choice, text: str) -> Iterator[pb.GenerateEvent]:
        """Yield new tokens; the text is sent with the last of them, to which it may belong."""
        begin, end = self._sent[choice.index], choice.count
        if begin == end and not text:
            return
        self._sent[choice.index] = end
        step = max(1, end - begin) if self._top is None else _LOGPROBS_PER_EVENT
        starts = range(begin, max(end, begin + 1), step)
        for start in starts:
            stop = min(end, start + step)
            token_ids = choice.tokens_between(start, stop)
            tokens = pb.Tokens(token_ids=token_ids)
            if self._top is not None:
                tokens.logprobs.extend(
                    _logprobs(self._vocabulary, token_ids, choice.logprobs[start:stop], self._top)
                )
            if start == starts[-1]:
                tokens.text = text
            yield pb.GenerateEvent(choice=choice.index, tokens=tokens)
