"""``POST /v1/messages`` and ``/v1/messages/count_tokens``: Anthropic's request, decoded.

Unknown fields do not fail a request (clients send betas that change from week to week): they are
left out of the prompt and named in a response header.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal, NamedTuple

import msgspec
from msgspec import Meta

from service.constraint.request import AnswerShape, JsonSchema
from service.conversation import Conversation, JsonObject, effort_of
from service.errors import InvalidRequestError, NoThreadsError
from service.wire.call_names import name_results
from service.wire.decode import Ignored, decode
from service.wire.messages.blocks import (
    BrowserStateBlock,
    CompactionBlock,
    DocumentBlock,
    HostedBlock,
    ImageBlock,
    InputBlock,
    RedactedThinkingBlock,
    ResultPart,
    SearchResultBlock,
    TextBlock,
    ThinkingBlock,
    ToolResultBlock,
    ToolUseBlock,
)
from service.wire.messages.signatures import Signer
from service.wire.messages.tools import (
    InputTool,
    InputToolChoice,
    check_input_tools,
    definitions_of,
    shapes_of,
)
from service.wire.parts import stand_in, text_only_error
from service.wire.sampling import Name, SamplingFields, StopString
from service.wire.task import Task
from service.wire.tiers import ANTHROPIC_TIERS, AnthropicTier

MIN_THINKING_BUDGET = 1024


class InputMessage(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    role: Literal["user", "assistant", "system"]
    content: str | Annotated[list[InputBlock], Meta(max_length=16384)]


class ThinkingMode(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``between_tools`` is ``adaptive`` here: the model thinks where it will."""

    type: Literal["enabled", "disabled", "adaptive", "between_tools"]
    budget_tokens: Annotated[int, Meta(ge=0)] | None = None
    display: Name | None = None


class OutputConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    effort: Name | None = None
    format: dict[str, Any] | None = None


class PromptFields(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The fields of the prompt, and everything else that a request may have. Fields after
    ``service_tier`` are known and have no effect here; edits of ``context_management`` are
    reported."""

    model: Name
    messages: Annotated[list[InputMessage], Meta(min_length=1, max_length=16384)]
    system: str | list[TextBlock] | None = None
    tools: Annotated[list[InputTool], Meta(max_length=512)] | None = None
    tool_choice: InputToolChoice | None = None
    thinking: ThinkingMode | None = None
    output_config: OutputConfig | None = None
    output_format: dict[str, Any] | None = None  # the older name of output_config.format
    thread: dict[str, Any] | None = None
    stop_sequences: Annotated[list[StopString], Meta(max_length=16)] | None = None
    temperature: Annotated[float, Meta(ge=0, le=2)] | None = None
    top_p: Annotated[float, Meta(ge=0, le=1)] | None = None
    top_k: Annotated[int, Meta(ge=0, lt=2**31)] | None = None
    stream: bool = False
    timings: bool = False  # our extension
    service_tier: AnthropicTier | None = None
    metadata: dict[str, Any] | None = None
    context_management: dict[str, Any] | None = None
    compaction: dict[str, Any] | None = None
    cache_control: dict[str, Any] | None = None


class CountRequest(PromptFields, frozen=True, kw_only=True, forbid_unknown_fields=True):
    max_tokens: Any = None


class MessagesRequest(PromptFields, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``max_tokens`` is limited to the model's context. 0 only fills the prefix cache."""

    max_tokens: Annotated[int, Meta(ge=0, le=2**31)]

    @property
    def only_prompt(self) -> bool:
        """True if only the prompt is to be computed, without output."""
        return self.max_tokens == 0

    def sampling(self) -> SamplingFields:
        return SamplingFields(
            model=self.model,
            stop=self.stop_sequences or None,
            temperature=self.temperature,
            top_p=self.top_p,
            top_k=self.top_k,
        )


_messages_decoder = msgspec.json.Decoder(MessagesRequest, strict=True)
_count_decoder = msgspec.json.Decoder(CountRequest, strict=True)


def decode_messages(body: bytes, ignored: Ignored | None = None) -> MessagesRequest:
    """Raises InvalidRequestError."""
    ignored = ignored or Ignored()
    request = decode(_messages_decoder, body, ignored)
    _check(request, ignored)
    if request.compaction is not None:  # its sender replaces its history with the answer
        raise InvalidRequestError(
            "'compaction' is not supported; request a summary in an ordinary message instead.",
            param="compaction",
        )
    thinking = request.thinking
    if thinking is not None and thinking.type == "enabled":
        budget = thinking.budget_tokens
        if budget is None or budget < MIN_THINKING_BUDGET:
            raise InvalidRequestError(
                f"thinking.enabled.budget_tokens: must be at least {MIN_THINKING_BUDGET}.",
                param="thinking.budget_tokens",
            )
        if budget >= request.max_tokens:
            raise InvalidRequestError(
                "'max_tokens' must be greater than 'thinking.budget_tokens'.", param="max_tokens"
            )
    return request


def decode_count(body: bytes, ignored: Ignored | None = None) -> CountRequest:
    """Raises InvalidRequestError."""
    ignored = ignored or Ignored()
    request = decode(_count_decoder, body, ignored)
    _check(request, ignored)
    return request


def _check(request: PromptFields, ignored: Ignored) -> None:
    """Raise InvalidRequestError for an invalid request; ``ignored`` gains hosted tools, what they
    were asked and returned, what tools returned that is not text, and values that have no effect
    here."""
    if request.thread is not None:
        # A request that continues a thread has only its newest messages. The SDKs' tool runners try
        # one automatically, and send the whole conversation after this error.
        raise NoThreadsError(
            "Threads are not supported; send the whole conversation.", param="thread"
        )
    if request.thinking is not None and request.thinking.type == "between_tools":
        ignored.add("thinking.type")
    ignored.add(*_idle_edits(request.context_management or {}))
    check_input_tools(request.tools or (), request.tool_choice, ignored)
    for index, message in enumerate(request.messages):
        _check_blocks(message, f"messages.{index}", ignored)
    _check_last_calls(request.messages[-1], f"messages.{len(request.messages) - 1}")


def _idle_edits(management: JsonObject) -> list[str]:
    """Return the paths of the edits that a request wants made to its own conversation: none is.
    One that keeps all thinking changes nothing anyway."""
    edits = management.get("edits")
    found = []
    for index, edit in enumerate(edits if isinstance(edits, list) else ()):
        match edit:
            case {"type": "clear_thinking_20251015", "keep": "all" | {"type": "all"}}:
                continue
            case {"type": str(kind)}:
                found.append(f"context_management.edits[{index}].{kind}")
            case _:
                found.append(f"context_management.edits[{index}]")
    return found


def _wants_citations(block: object) -> bool:
    if not isinstance(block, DocumentBlock | SearchResultBlock):
        return False
    return isinstance(block.citations, dict) and bool(block.citations.get("enabled"))


def _check_blocks(message: InputMessage, path: str, ignored: Ignored) -> None:
    allowed: tuple[type, ...] = {
        "user": (
            *(TextBlock, DocumentBlock, SearchResultBlock, CompactionBlock),
            *(ToolResultBlock, HostedBlock),
        ),
        "assistant": (
            *(TextBlock, ThinkingBlock, RedactedThinkingBlock, CompactionBlock),
            *(ToolUseBlock, HostedBlock),
        ),
        "system": (TextBlock, HostedBlock),
    }[message.role]
    if isinstance(message.content, str):
        return
    for place, block in enumerate(message.content):
        here = f"{path}.content.{place}"
        unread = f"{path.replace('.', '[')}].content[{place}]"
        if isinstance(block, ToolResultBlock) and isinstance(block.content, list):
            ignored.add(
                *(
                    f"{unread}.content[{index}].{part.__struct_config__.tag}"
                    for index, part in enumerate(block.content)
                    if _text_of(part) is None
                ),
                *(
                    f"{unread}.content[{index}].citations"
                    for index, part in enumerate(block.content)
                    if _wants_citations(part)
                ),
            )
        if _wants_citations(block):
            ignored.add(f"{unread}.citations")
        if isinstance(block, HostedBlock) or (
            isinstance(block, CompactionBlock) and not block.content
        ):
            ignored.add(f"{unread}.{block.__struct_config__.tag}")
        if isinstance(block, ImageBlock | DocumentBlock) and _text_of(block) is None:
            raise text_only_error(block.__struct_config__.tag, here)
        if not isinstance(block, allowed):
            kind = block.__struct_config__.tag
            raise InvalidRequestError(
                f"A {message.role} message cannot contain a {kind} block.",
                param=here,
            )


def _check_last_calls(message: InputMessage, path: str) -> None:
    """Raise InvalidRequestError for a conversation that ends with a call: it has no result, and a
    turn cannot be continued after it."""
    if message.role == "assistant" and not isinstance(message.content, str):
        for place, block in enumerate(message.content):
            if isinstance(block, ToolUseBlock):
                raise InvalidRequestError(
                    "This tool_use block has no tool_result; send one in the user message that "
                    "follows.",
                    param=f"{path}.content.{place}",
                )


# --- as a conversation --------------------------------------------------------------------------


def messages_conversation(request: PromptFields, signer: Signer) -> Conversation:
    """Raises InvalidRequestError for an altered thinking block of ours, or if nothing can be
    read."""
    messages: list[JsonObject] = []
    begin = _beginning(request.messages)
    for index, message in enumerate(request.messages[begin.message :], begin.message):
        first = begin.block if index == begin.message else 0
        messages += _template_messages(message, first, signer, f"messages.{index}")
    if begin.summary:
        _put_first(begin.summary, messages)
    if not messages:
        raise InvalidRequestError(
            "'messages' contains nothing that this server can read.", param="messages"
        )
    name_results(messages)
    # A final assistant's turn is to be continued.
    continues = request.messages[-1].role == messages[-1]["role"] == "assistant"
    if request.system:
        messages.insert(0, {"role": "system", "content": _joined(request.system)})
    choice = request.tool_choice
    return Conversation(
        messages=messages,
        tools=definitions_of(request.tools or ()),
        tool_choice="auto" if choice is None else choice.choice(),
        parallel_tool_calls=choice is None or not choice.disable_parallel_tool_use,
        thinking=request.thinking is not None and request.thinking.type != "disabled",
        reasoning_effort=effort_of(request.output_config.effort if request.output_config else None),
        effort_param="output_config.effort",
        add_generation_prompt=not continues,
        continue_final_message=continues,
    )


def messages_task(request: MessagesRequest, signer: Signer) -> Task:
    """Raises InvalidRequestError."""
    return Task(
        messages_conversation(request, signer),
        request.sampling(),
        # If no output is requested, the engine still computes one token, which is not shown.
        token_limit=max(1, request.max_tokens),
        answer=output_shape(request),
        tools=shapes_of(request.tools or ()),
        tier=ANTHROPIC_TIERS.get(request.service_tier or ""),
    )


def output_shape(request: PromptFields) -> AnswerShape | None:
    """Return the form required by ``output_config.format``, or by ``output_format``, its older
    name.

    Raises InvalidRequestError.
    """
    param = "output_config.format"
    asked = None if request.output_config is None else request.output_config.format
    if asked is None:
        param, asked = "output_format", request.output_format
    elif request.output_format not in (None, asked):
        raise InvalidRequestError(
            f"'output_format' and '{param}' both constrain the output; send only one.",
            param="output_format",
        )
    if asked is None:
        return None
    if asked.get("type") != "json_schema" or not isinstance(asked.get("schema"), dict):
        raise InvalidRequestError(f"'{param}' must be a json_schema with its schema.", param=param)
    return JsonSchema(schema=asked["schema"], param=f"{param}.schema")


def _joined(content: str | Sequence[ResultPart] | None) -> str:
    """Join text, one block per line; what a tool returned besides text is replaced by a
    sentence."""
    if content is None or isinstance(content, str):
        return content or ""
    return "\n".join(
        stand_in(str(block.__struct_config__.tag)) if (text := _text_of(block)) is None else text
        for block in content
    )


def _text_of(block: ResultPart) -> str | None:
    return None if isinstance(block, ImageBlock | BrowserStateBlock) else block.text


class _Beginning(NamedTuple):
    """Where the model begins to read: at ``block`` of ``message``, after ``summary``, which takes
    the place of all before."""

    message: int = 0
    block: int = 0
    summary: str = ""


def _put_first(summary: str, messages: list[JsonObject]) -> None:
    """Put the summary into the user's turn, which templates expect first, and once."""
    if messages and messages[0]["role"] == "user":
        messages[0]["content"] = f"{summary}\n\n{messages[0]['content']}"
    else:
        messages.insert(0, {"role": "user", "content": summary})


def _beginning(messages: Sequence[InputMessage]) -> _Beginning:
    """As in Anthropic's API, the last summary takes the place of all blocks before it."""
    for index in reversed(range(len(messages))):
        content = messages[index].content
        for place in reversed(range(len(content) if isinstance(content, list) else 0)):
            block = content[place]
            if isinstance(block, CompactionBlock) and block.content:
                return _Beginning(index, place + 1, block.content)
    return _Beginning()


def _template_messages(
    message: InputMessage, first: int, signer: Signer, path: str
) -> list[JsonObject]:
    """Return what the model is shown of a message, from block number ``first`` on. Text and results
    of tools become messages of different roles."""
    if isinstance(message.content, str):
        return [{"role": message.role, "content": message.content}]
    blocks = message.content[first:]
    if first > 0 and not blocks:
        return []
    if message.role == "assistant":
        return [_assistant_message(message.content, first, signer, path)]
    made: list[JsonObject] = []
    texts: list[str] = []

    def flush() -> None:
        if texts:
            made.append({"role": message.role, "content": "\n".join(texts)})
            texts.clear()

    for block in blocks:
        match block:
            case TextBlock(text):
                texts.append(text)
            case DocumentBlock() | SearchResultBlock():
                texts.append(block.text or "")
            case ToolResultBlock():
                flush()
                content = _joined(block.content)
                if block.is_error:
                    content = f"Error: {content}"
                made.append({"role": "tool", "tool_call_id": block.tool_use_id, "content": content})
    flush()
    return made


def _assistant_message(
    blocks: list[InputBlock], first: int, signer: Signer, path: str
) -> JsonObject:
    texts: list[str] = []
    thoughts: list[str] = []
    calls: list[JsonObject] = []
    for place, block in enumerate(blocks):
        if place < first:
            continue
        match block:
            case TextBlock(text):
                texts.append(text)
            case ThinkingBlock(thinking, signature):
                if signer.is_forged(thinking, signature):
                    raise InvalidRequestError(
                        "Invalid `signature` in `thinking` block: its text was altered.",
                        param=f"{path}.content.{place}",
                    )
                thoughts.append(thinking)
            case ToolUseBlock(call_id, name, arguments):
                function = {"name": name, "arguments": arguments}
                calls.append({"id": call_id, "type": "function", "function": function})
    made: JsonObject = {"role": "assistant", "content": "".join(texts)}
    if thoughts:
        made["reasoning_content"] = "\n".join(thoughts)
    if calls:
        made["tool_calls"] = calls
    return made
