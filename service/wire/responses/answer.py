"""The answer to a Responses request: complete, streamed, or in its current state.

``ResponseStream`` is the only encoder. A complete answer is the same stream with its events
discarded; the stored object is the one in the last event.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Any, Literal

import msgspec

from service.checkpoint.vocabulary import Vocabulary
from service.conversation import JsonObject
from service.errors import OperatorCancelError, QuireError
from service.generation.choice import Choice
from service.generation.request import Generation
from service.output.events import Finished
from service.wire.logprobs import logprob_writer
from service.wire.responses.compaction import CompactionItem
from service.wire.responses.items import ItemBuilder
from service.wire.responses.request import ResponsesRequest
from service.wire.responses.tools import Toolbox
from service.wire.timings import Timings, timings_of
from service.wire.usage import usage_of

ResponseStatus = Literal["completed", "failed", "in_progress", "cancelled", "queued", "incomplete"]
_json = msgspec.json.encode


class InputTokensDetails(msgspec.Struct, frozen=True):
    cached_tokens: int
    cache_write_tokens: int = 0


class OutputTokensDetails(msgspec.Struct, frozen=True):
    reasoning_tokens: int


class ResponseUsage(msgspec.Struct, frozen=True):
    input_tokens: int
    input_tokens_details: InputTokensDetails
    output_tokens: int
    output_tokens_details: OutputTokensDetails
    total_tokens: int


class IncompleteDetails(msgspec.Struct, frozen=True):
    """``reason`` is null if the model itself stopped inside a call."""

    reason: Literal["max_output_tokens"] | None


class ResponseError(msgspec.Struct, frozen=True):
    code: str
    message: str


class EchoedReasoning(msgspec.Struct, frozen=True):
    effort: str | None = None
    summary: str | None = None


class ResponseObject(msgspec.Struct, frozen=True, kw_only=True):
    """``ignored``: paths of the request's fields that have no effect here."""

    id: str
    object: Literal["response"] = "response"
    created_at: int
    status: ResponseStatus
    background: bool
    completed_at: int | None = None
    error: ResponseError | None = None
    incomplete_details: IncompleteDetails | None = None
    instructions: str | list[JsonObject] | None
    max_output_tokens: int | None
    max_tool_calls: int | None
    model: str
    output: list[msgspec.Raw]
    parallel_tool_calls: bool
    previous_response_id: str | None
    prompt_cache_key: str | None
    reasoning: EchoedReasoning
    safety_identifier: str | None
    service_tier: str
    store: bool
    temperature: float
    text: msgspec.Raw
    tool_choice: str | JsonObject
    tools: msgspec.Raw
    top_logprobs: int
    top_p: float
    truncation: str
    usage: ResponseUsage | None = None
    user: str | None
    metadata: dict[str, str]
    ignored: list[str] | msgspec.UnsetType = msgspec.UNSET
    timings: Timings | msgspec.UnsetType = msgspec.UNSET


class ResponseEnding(msgspec.Struct, frozen=True):
    """How a response ended, to be stored."""

    status: ResponseStatus
    body: bytes  # the ResponseObject
    output: list[bytes]  # its items


class Echoed(msgspec.Struct, frozen=True):
    """The request's fields that each response object repeats, as JSON: encoded once, however
    large."""

    instructions: bytes
    metadata: bytes
    text: bytes
    tool_choice: bytes
    tools: bytes


def echoed_fields(request: ResponsesRequest) -> Echoed:
    return Echoed(
        instructions=_json(request.instructions),
        metadata=_json(request.metadata or {}),
        text=_json(_echoed_text(request)),
        tool_choice=_json(request.tool_choice or "auto"),
        tools=_json(_echoed_tools(request)),
    )


def _written(json: bytes) -> Any:
    """Wrap a field's value that is already JSON."""
    return msgspec.Raw(json)


class ResponseAnswer:
    """One request's answer. ``on_end`` receives its ending. ``stored`` is reported in the answer;
    if it becomes untrue, an ending that was not sent yet is encoded again. ``compacts``: its text
    is a summary, sent as one sealed item; that requires ``seal``. ``tier``: the one used."""

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
        self.compacts = compacts
        self._request = request
        self._generation = generation
        self._writer = logprob_writer(vocabulary)
        self._toolbox = toolbox
        self._created = created
        self._model = model
        self._ignored = ignored
        self._tier = tier
        self._seal = seal
        self.stored = stored
        self._echoed = echoed or echoed_fields(request)
        self._stream = ResponseStream(self, generation, self._builder(), on_end=on_end)

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

    def _builder(self) -> ItemBuilder | CompactionItem:
        request = self._request
        if self.compacts and self._seal is not None:
            return CompactionItem(self.id.removeprefix("resp_"), self._seal)
        return ItemBuilder(
            self.id.removeprefix("resp_"),
            self._toolbox,
            reasoning=request.include_reasoning,
            seal=self._seal if request.seals_reasoning else None,
            logprobs=self._logprobs if request.shows_logprobs else None,
        )

    def _logprobs(self, choice: Choice, start: int, end: int) -> list[bytes]:
        tokens, logprobs = choice.tokens_between(start, end), choice.logprobs[start:end]
        entries = self._writer.chat_entries(tokens, logprobs, self._request.top_logprobs or 0)
        return [entry for piece in entries for entry in piece]

    def object(
        self,
        status: ResponseStatus,
        output: list[bytes],
        *,
        error: ResponseError | None = None,
        incomplete: IncompleteDetails | None = None,
        usage: ResponseUsage | None = None,
    ) -> bytes:
        """Encode the response as JSON."""
        request = self._request
        params = self._generation.request.params
        reasoning, echoed = request.reasoning, self._echoed
        return _json(
            ResponseObject(
                id=self.id,
                created_at=self._created,
                status=status,
                background=bool(request.background),
                completed_at=int(time.time()) if status == "completed" else None,
                error=error,
                incomplete_details=incomplete,
                instructions=_written(echoed.instructions),
                max_output_tokens=request.max_output_tokens,
                max_tool_calls=request.max_tool_calls,
                model=self._model,
                output=[msgspec.Raw(item) for item in output],
                parallel_tool_calls=request.parallel_tool_calls is not False,
                previous_response_id=request.previous_response_id,
                prompt_cache_key=request.prompt_cache_key,
                reasoning=EchoedReasoning(
                    reasoning.effort if reasoning else None,
                    reasoning.summary if reasoning else None,
                ),
                safety_identifier=request.safety_identifier,
                service_tier=self._tier,
                store=self.stored,
                temperature=params.temperature,
                text=_written(echoed.text),
                tool_choice=_written(echoed.tool_choice),
                tools=_written(echoed.tools),
                top_logprobs=request.top_logprobs or 0,
                top_p=params.top_p,
                truncation=request.truncation or "disabled",
                usage=usage,
                user=request.user,
                metadata=_written(echoed.metadata),
                ignored=self._ignored or msgspec.UNSET,
                timings=(
                    timings_of(self._generation)
                    if request.timings and usage is not None
                    else msgspec.UNSET
                ),
            )
        )


class ResponseStream:
    """An AnswerStream; ``body`` is the response in its current state, and final after the end.

    Calling ``end`` or ``fail`` after ``end`` replaces its event, which must not have been sent.
    """

    def __init__(
        self,
        answer: ResponseAnswer,
        generation: Generation,
        items: ItemBuilder | CompactionItem,
        *,
        on_end: Callable[[ResponseEnding], None] | None,
    ) -> None:
        self._answer = answer
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
        if self._final is not None:
            return self._final
        return self._answer.object("in_progress", self._items.current())

    def begin(self) -> bytes:
        response = b'"response":' + self._answer.object("in_progress", [])
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
            self._answer.object(
                status, self._items.done, incomplete=incomplete, usage=self._usage()
            ),
        )

    def fail(self, error: QuireError) -> bytes:
        """End open items as incomplete: the final object holds what was streamed."""
        self._items.abandon()
        is_cancelled = self.cancelled or isinstance(error, OperatorCancelError)
        status: ResponseStatus = "cancelled" if is_cancelled else "failed"
        cause = None if self.cancelled else ResponseError("server_error", error.message)
        body = self._answer.object(status, self._items.done, error=cause, usage=self._usage())
        return self._last(status, body)

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
        if self._answer.compacts:
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


def unprompted_events(
    request: ResponsesRequest, response_id: str, created: int, model: str
) -> bytes:
    """Return the stream of a response that was not generated: it begins and is complete."""
    stages: tuple[tuple[bytes, ResponseStatus], ...] = (
        (b"created", "in_progress"),
        (b"completed", "completed"),
    )
    event = (
        b'event: response.%b\ndata: {"type":"response.%b","response":%b,"sequence_number":%d}\n\n'
    )
    return b"".join(
        event % (kind, kind, _unprompted(request, response_id, created, model, status), number)
        for number, (kind, status) in enumerate(stages)
    )


def _unprompted(
    request: ResponsesRequest, response_id: str, created: int, model: str, status: ResponseStatus
) -> bytes:
    reasoning = request.reasoning
    usage = ResponseUsage(0, InputTokensDetails(0), 0, OutputTokensDetails(0), 0)
    return _json(
        ResponseObject(
            id=response_id,
            created_at=created,
            status=status,
            background=False,
            completed_at=created if status == "completed" else None,
            instructions=request.instructions,
            max_output_tokens=request.max_output_tokens,
            max_tool_calls=request.max_tool_calls,
            model=model,
            output=[],
            parallel_tool_calls=request.parallel_tool_calls is not False,
            previous_response_id=request.previous_response_id,
            prompt_cache_key=request.prompt_cache_key,
            reasoning=EchoedReasoning(
                reasoning.effort if reasoning else None, reasoning.summary if reasoning else None
            ),
            safety_identifier=request.safety_identifier,
            service_tier="default",
            store=False,
            temperature=1.0 if request.temperature is None else request.temperature,
            text=msgspec.Raw(_json(_echoed_text(request))),
            tool_choice=request.tool_choice or "auto",
            tools=msgspec.Raw(_json(_echoed_tools(request))),
            top_logprobs=request.top_logprobs or 0,
            top_p=1.0 if request.top_p is None else request.top_p,
            truncation=request.truncation or "disabled",
            usage=usage if status == "completed" else None,
            user=request.user,
            metadata=request.metadata or {},
        )
    )


def _echoed_text(request: ResponsesRequest) -> JsonObject:
    text = request.text
    form = text.format if text is not None else None
    return {
        "format": {"type": "text"} if form is None else _without_nulls(form),
        "verbosity": (text.verbosity if text is not None else None) or "medium",
    }


def _without_nulls(form: msgspec.Struct) -> JsonObject:
    members: JsonObject = msgspec.to_builtins(form)
    return {name: value for name, value in members.items() if value is not None}


# Members that OpenAI's answers always have.
_TOOL_DEFAULTS: dict[str, JsonObject] = {
    "function": {"parameters": None, "strict": False},
    "custom": {},
}


def _echoed_tools(request: ResponsesRequest) -> list[JsonObject]:
    return [{**_TOOL_DEFAULTS.get(tool["type"], {}), **tool} for tool in request.tools or ()]
