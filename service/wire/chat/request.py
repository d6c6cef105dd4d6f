"""``POST /v1/chat/completions``: the request, decoded."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Annotated, Any, ClassVar, Literal

import msgspec
from msgspec import Meta

from service.conversation import (
    Conversation,
    JsonObject,
    NamedTool,
    ToolChoice,
    effort_of,
)
from service.errors import InvalidRequestError
from service.wire.call_arguments import call_arguments
from service.wire.call_names import name_results
from service.wire.chat.tools import (
    MAX_CHAT_TOOLS,
    FunctionDefinition,
    Functions,
    Tool,
    check_tools,
    chosen_functions,
)
from service.wire.decode import Ignored, decode
from service.wire.parts import ignored_in, is_thinking, part_text, thinking_text
from service.wire.sampling import (
    MAX_TOP_LOGPROBS,
    Name,
    TokenLimit,
    check_limits,
    refuse_unserved,
)
from service.wire.structured_output import (
    StructuredOutputFields,
    answer_shape,
    idle_fields_of_form,
)
from service.wire.task import Task

Content = str | list[dict[str, Any]]


class FunctionCall(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: Name
    arguments: str


class ToolCall(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A call that the assistant made earlier, as sent back by a client."""

    function: FunctionCall
    id: Name | None = None
    type: Literal["function"] = "function"
    index: int | None = None  # left by clients that keep the stream's deltas


class Message(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A message of any role. An assistant's message that this server sent is accepted unchanged;
    what a client's SDK or another server added to it is dropped and reported."""

    role: Literal["system", "developer", "user", "assistant", "tool", "function"]
    content: Content | None = None
    name: Name | None = None
    tool_calls: Annotated[list[ToolCall], Meta(max_length=256)] | None = None
    tool_call_id: Name | None = None
    reasoning: str | None = None
    reasoning_content: str | None = None
    refusal: str | None = None
    annotations: Any = None
    audio: Any = None
    cache_control: Any = None  # caching does not have to be requested
    function_call: FunctionCall | None = None  # from an answer to ``functions``


class Thinking(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How Moonshot, Zhipu, DeepSeek and others enable or disable reasoning."""

    type: Literal["enabled", "disabled", "adaptive", "auto"]

    @property
    def wanted(self) -> bool | None:
        """None leaves it to the template."""
        return {"enabled": True, "disabled": False}.get(self.type)


class Reasoning(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """OpenRouter's spelling of ``reasoning_effort`` and ``include_reasoning``."""

    effort: Name | None = None
    enabled: bool | None = None
    exclude: bool = False


class UsageWish(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """OpenRouter's ``stream_options.include_usage``; answers that are not streamed always include
    it."""

    include: bool = False


class FunctionName(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: Name


class ChatRequest(StructuredOutputFields, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """OpenAI's request, with the extensions that local servers share."""

    messages: Annotated[list[Message], Meta(min_length=1, max_length=16384)]
    max_tokens: TokenLimit | None = None
    max_completion_tokens: TokenLimit | None = None
    logprobs: bool | None = None
    top_logprobs: Annotated[int, Meta(ge=0, le=MAX_TOP_LOGPROBS)] | None = None
    tools: Annotated[list[Tool], Meta(max_length=MAX_CHAT_TOOLS)] | None = None
    # "any" is Mistral's name for "required".
    tool_choice: Literal["none", "auto", "required", "any"] | dict[str, Any] | None = None
    parallel_tool_calls: bool | None = None
    reasoning_effort: Name | None = None
    chat_template_kwargs: Annotated[dict[str, Any], Meta(max_length=64)] | None = None
    # Other servers' equivalents of ``chat_template_kwargs`` and ``reasoning_effort``.
    enable_thinking: bool | None = None
    thinking: Thinking | bool | None = None
    reasoning: Reasoning | None = None
    usage: UsageWish | None = None
    documents: Annotated[list[dict[str, Any]], Meta(max_length=1024)] | None = None
    add_generation_prompt: bool | None = None
    continue_final_message: bool = False
    add_special_tokens: bool = False
    echo: bool = False
    include_reasoning: bool = True
    # The deprecated form of tools; the answer then reports a call in the same form.
    functions: (
        Annotated[list[FunctionDefinition], Meta(min_length=1, max_length=MAX_CHAT_TOOLS)] | None
    ) = None
    function_call: Literal["none", "auto"] | FunctionName | None = None
    # Hints that have no effect here.
    prediction: Any = None
    verbosity: Literal["low", "medium", "high"] | None = None
    # Fields of OpenAI's that are not supported: rejected by name unless null or without effect.
    audio: Any = None
    modalities: Any = None
    web_search_options: Any = None

    other_names: ClassVar[dict[str, str]] = {
        **StructuredOutputFields.other_names,
        "max_new_tokens": "max_tokens",
    }

    @property
    def echoed(self) -> str:
        """The text before the answer's own: the message that it continues."""
        last = self.messages[-1]
        if not self.echo or last.role != "assistant" or self.generation_prompt:
            return ""
        return _text(last, of_a_tool=False)

    @property
    def include_usage(self) -> bool:
        return super().include_usage or bool(self.usage and self.usage.include)

    @property
    def thinks(self) -> bool | None:
        """Whether reasoning is enabled or disabled; None leaves it to the template. Fields that
        name thinking take precedence over those that imply it."""
        if self.enable_thinking is not None:
            return self.enable_thinking
        if isinstance(self.thinking, bool):
            return self.thinking
        if self.thinking is not None and self.thinking.wanted is not None:
            return self.thinking.wanted
        return self.reasoning.enabled if self.reasoning else None

    @property
    def effort(self) -> tuple[str | None, str]:
        """The effort, and the field that sets it."""
        if self.reasoning_effort is None and self.reasoning is not None:
            return self.reasoning.effort, "reasoning.effort"
        return self.reasoning_effort, "reasoning_effort"

    @property
    def shows_reasoning(self) -> bool:
        return self.include_reasoning and not (self.reasoning and self.reasoning.exclude)

    @property
    def token_limit(self) -> int | None:
        if self.max_completion_tokens is not None:
            return self.max_completion_tokens
        return self.max_tokens

    @property
    def generation_prompt(self) -> bool:
        """True if an assistant's turn is opened after the messages."""
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


def decode_chat(body: bytes, *, max_choices: int, ignored: Ignored | None = None) -> ChatRequest:
    """Raises InvalidRequestError."""
    ignored = ignored or Ignored()
    request = decode(_decoder, body, ignored)
    refuse_unserved(request, _PARTLY_SERVED)
    check_limits(request, max_choices=max_choices)
    if request.top_logprobs and not request.logprobs:
        raise InvalidRequestError("'top_logprobs' needs 'logprobs': true.", param="top_logprobs")
    if request.continue_final_message and request.generation_prompt:
        raise InvalidRequestError(
            "'continue_final_message' and 'add_generation_prompt' cannot both be true.",
            param="continue_final_message",
        )
    if request.functions is not None and request.tools is not None:
        raise InvalidRequestError(
            "'functions' is the deprecated form of 'tools'; send only one of them.",
            param="functions",
        )
    check_tools(request.tools or (), ignored)
    check_messages(request.messages, ignored)
    _tools_of(request, ignored)
    ignored.add(*_idle_fields(request), *idle_fields_of_form(request))
    return request


def check_messages(messages: Iterable[Message], ignored: Ignored) -> None:
    """Raise InvalidRequestError for an invalid message; ``ignored`` gains the parts that are
    dropped."""
    for index, (message, of_a_tool) in enumerate(_with_origins(messages)):
        _check_message(message, f"messages[{index}]", ignored, of_a_tool=of_a_tool)


def _check_message(message: Message, path: str, ignored: Ignored, *, of_a_tool: bool) -> None:
    if message.role == "tool" and message.tool_call_id is None:
        raise InvalidRequestError(
            "A tool message must have a 'tool_call_id'.", param=f"{path}.tool_call_id"
        )
    if message.role == "function" and message.name is None:
        raise InvalidRequestError("A function message must have a 'name'.", param=f"{path}.name")
    if message.role not in ("assistant", "tool", "function") and message.content is None:
        raise InvalidRequestError(
            f"A {message.role} message must have content.", param=f"{path}.content"
        )
    if message.role != "assistant" and (message.tool_calls or message.function_call):
        raise InvalidRequestError(
            "Only assistant messages may contain tool calls.", param=f"{path}.tool_calls"
        )
    if message.audio is not None:
        ignored.add(f"{path}.audio")
    if isinstance(message.content, list):
        for place, part in enumerate(message.content):
            _check_part(part, message, f"{path}.content[{place}]", ignored, of_a_tool=of_a_tool)


def _check_part(
    part: JsonObject, message: Message, path: str, ignored: Ignored, *, of_a_tool: bool
) -> None:
    if not isinstance(part.get("type"), str):
        raise InvalidRequestError(
            f"Missing required parameter: '{path}.type'.", param=f"{path}.type"
        )
    if not is_thinking(part):
        part_text(part, path, of_a_tool=of_a_tool)
        ignored.add(*ignored_in(part, path))
    elif message.role != "assistant" or _thoughts_beside(message):
        ignored.add(f"{path}.{part['type']}")


# --- conversion for chat templates ----------------------------------------------------------------


def decode_chat_task(body: bytes, *, max_choices: int, ignored: Ignored | None = None) -> Task:
    """Decode and convert a body. Raises InvalidRequestError."""
    return chat_task(decode_chat(body, max_choices=max_choices, ignored=ignored))


def chat_task(request: ChatRequest) -> Task:
    """Raises InvalidRequestError."""
    _, functions = _tools_of(request)
    return Task(
        chat_conversation(request),
        request,
        token_limit=request.token_limit,
        logprobs=request.engine_logprobs,
        answer=answer_shape(request),
        tools=tuple(function.shape(index) for index, function in functions.items()),
        tier=request.tier,
    )


def chat_conversation(request: ChatRequest) -> Conversation:
    """Return the messages and tools of a chat request, from any API."""
    choice, functions = _tools_of(request)
    effort, effort_param = request.effort
    messages = [
        _template_message(message, of_a_tool=of_a_tool)
        for message, of_a_tool in _with_origins(request.messages)
    ]
    name_results(messages)
    return Conversation(
        messages=messages,
        tools=tuple(function.definition() for function in functions.values()),
        tool_choice=choice,
        parallel_tool_calls=request.parallel_tool_calls is not False and not request.functions,
        thinking=request.thinks,
        reasoning_effort=effort_of(effort),
        effort_param=effort_param,
        documents=request.documents,
        variables=request.chat_template_kwargs or {},
        add_generation_prompt=request.generation_prompt,
        continue_final_message=request.continue_final_message,
        add_special_tokens=request.add_special_tokens,
    )


def _tools_of(request: ChatRequest, ignored: Ignored | None = None) -> tuple[ToolChoice, Functions]:
    """Return the choice of tools, and the functions that may be called. Raises
    InvalidRequestError."""
    ignored = ignored or Ignored()
    if request.functions is None:
        return chosen_functions(request.tool_choice, request.tools or (), ignored)
    asked = request.function_call
    functions = dict(enumerate(request.functions))
    if asked is None:
        match request.tool_choice:
            case {"type": "allowed_tools"}:
                raise InvalidRequestError(
                    "'tool_choice' of type 'allowed_tools' needs 'tools'; with 'functions', use "
                    "'function_call'.",
                    param="tool_choice",
                )
        return chosen_functions(request.tool_choice, (), ignored)[0], functions
    return NamedTool(asked.name) if isinstance(asked, FunctionName) else asked, functions


def _idle_fields(request: ChatRequest) -> list[str]:
    """Return the fields that are accepted, but have no effect here."""
    found = {
        "prediction": request.prediction is not None,
        "store": request.store is True,
        "verbosity": request.verbosity in ("low", "high"),
    }
    return [name for name, asked in found.items() if asked]


_TOOL_ROLES = ("tool", "function")
_TEMPLATE_ROLES = {"developer": "system", "function": "tool"}


def _with_origins(messages: Iterable[Message]) -> Iterator[tuple[Message, bool]]:
    """Yield each message, and whether it contains a tool's output. A user message directly after a
    tool's does: many clients send an image from a tool in it, as a tool message takes text only."""
    after_tool = False
    for message in messages:
        is_tools = message.role in _TOOL_ROLES
        yield message, is_tools or (after_tool and message.role == "user")
        after_tool = is_tools


def _template_message(message: Message, *, of_a_tool: bool) -> JsonObject:
    """Convert a message: text content to one string, arguments of tool calls to objects, the
    developer role to system."""
    role = _TEMPLATE_ROLES.get(message.role, message.role)
    result: JsonObject = {"role": role, "content": _text(message, of_a_tool=of_a_tool)}
    if message.name is not None:
        result["name"] = message.name
    if message.tool_call_id is not None:
        result["tool_call_id"] = message.tool_call_id
    reasoning = _thoughts_beside(message) or _thoughts_within(message)
    if reasoning:
        result["reasoning_content"] = reasoning
    if message.function_call:
        result["tool_calls"] = [_template_call(ToolCall(function=message.function_call))]
    if message.tool_calls:
        result["tool_calls"] = [_template_call(call) for call in message.tool_calls]
    return result


def _text(message: Message, *, of_a_tool: bool) -> str:
    content = message.content
    if content is None:
        return message.refusal or ""
    if isinstance(content, str):
        return content
    return "\n".join(
        part_text(part, "content", of_a_tool=of_a_tool) for part in content if not is_thinking(part)
    )


def _thoughts_beside(message: Message) -> str | None:
    return message.reasoning_content or message.reasoning


def _thoughts_within(message: Message) -> str:
    """Return the thoughts among an assistant's parts, where Mistral's and Anthropic's clients keep
    them."""
    if message.role != "assistant" or not isinstance(message.content, list):
        return ""
    return "\n".join(filter(None, map(thinking_text, filter(is_thinking, message.content))))


def _template_call(call: ToolCall) -> JsonObject:
    return {
        "id": call.id,
        "type": "function",
        "function": {
            "name": call.function.name,
            "arguments": call_arguments(call.function.arguments),
        },
    }
