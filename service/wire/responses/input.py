"""Converts input items of a Responses request to messages for a chat template.

A turn of the assistant comes as several items (reasoning, message, calls) and becomes one message.
What cannot be used here (a hosted tool's call, what another server sealed) is left out of the
prompt and reported.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, Literal, NamedTuple

import msgspec
from msgspec import Meta

from service.conversation import JsonObject
from service.errors import ContextTooLongError, InvalidRequestError
from service.wire.call_arguments import call_arguments
from service.wire.call_names import name_results
from service.wire.decode import convert
from service.wire.parts import medium_of, part_text
from service.wire.responses.compaction import COMPACTIONS, summary_message
from service.wire.responses.request import MAX_TOOLS
from service.wire.responses.seal import SealError
from service.wire.responses.tools import CUSTOM_INPUT, Toolbox

ItemText = Annotated[str, Meta(max_length=64 * 1024 * 1024)]
Identifier = Annotated[str, Meta(max_length=512)]
Parts = Annotated[list[dict[str, Any]], Meta(max_length=4096)]


class MessageItem(msgspec.Struct, frozen=True):
    role: Literal["user", "assistant", "system", "developer"]
    content: ItemText | Parts
    id: Identifier | None = None


class ReasoningPart(msgspec.Struct, frozen=True):
    text: ItemText


class ReasoningItem(msgspec.Struct, frozen=True):
    """The summary is read only if there is no content: either holds all of the reasoning here."""

    summary: Annotated[list[ReasoningPart], Meta(max_length=4096)] | None = None
    content: Annotated[list[ReasoningPart], Meta(max_length=4096)] | None = None
    encrypted_content: ItemText | None = None


class FunctionCallItem(msgspec.Struct, frozen=True):
    call_id: Identifier
    name: Identifier
    arguments: ItemText
    namespace: Identifier | None = None


class CustomCallItem(msgspec.Struct, frozen=True):
    call_id: Identifier
    name: Identifier
    input: ItemText
    namespace: Identifier | None = None


class CallOutputItem(msgspec.Struct, frozen=True):
    call_id: Identifier
    output: ItemText | Parts


class AdditionalTools(msgspec.Struct, frozen=True):
    tools: Annotated[list[dict[str, Any]], Meta(max_length=MAX_TOOLS)]


class PlacedItem(NamedTuple):
    """An input item and its path in the request, for errors."""

    item: JsonObject
    path: str

    @property
    def kind(self) -> str:
        """The item's type, which messages may omit."""
        kind = self.item.get("type")
        if kind is None and "role" in self.item:
            return "message"
        if kind is None and "id" in self.item:
            return "item_reference"
        if not isinstance(kind, str):
            raise InvalidRequestError(
                f"Missing required parameter: '{self.path}.type'.", param=f"{self.path}.type"
            )
        return kind


def placed(items: list[JsonObject], path: str) -> list[PlacedItem]:
    return [PlacedItem(item, f"{path}[{index}]") for index, item in enumerate(items)]


def message_item(role: str, text: str) -> JsonObject:
    """Return the message item for a plain string."""
    return {
        "type": "message",
        "role": role,
        "content": [{"type": "input_text", "text": text}],
    }


def additional_tools(items: list[PlacedItem]) -> list[tuple[str, list[JsonObject]]]:
    """Return the tools among the items, with their path."""
    return [
        (f"{placed.path}.tools", convert(placed.item, AdditionalTools, placed.path).tools)
        for placed in items
        if placed.kind == "additional_tools"
    ]


def with_ids(items: list[JsonObject], response_id: str) -> list[JsonObject]:
    """Return the items as ``input_items`` lists them: each has an id, generated if the client gave
    none."""
    key = response_id.removeprefix("resp_")
    result = []
    for index, item in enumerate(items):
        kind = item.get("type") or "message"
        listed = {"type": kind, **item}
        if not isinstance(listed.get("id"), str):
            listed["id"] = f"{_PREFIXES.get(kind, 'item')}_{key}_i{index}"
        if kind == "message":
            listed.setdefault("status", "completed")
            if isinstance(listed.get("content"), str):
                part = "output_text" if listed.get("role") == "assistant" else "input_text"
                listed["content"] = [_listed_part(part, listed["content"])]
        result.append(listed)
    return result


def _listed_part(kind: str, text: str) -> JsonObject:
    part: JsonObject = {"type": kind, "text": text}
    if kind == "output_text":
        part["annotations"] = []
    return part


_PREFIXES = {
    "message": "msg",
    "reasoning": "rs",
    "compaction": "cmp",
    "function_call": "fc",
    "function_call_output": "fco",
    "custom_tool_call": "ctc",
    "custom_tool_call_output": "ctco",
}


# --- conversion for chat templates ----------------------------------------------------------------


class MessageWriter:
    """Converts items to messages, one by one; ``finished`` returns them. ``unseal`` opens encrypted
    reasoning; ``ignored`` gains what was left out. ``most_chars``: limit for all texts together."""

    def __init__(
        self,
        toolbox: Toolbox,
        unseal: Callable[[str], str],
        ignored: list[str],
        *,
        most_chars: int | None = None,
    ) -> None:
        self._messages: list[JsonObject] = []  # their texts are lists of pieces, joined at the end
        self._toolbox = toolbox
        self._unseal = unseal
        self._ignored = ignored
        self._most_chars = most_chars
        self._chars = 0
        self._turn: JsonObject | None = None  # the assistant's, still open

    def finished(self) -> list[JsonObject]:
        """Return the messages. Write nothing afterwards."""
        for message in self._messages:
            separator = "\n\n" if message["role"] == "system" else "\n"
            message["content"] = separator.join(message["content"])
            if "reasoning_content" in message:
                message["reasoning_content"] = "".join(message["reasoning_content"])
        name_results(self._messages)
        return self._messages

    def _count(self, text: str, path: str) -> str:
        self._chars += len(text)
        if self._most_chars is not None and self._chars > self._most_chars:
            raise ContextTooLongError(
                f"The conversation has more than {self._most_chars} characters, which is more than "
                "this model's context can hold. Shorten it.",
                param=path,
            )
        return text

    def write(self, placed: PlacedItem) -> None:
        """Raises InvalidRequestError."""
        kind = placed.kind
        writer = _WRITERS.get(kind)
        if writer is not None:
            writer(self, placed)
        elif kind not in ("additional_tools", "item_reference"):
            self._ignored.append(f"{placed.path}.{kind}")

    def _message(self, placed: PlacedItem) -> None:
        message = convert(placed.item, MessageItem, placed.path)
        text = _text_of(message.content, f"{placed.path}.content")
        if message.role == "assistant":
            turn = self._assistant(closed_by=("tool_calls",))
            self._count(text, placed.path)
            if text or turn["content"]:
                turn["content"].append(text)
            return
        role = "system" if message.role == "developer" else message.role
        self._add({"role": role, "content": [text]}, placed.path)

    def _reasoning(self, placed: PlacedItem) -> None:
        """Clients send an item for as long as the conversation lasts, so one that cannot be opened
        must not fail the request: what it has in plain text is read."""
        item = convert(placed.item, ReasoningItem, placed.path)
        text = "".join(part.text for part in item.content or item.summary or ())
        if item.encrypted_content is not None:
            try:
                text = self._unseal(item.encrypted_content)
            except SealError:
                self._ignored.append(f"{placed.path}.encrypted_content")
        if text:
            turn = self._assistant(closed_by=("tool_calls", "content"))
            turn.setdefault("reasoning_content", []).append(self._count(text, placed.path))

    def _compaction(self, placed: PlacedItem) -> None:
        """Another server's compaction cannot be read here; it is reported like unsupported
        items."""
        content = placed.item.get("encrypted_content")
        try:
            summary = self._unseal(content if isinstance(content, str) else "")
        except SealError:
            self._ignored.append(f"{placed.path}.{placed.kind}")
            return
        message = summary_message(summary)
        self._add({**message, "content": [message["content"]]}, placed.path)

    def _function_call(self, placed: PlacedItem) -> None:
        call = convert(placed.item, FunctionCallItem, placed.path)
        self._count(call.arguments, placed.path)
        self._call(call.call_id, call.name, call.namespace, call_arguments(call.arguments))

    def _custom_call(self, placed: PlacedItem) -> None:
        call = convert(placed.item, CustomCallItem, placed.path)
        self._count(call.input, placed.path)
        self._call(call.call_id, call.name, call.namespace, {CUSTOM_INPUT: call.input})

    def _call(self, call_id: str, name: str, namespace: str | None, arguments: Any) -> None:
        flat = self._toolbox.flat_name(name, namespace)
        turn = self._assistant(closed_by=())
        turn.setdefault("tool_calls", []).append(
            {
                "id": call_id,
                "type": "function",
                "function": {"name": flat, "arguments": arguments},
            }
        )

    def _call_output(self, placed: PlacedItem) -> None:
        item = convert(placed.item, CallOutputItem, placed.path)
        message: JsonObject = {
            "role": "tool",
            "tool_call_id": item.call_id,
            "content": [
                _text_of(
                    item.output, f"{placed.path}.output", ignored=self._ignored, of_a_tool=True
                )
            ],
        }
        self._add(message, placed.path)

    def _add(self, message: JsonObject, path: str) -> None:
        """Merge instructions at the start into one message, as templates expect only one."""
        self._turn = None
        [text] = message["content"]
        self._count(text, path)
        last = self._messages[-1] if len(self._messages) == 1 else None
        if message["role"] == "system" and last is not None and last["role"] == "system":
            last["content"].append(text)
            return
        self._messages.append(message)

    def _assistant(self, *, closed_by: tuple[str, ...]) -> JsonObject:
        """Return the assistant's open message, or a new one if it already has what comes later."""
        turn = self._turn
        if turn is None or any(turn.get(key) for key in closed_by):
            turn = self._turn = {"role": "assistant", "content": []}
            self._messages.append(turn)
        return turn


_WRITERS: dict[str, Callable[[MessageWriter, PlacedItem], None]] = {
    "message": MessageWriter._message,
    "reasoning": MessageWriter._reasoning,
    **dict.fromkeys(COMPACTIONS, MessageWriter._compaction),
    "function_call": MessageWriter._function_call,
    "function_call_output": MessageWriter._call_output,
    "custom_tool_call": MessageWriter._custom_call,
    "custom_tool_call_output": MessageWriter._call_output,
}


def _text_of(
    content: str | list[dict[str, Any]],
    path: str,
    *,
    ignored: list[str] | None = None,
    of_a_tool: bool = False,
) -> str:
    """Join text parts, one per line; ``ignored`` gains the parts of a tool's output that are not
    text.

    Raises InvalidRequestError for a part of a message that is not text.
    """
    if isinstance(content, str):
        return content
    texts = []
    for index, part in enumerate(content):
        here = f"{path}[{index}]"
        texts.append(part_text(part, here, of_a_tool=of_a_tool))
        if ignored is not None and medium_of(part.get("type")) is not None:
            ignored.append(f"{here}.{part['type']}")
    return "\n".join(texts)
