"""``POST /v1/responses``: the request, decoded."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, ClassVar, Literal

import msgspec
from msgspec import Meta

from service.constraint.request import AnswerShape, AnyJsonObject, JsonSchema
from service.errors import InvalidRequestError
from service.wire.decode import Ignored, decode
from service.wire.sampling import (
    MAX_LOGPROBS,
    MAX_TOP_LOGPROBS,
    Name,
    TokenLimit,
    check_limits,
    refuse_unserved,
)
from service.wire.structured_output import (
    StructuredOutputFields,
    TextFormat,
    answer_shape,
    idle_fields_of_form,
    only_form,
)

MAX_ITEMS = 16384
MAX_TOOLS = 1024

ENCRYPTED_REASONING = "reasoning.encrypted_content"
OUTPUT_LOGPROBS = "message.output_text.logprobs"

RawItems = Annotated[list[dict[str, Any]], Meta(max_length=MAX_ITEMS)]


class ReasoningFields(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``effort``: passed to chat templates; ``none`` disables thinking."""

    effort: Name | None = None
    summary: Literal["auto", "concise", "detailed"] | None = None
    generate_summary: Literal["auto", "concise", "detailed"] | None = None
    context: Name | None = None
    mode: Name | None = None


class JsonObjectText(msgspec.Struct, frozen=True, tag="json_object", forbid_unknown_fields=True):
    """Any JSON object."""


class JsonSchemaText(
    msgspec.Struct, frozen=True, kw_only=True, tag="json_schema", forbid_unknown_fields=True
):
    name: Annotated[str, Meta(min_length=1, max_length=512)]
    schema: dict[str, Any] | bool
    description: str | None = None
    strict: bool | None = None


class TextFields(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    format: TextFormat | JsonObjectText | JsonSchemaText | None = None
    verbosity: Literal["low", "medium", "high"] | None = None


class ResponsesRequest(
    StructuredOutputFields, frozen=True, kw_only=True, forbid_unknown_fields=True
):
    """OpenAI's request, with the extensions that local servers share. Items and tools are decoded
    one by one (``responses_input``, ``responses_tools``), because unknown kinds are not an error.
    """

    input: str | RawItems | None = None
    instructions: str | RawItems | None = None
    previous_response_id: Name | None = None
    background: bool | None = None
    include: Annotated[list[Name], Meta(max_length=64)] | None = None
    reasoning: ReasoningFields | None = None
    text: TextFields | None = None
    truncation: Literal["auto", "disabled"] | None = None
    max_output_tokens: TokenLimit | None = None
    max_tool_calls: Annotated[int, Meta(ge=0, le=2**31)] | None = None
    tools: Annotated[list[dict[str, Any]], Meta(max_length=MAX_TOOLS)] | None = None
    tool_choice: str | dict[str, Any] | None = None
    parallel_tool_calls: bool | None = None
    top_logprobs: Annotated[int, Meta(ge=0, le=MAX_TOP_LOGPROBS)] | None = None
    client_metadata: Annotated[dict[str, Any], Meta(max_length=256)] | None = None
    prompt_cache_options: dict[str, Any] | None = None
    chat_template_kwargs: Annotated[dict[str, Any], Meta(max_length=64)] | None = None
    include_reasoning: bool = True
    enable_thinking: bool | None = None
    # Fields of OpenAI's that are not supported: rejected by name unless null.
    context_management: Any = None
    conversation: Any = None
    moderation: Any = None
    prompt: Any = None

    other_names: ClassVar[dict[str, str]] = {
        **StructuredOutputFields.other_names,
        **dict.fromkeys(
            ("max_tokens", "max_completion_tokens", "max_new_tokens"), "max_output_tokens"
        ),
    }

    @property
    def kept(self) -> bool:
        """Whether the response is to be stored; OpenAI's default is true."""
        return self.store is not False

    @property
    def seals_reasoning(self) -> bool:
        return ENCRYPTED_REASONING in (self.include or ())

    @property
    def summarizes_reasoning(self) -> bool:
        reasoning = self.reasoning
        return reasoning is not None and bool(reasoning.summary or reasoning.generate_summary)

    @property
    def shows_logprobs(self) -> bool:
        return OUTPUT_LOGPROBS in (self.include or ())

    @property
    def most_logprobs(self) -> int:
        """A lower limit, because a response with its events holds them five times, as JSON."""
        return MAX_LOGPROBS // 128

    @property
    def engine_logprobs(self) -> int | None:
        return (self.top_logprobs or 0) if self.shows_logprobs else None


_decoder = msgspec.json.Decoder(ResponsesRequest, strict=True)


def _never(value: Any) -> bool:
    return False


_PARTLY_SERVED: dict[str, Callable[[Any], bool]] = {
    **dict.fromkeys(
        ("context_management", "conversation", "moderation", "prompt", "prompt_logprobs"), _never
    ),
    "n": lambda value: value == 1,
    "use_beam_search": lambda value: not value,
    "response_format": _never,  # text.format instead
}


class CreateMessage(ResponsesRequest, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A request as a WebSocket message; its additional fields are for the connection."""

    type: Literal["response.create"]
    stream_id: str | None = None
    generate: bool | None = None


_message_decoder = msgspec.json.Decoder(CreateMessage)


def decode_responses(body: bytes, ignored: Ignored | None = None) -> ResponsesRequest:
    """Raises InvalidRequestError."""
    return _checked(decode(_decoder, body, ignored))


def decode_message(message: bytes, ignored: Ignored | None = None) -> ResponsesRequest:
    """Decode the request in a message; its answer is always a stream. Raises
    InvalidRequestError."""
    given = decode(_message_decoder, message, ignored)
    fields = {name: getattr(given, name) for name in ResponsesRequest.__struct_fields__}
    return _checked(ResponsesRequest(**{**fields, "stream": True}))


def _checked(request: ResponsesRequest) -> ResponsesRequest:
    refuse_unserved(request, _PARTLY_SERVED)
    check_limits(request, max_choices=1)
    if request.return_token_ids:
        raise InvalidRequestError(
            "'return_token_ids' is not supported on this route.", param="return_token_ids"
        )
    if request.background and not request.kept:
        raise InvalidRequestError("'background' needs 'store': true.", param="background")
    if request.input is None and request.previous_response_id is None:
        raise InvalidRequestError("Missing required parameter: 'input'.", param="input")
    return request


def text_shape(request: ResponsesRequest) -> AnswerShape | None:
    """Return the required form of the answer's text. Raises InvalidRequestError if there are
    two."""
    other = answer_shape(request)
    match request.text.format if request.text else None:
        case JsonObjectText():
            shape: AnswerShape = AnyJsonObject(param="text.format")
        case JsonSchemaText(schema=schema, strict=strict):
            shape = JsonSchema(schema=schema, param="text.format.schema", strict=strict is True)
        case _:
            return other
    return shape if other is None else only_form([shape, other])


def ignored_fields(request: ResponsesRequest) -> list[str]:
    """Return the fields that have no effect here, but could have changed the answer."""
    reasoning = request.reasoning or ReasoningFields()
    found = {
        "text.verbosity": request.text is not None and request.text.verbosity in ("low", "high"),
        "reasoning.context": reasoning.context is not None,
        "reasoning.mode": reasoning.mode is not None,
        "prompt_cache_options": request.prompt_cache_options is not None,
    }
    paths = [name for name, asked in found.items() if asked]
    for index, name in enumerate(request.include or ()):
        if name not in (ENCRYPTED_REASONING, OUTPUT_LOGPROBS):
            paths.append(f"include[{index}]")
    return paths + idle_fields_of_form(request)
