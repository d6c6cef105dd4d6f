"""The response object of the Responses API, in each state of its response."""

from __future__ import annotations

import time
from typing import Any, Literal

import msgspec

from engine.messages import SamplingParams
from service.conversation import JsonObject
from service.generation.request import Generation
from service.wire.responses.request import ResponsesRequest
from service.wire.timings import Timings, timings_of

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
    """``reason`` is null if the model itself stopped inside a call, or the client left."""

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


class ResponseEncoder:
    """Encodes the response in each of its states. ``stored`` is reported in it; ``generation``:
    whose timings are, None for a response without one."""

    def __init__(
        self,
        request: ResponsesRequest,
        params: SamplingParams,
        *,
        response_id: str,
        created: int,
        model: str,
        ignored: list[str],
        tier: str,
        echoed: Echoed,
        stored: bool,
        generation: Generation | None = None,
    ) -> None:
        self.id = response_id
        self.stored = stored
        self._request = request
        self._params = params
        self._generation = generation
        self._created = created
        self._model = model
        self._ignored = ignored
        self._tier = tier
        self._echoed = echoed

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
        request, params, generation = self._request, self._params, self._generation
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
                    timings_of(generation)
                    if request.timings and usage is not None and generation is not None
                    else msgspec.UNSET
                ),
            )
        )


def unprompted_events(
    request: ResponsesRequest,
    params: SamplingParams,
    *,
    response_id: str,
    created: int,
    model: str,
    ignored: list[str],
) -> bytes:
    """Return the stream of a response that was not generated: it begins and is complete."""
    encoder = ResponseEncoder(
        request,
        params,
        response_id=response_id,
        created=created,
        model=model,
        ignored=ignored,
        tier="default",
        echoed=echoed_fields(request),
        stored=False,
    )
    usage = ResponseUsage(0, InputTokensDetails(0), 0, OutputTokensDetails(0), 0)
    stages = (
        (b"created", encoder.object("in_progress", [])),
        (b"completed", encoder.object("completed", [], usage=usage)),
    )
    event = (
        b'event: response.%b\ndata: {"type":"response.%b","response":%b,"sequence_number":%d}\n\n'
    )
    return b"".join(
        event % (kind, kind, response, number) for number, (kind, response) in enumerate(stages)
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
