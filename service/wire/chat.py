"""``POST /v1/chat/completions``: the request, decoded."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from service.errors import InvalidRequestError
from service.prompt.conversation import (
    Conversation,
    JsonObject,
    NamedTool,
    ToolChoice,
    ToolDefinition,
    call_arguments,
)
from service.wire.decode import decode
from service.wire.sampling import (
    MAX_TOP_LOGPROBS,
    Name,
    TokenCount,
    check_limits,
    refuse_unserved,
)
from service.wire.structured_output import StructuredOutputFields, tool_choice


class TextPart(msgspec.Struct, frozen=True, tag_field="type", tag="text"):
    text: str


class RefusalPart(msgspec.Struct, frozen=True, tag_field="type", tag="refusal"):
    refusal: str


Content = str | list[TextPart | RefusalPart]


class FunctionCall(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: Name
    arguments: str


class ToolCall(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A call the assistant made earlier, as a client sends it back."""

    function: FunctionCall
    id: Name | None = None
    type: Literal["function"] = "function"
    index: int | None = None  # left over where a client kept the stream's deltas


class Message(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Any role's message. What the server itself sent as an assistant's message is accepted back
    whole."""

    role: Literal["system", "developer", "user", "assistant", "tool", "function"]
    content: Content | None = None
    name: Name | None = None
    tool_calls: Annotated[list[ToolCall], Meta(max_length=256)] | None = None
    tool_call_id: Name | None = None
    reasoning: str | None = None
    reasoning_content: str | None = None
    refusal: str | None = None
    annotations: list[Any] | None = None
    audio: None = None
    function_call: FunctionCall | None = None  # of an answer to ``functions``


class FunctionDefinition(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: Annotated[str, Meta(min_length=1, max_length=256)]
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None


class Tool(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    type: Literal["function"]
    function: FunctionDefinition


class FunctionName(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: Name


class ChatRequest(StructuredOutputFields, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """OpenAI's request, with the extensions that local servers share."""

    messages: Annotated[list[Message], Meta(min_length=1, max_length=16384)]
    max_tokens: TokenCount | None = None
    max_completion_tokens: TokenCount | None = None
    logprobs: bool | None = None
    top_logprobs: Annotated[int, Meta(ge=0, le=MAX_TOP_LOGPROBS)] | None = None
    tools: Annotated[list[Tool], Meta(max_length=512)] | None = None
    tool_choice: Literal["none", "auto", "required"] | dict[str, Any] | None = None
    parallel_tool_calls: bool | None = None
    reasoning_effort: Name | None = None
    chat_template_kwargs: Annotated[dict[str, Any], Meta(max_length=64)] | None = None
    documents: Annotated[list[dict[str, Any]], Meta(max_length=1024)] | None = None
    add_generation_prompt: bool | None = None
    continue_final_message: bool = False
    add_special_tokens: bool = False
    echo: bool = False
    include_reasoning: bool = True
    # What tools were before there were tools; the answer then tells of a call in the same way.
    functions: Annotated[list[FunctionDefinition], Meta(min_length=1, max_length=512)] | None = None
    function_call: Literal["none", "auto"] | FunctionName | None = None
    # Hints that change nothing here.
    prediction: Any = None
    verbosity: Literal["low", "medium", "high"] | None = None
    # Known to OpenAI, not served here: refused by name unless null or as harmless as absent.
    audio: Any = None
    modalities: Any = None
    web_search_options: Any = None

    @property
    def echoed(self) -> str:
        """The text that comes before the answer's own: the message that it continues."""
        last = self.messages[-1]
        if not self.echo or last.role != "assistant" or self.generation_prompt:
            return ""
        return _text(last)

    @property
    def callables(self) -> list[FunctionDefinition]:
        if self.functions is not None:
            return self.functions
        return [tool.function for tool in self.tools or ()]

    @property
    def token_limit(self) -> int | None:
        if self.max_completion_tokens is not None:
            return self.max_completion_tokens
        return self.max_tokens

    @property
    def generation_prompt(self) -> bool:
        """Whether an assistant's turn is opened after the messages."""
        if self.add_generation_prompt is None:
            return not self.continue_final_message
        return self.add_generation_prompt

    @property
    def engine_logprobs(self) -> int | None:
        return (self.top_logprobs or 0) if self.logprobs else None


_decoder = msgspec.json.Decoder(ChatRequest, strict=True)


def _never(value: Any) -> bool:
    return False


_PARTLY_SERVED: dict[str, Callable[[Any], bool]] = {
    "modalities": lambda value: value == ["text"],
    **dict.fromkeys(("audio", "web_search_options"), _never),
}


def decode_chat(body: bytes, *, max_choices: int) -> ChatRequest:
    """Raises InvalidRequestError."""
    request = decode(_decoder, body)
    refuse_unserved(request, _PARTLY_SERVED)
    check_limits(request, max_choices=max_choices)
    if request.top_logprobs and not request.logprobs:
        raise InvalidRequestError("'top_logprobs' needs 'logprobs': true.", param="top_logprobs")
    if request.continue_final_message and request.generation_prompt:
        raise InvalidRequestError(
            "'continue_final_message' and 'add_generation_prompt' exclude each other.",
            param="continue_final_message",
        )
    if request.functions is not None and request.tools is not None:
        raise InvalidRequestError(
            "'functions' is what 'tools' was before: give one of them.", param="functions"
        )
    for index, message in enumerate(request.messages):
        _check_message(message, f"messages[{index}]")
    return request


def _check_message(message: Message, path: str) -> None:
    if message.role == "tool" and message.tool_call_id is None:
        raise InvalidRequestError(
            "A tool message must say which call it answers.", param=f"{path}.tool_call_id"
        )
    if message.role == "function" and message.name is None:
        raise InvalidRequestError(
            "A function's message must say which function it is.", param=f"{path}.name"
        )
    if message.role != "assistant" and message.content is None:
        raise InvalidRequestError(
            f"A {message.role} message must have content.", param=f"{path}.content"
        )
    if message.role != "assistant" and (message.tool_calls or message.function_call):
        raise InvalidRequestError("Only an assistant calls tools.", param=f"{path}.tool_calls")


# --- what a chat template sees ------------------------------------------------------------------


def chat_conversation(request: ChatRequest) -> Conversation:
    """The request's messages and tools, whatever API they came by."""
    return Conversation(
        messages=[_template_message(message) for message in request.messages],
        tools=tuple(_tool(function) for function in request.callables),
        tool_choice=_choice_of(request),
        parallel_tool_calls=request.parallel_tool_calls is not False and not request.functions,
        reasoning_effort=request.reasoning_effort,
        documents=request.documents,
        variables=request.chat_template_kwargs or {},
        add_generation_prompt=request.generation_prompt,
        continue_final_message=request.continue_final_message,
        add_special_tokens=request.add_special_tokens,
    )


def _choice_of(request: ChatRequest) -> ToolChoice:
    asked = request.function_call
    if request.functions is None or asked is None:
        return tool_choice(request.tool_choice)
    return NamedTool(asked.name) if isinstance(asked, FunctionName) else asked


def ignored_fields(request: ChatRequest) -> list[str]:
    """What was asked for, does nothing here, and could have changed the answer or its speed."""
    found = {
        "prediction": request.prediction is not None,
        "verbosity": request.verbosity in ("low", "high"),
    }
    return [name for name, asked in found.items() if asked]


def _tool(function: FunctionDefinition) -> ToolDefinition:
    return ToolDefinition(
        name=function.name,
        description=function.description,
        parameters=function.parameters,
        strict=bool(function.strict),
    )


_TEMPLATE_ROLES = {"developer": "system", "function": "tool"}


def _template_message(message: Message) -> JsonObject:
    """Text content as one string, the arguments of tool calls as objects, the developer as
    system."""
    role = _TEMPLATE_ROLES.get(message.role, message.role)
    result: JsonObject = {"role": role, "content": _text(message)}
    if message.name is not None:
        result["name"] = message.name
    if message.tool_call_id is not None:
        result["tool_call_id"] = message.tool_call_id
    reasoning = message.reasoning_content or message.reasoning
    if reasoning:
        result["reasoning_content"] = reasoning
    if message.function_call:
        result["tool_calls"] = [_template_call(ToolCall(function=message.function_call))]
    if message.tool_calls:
        result["tool_calls"] = [_template_call(call) for call in message.tool_calls]
    return result


def _text(message: Message) -> str:
    content = message.content
    if content is None:
        return message.refusal or ""
    if isinstance(content, str):
        return content
    return "\n".join(part.text if isinstance(part, TextPart) else part.refusal for part in content)


def _template_call(call: ToolCall) -> JsonObject:
    return {
        "id": call.id,
        "type": "function",
        "function": {
            "name": call.function.name,
            "arguments": call_arguments(call.function.arguments),
        },
    }
