"""The answer to a Responses request: complete, streamed, or in its current state.

``ResponseStream`` is the only encoder. A complete answer is the same stream with its events
discarded; the stored object is the one in the last event.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import msgspec

from service.checkpoint.vocabulary import Vocabulary
from service.errors import OperatorCancelError, QuireError
from service.generation.choice import Choice
from service.generation.request import Generation
from service.output.events import Finished
from service.wire.logprobs import logprob_writer
from service.wire.responses.compaction import CompactionItem
from service.wire.responses.items import ItemBuilder
from service.wire.responses.request import ResponsesRequest
from service.wire.responses.response_object import (
    Echoed,
    IncompleteDetails,
    InputTokensDetails,
    OutputTokensDetails,
    ResponseEncoder,
    ResponseError,
    ResponseStatus,
    ResponseUsage,
    echoed_fields,
)
from service.wire.responses.tools import Toolbox
from service.wire.usage import usage_of


class ResponseEnding(msgspec.Struct, frozen=True):
    """How a response ended, to be stored."""

    status: ResponseStatus
    body: bytes  # the ResponseObject
    output: list[bytes]  # its items


class ResponseAnswer:
    """One request's answer. ``on_end`` receives its ending. If ``stored`` becomes untrue, an ending
    that was not sent yet is encoded again. ``compacts``: its text is a summary, sent as one sealed
    item; that requires ``seal``. ``tier``: the one used.

    Neither the stream nor its parts refer to this object, so that no answer waits for the garbage
    collector."""

    def __init__(
        self,
        request: ResponsesRequest,
        generation: Generation,
        vocabulary: Vocabulary,
        toolbox: Toolbox,
        *,
        response_id: str,
        created: int,
        model: str,
        ignored: list[str],
        tier: str = "default",
        echoed: Echoed | None = None,
        stored: bool = True,
        seal: Callable[[str], str] | None = None,
        compacts: bool = False,
        on_end: Callable[[ResponseEnding], None] | None = None,
    ) -> None:
        self.id = response_id
        self._generation = generation
        self._encoder = ResponseEncoder(
            request,
            generation.request.params,
            response_id=response_id,
            created=created,
            model=model,
            ignored=ignored,
            tier=tier,
            echoed=echoed or echoed_fields(request),
            stored=stored,
            generation=generation,
        )
        items: ItemBuilder | CompactionItem
        if compacts and seal is not None:
            items = CompactionItem(response_id.removeprefix("resp_"), seal)
        else:
            items = _item_builder(request, response_id, vocabulary, toolbox, seal)
        self._stream = ResponseStream(
            self._encoder, generation, items, compacts=compacts, on_end=on_end
        )

    @property
    def stored(self) -> bool:
        return self._encoder.stored

    @stored.setter
    def stored(self, stored: bool) -> None:
        self._encoder.stored = stored

    def follow(self, choices: list[Choice]) -> None:
        """Process new events; a complete answer is the same stream, discarded."""
        self._stream.advance(choices)

    def whole(self) -> Iterable[bytes]:
        """Return the answer once its choice has finished."""
        stream = self._stream
        stream.advance(self._generation.choices)
        stream.end()
        return (stream.body,)

    def stream(self) -> ResponseStream:
        """Return the one stream of this answer."""
        return self._stream


def _item_builder(
    request: ResponsesRequest,
    response_id: str,
    vocabulary: Vocabulary,
    toolbox: Toolbox,
    seal: Callable[[str], str] | None,
) -> ItemBuilder:
    return ItemBuilder(
        response_id.removeprefix("resp_"),
        toolbox,
        reasoning=request.include_reasoning,
        summary=request.summarizes_reasoning,
        seal=seal if request.seals_reasoning else None,
        logprobs=_logprobs_of(request, vocabulary) if request.shows_logprobs else None,
    )


def _logprobs_of(
    request: ResponsesRequest, vocabulary: Vocabulary
) -> Callable[[Choice, int, int], list[bytes]]:
    writer, top = logprob_writer(vocabulary), request.top_logprobs or 0

    def encoded(choice: Choice, start: int, end: int) -> list[bytes]:
        tokens, logprobs = choice.tokens_between(start, end), choice.logprobs[start:end]
        entries = writer.chat_entries(tokens, logprobs, top)
        return [entry for piece in entries for entry in piece]

    return encoded


class ResponseStream:
    """An AnswerStream; ``body`` is the response in its current state, and final after the end.

    Calling ``end`` or ``fail`` after ``end`` replaces its event, which must not have been sent.
    """

    def __init__(
        self,
        encoder: ResponseEncoder,
        generation: Generation,
        items: ItemBuilder | CompactionItem,
        *,
        compacts: bool,
        on_end: Callable[[ResponseEnding], None] | None,
    ) -> None:
        self._encoder = encoder
        self._compacts = compacts
        self._generation = generation
        self._choice = generation.choices[0]
        self._items = items
        self._writer = items.writer
        self._on_end = on_end
        self._read = 0
        self._final: bytes | None = None
        self.cancelled = False  # set before the generation is made to fail

    @property
    def body(self) -> bytes:
        return self.progress if self._final is None else self._final

    @property
    def progress(self) -> bytes:
        """The response with what it has so far, as one that has not ended."""
        return self._encoder.object("in_progress", self._items.current())

    def begin(self) -> bytes:
        response = b'"response":' + self._encoder.object("in_progress", [])
        self._writer.write("response.created", response)
        self._writer.write("response.in_progress", response)
        return self._writer.take()

    def text_frame(self) -> None:
        """Return None: what surrounds a text depends on what was sent before."""

    def passed(self, choice: Choice) -> None:
        """Do nothing: there is no frame."""

    def advance(self, choices: list[Choice]) -> Iterable[bytes]:
        choice, read = self._choice, self._read
        events = choice.events
        if read == len(events):
            return ()
        self._read = len(events)
        feed = self._items.feed
        for event in events[read:]:
            feed(choice, event)
        return (self._writer.take(),)

    def end(self) -> bytes:
        finished = self._choice.finished
        assert finished is not None
        incomplete = self._incomplete(finished)
        status: ResponseStatus = "completed" if incomplete is None else "incomplete"
        return self._last(
            status,
            self._encoder.object(
                status, self._items.done, incomplete=incomplete, usage=self._usage()
            ),
        )

    def fail(self, error: QuireError) -> bytes:
        """End open items as incomplete: the final object holds what was streamed."""
        self._items.abandon()
        is_cancelled = self.cancelled or isinstance(error, OperatorCancelError)
        status: ResponseStatus = "cancelled" if is_cancelled else "failed"
        cause = None if self.cancelled else ResponseError("server_error", error.message)
        body = self._encoder.object(status, self._items.done, error=cause, usage=self._usage())
        return self._last(status, body)

    def abandon(self) -> None:
        """End the response as incomplete with what it has so far, because its client has left."""
        self._items.abandon()
        body = self._encoder.object(
            "incomplete",
            self._items.done,
            incomplete=IncompleteDetails(None),
            usage=self._usage(),
        )
        self._last("incomplete", body)

    def _last(self, status: ResponseStatus, body: bytes) -> bytes:
        if self._final is not None:
            self._writer.take_back()
        self._final = body
        # The SDKs have no event for cancelled; the object's status shows it.
        name = "failed" if status == "cancelled" else status
        self._writer.write(f"response.{name}", b'"response":', body)
        if self._on_end is not None:
            self._on_end(ResponseEnding(status, body, self._items.done))
        return self._writer.take()

    def _incomplete(self, finished: Finished) -> IncompleteDetails | None:
        if self._compacts:
            return None  # a summary that is cut off is still a summary
        if finished.reason == "length":
            return IncompleteDetails("max_output_tokens")
        # Inside a call, the request's own stop string is a regular end; a stop by the model is not.
        if self._items.cut and finished.matched is None:
            return IncompleteDetails(None)
        return None

    def _usage(self) -> ResponseUsage:
        usage = usage_of(self._generation)
        return ResponseUsage(
            usage.prompt_tokens,
            InputTokensDetails(usage.prompt_tokens_details.cached_tokens),
            usage.completion_tokens,
            OutputTokensDetails(usage.completion_tokens_details.reasoning_tokens),
            usage.total_tokens,
        )
