"""Converts a Responses request and what it refers to into the conversation for a template."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from service.conversation import Conversation, JsonObject, effort_of
from service.wire.responses.input import (
    MessageWriter,
    PlacedItem,
    additional_tools,
    message_item,
    placed,
)
from service.wire.responses.request import ResponsesRequest, ignored_fields
from service.wire.responses.tools import Toolbox, choose_tools, read_tools


class ReadRequest(NamedTuple):
    """``items``: the request's own input; ``ignored``: names of what has no effect here."""

    conversation: Conversation
    toolbox: Toolbox
    items: list[JsonObject]
    ignored: list[str]


def own_items(request: ResponsesRequest) -> list[JsonObject]:
    """Return the request's input items; plain text becomes a message."""
    return items_of(request.input)


def items_of(given: str | list[JsonObject] | None) -> list[JsonObject]:
    """Return the items of an ``input`` field."""
    if given is None:
        return []
    return [message_item("user", given)] if isinstance(given, str) else given


def read_request(
    request: ResponsesRequest,
    history: list[JsonObject],
    items: list[JsonObject],
    unseal: Callable[[str], str],
    *,
    most_chars: int | None = None,
) -> ReadRequest:
    """``history``: the items before ``items``, from ``previous_response_id``; references in
    ``items`` have been resolved. ``unseal`` opens encrypted reasoning. ``most_chars``: limit for
    the whole conversation's text.

    Raises InvalidRequestError; ContextTooLongError for more text.
    """
    before = placed(history, "previous_response_id")
    own = placed(items, "input")
    added = additional_tools([*before, *own])
    everything = Toolbox.joined(
        [read_tools(request.tools or []), *(read_tools(tools, path) for path, tools in added)]
    )
    choice, toolbox = choose_tools(request.tool_choice, everything)
    ignored = [*ignored_fields(request), *toolbox.ignored]
    writer = MessageWriter(everything, unseal, ignored, most_chars=most_chars)
    for item in [*_instructions(request), *before, *own]:
        writer.write(item)
    reasoning = request.reasoning
    conversation = Conversation(
        messages=writer.finished(),
        tools=toolbox.definitions(),
        tool_choice=choice,
        parallel_tool_calls=request.parallel_tool_calls is not False,
        thinking=request.enable_thinking,
        reasoning_effort=effort_of(reasoning.effort if reasoning else None),
        variables=request.chat_template_kwargs or {},
        param="input",
        effort_param="reasoning.effort",
    )
    return ReadRequest(conversation, toolbox, items, ignored)


def _instructions(request: ResponsesRequest) -> list[PlacedItem]:
    given = request.instructions
    if given is None:
        return []
    if isinstance(given, str):
        return [PlacedItem(message_item("system", given), "instructions")]
    return placed(given, "instructions")


def turn_starts(conversation: Conversation) -> list[int]:
    """Return where user turns begin: a conversation may be cut before any of these messages."""
    return [
        index for index, message in enumerate(conversation.messages) if message["role"] == "user"
    ]


def without_turns(conversation: Conversation, first_kept: int) -> list[JsonObject]:
    """Return the messages from ``first_kept`` on, with the instructions before them."""
    messages = conversation.messages
    kept = [message for message in messages[:first_kept] if message["role"] == "system"]
    return kept + messages[first_kept:]
