"""A visitor's request, before an API formats it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from dashboard.apis.sendable import unsendable


@dataclass(frozen=True, slots=True)
class Call:
    """A tool call. ``arguments``: JSON as the model wrote it."""

    id: str
    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class Message:
    """``role``: user, assistant or tool. ``calls``: an assistant's; ``call_id``: the call that a
    tool's message answers."""

    role: str
    content: str
    calls: tuple[Call, ...] = ()
    call_id: str = ""


@dataclass(frozen=True, slots=True)
class Tool:
    name: str
    description: str
    parameters: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Ask:
    """None and empty fields leave the matter to the server, and nothing is sent about them.
    ``documents``: texts to be ranked. ``logprobs``: the five likeliest at each token."""

    model: str
    messages: tuple[Message, ...]
    system: str = ""
    temperature: float | None = None
    top_p: float | None = None
    max_tokens: int | None = None
    seed: int | None = None
    thinking: bool | None = None
    stop: tuple[str, ...] = ()
    tools: tuple[Tool, ...] = ()
    schema: Mapping[str, Any] | None = None
    logprobs: bool = False
    documents: tuple[str, ...] = field(default=())

    @property
    def text(self) -> str:
        """The last message, for APIs without a conversation."""
        return self.messages[-1].content if self.messages else ""


TOP_LOGPROBS = 5


def given(**fields: Any) -> dict[str, Any]:
    """The fields that have a value."""
    return {name: value for name, value in fields.items() if value not in (None, "", (), [])}


def arguments_of(call: Call) -> Any:
    """The decoded arguments; an object with the text as it is if they are not a JSON object, or
    not one that can be sent."""
    try:
        value = json.loads(call.arguments or "{}")
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict) or unsendable(value):
        return {"arguments": call.arguments}
    return value
