"""Compaction: replaces a conversation's items by one that only this server can read.

Requested by an item of the type ``compaction_trigger`` at the end of the input (as Codex does), or
by ``POST /v1/responses/compact``. The model writes a summary; the client receives a single item of
the type ``compaction`` that contains it sealed. If a later input has such an item, the model sees
the summary.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from service.conversation import JsonObject
from service.generation.choice import Choice
from service.output.events import Event, Finished, ReasoningDelta, TextDelta
from service.wire.responses.items import EventWriter
from service.wire.responses.request import ResponsesRequest

TRIGGER = "compaction_trigger"
COMPACTIONS = ("compaction", "compaction_summary")

# Share of the context for a summary whose length the request does not set.
_SUMMARY_PART = 4
_MOST_SUMMARY_TOKENS = 4096

_ASK = (
    "The conversation so far is about to be replaced by a summary. Write that summary, for whoever "
    "goes on with the work and has seen none of it: what was asked for, what was done and found "
    "out, what was decided and why, names, paths and figures that are still needed, and what "
    "remains to be done. Write the summary only."
)
_INTRODUCTION = "Summary of the conversation before this point:\n\n"


class CompactedResponse(msgspec.Struct, frozen=True, kw_only=True):
    """``output``: the user's messages unchanged, then one compaction item."""

    id: str
    object: str = "response.compaction"
    created_at: int
    output: list[JsonObject]
    usage: JsonObject | None


class InputTokens(msgspec.Struct, frozen=True, kw_only=True):
    object: str = "response.input_tokens"
    input_tokens: int


def without_trigger(items: list[JsonObject]) -> tuple[list[JsonObject], bool]:
    """Return the items before a final trigger, and whether there was one."""
    if items and items[-1].get("type") == TRIGGER:
        return items[:-1], True
    return items, False


def asking_for_summary(items: list[JsonObject]) -> list[JsonObject]:
    return [*items, {"type": "message", "role": "user", "content": _ASK}]


def summarizing(request: ResponsesRequest, max_model_len: int) -> ResponsesRequest:
    """Return the request modified for a summary: plain text, no calls, and the conversation is
    truncated at its start if it leaves no room."""
    limit = min(_MOST_SUMMARY_TOKENS, max(16, max_model_len // _SUMMARY_PART))
    changed: dict[str, Any] = {
        "tool_choice": "none" if request.tools else None,
        "text": None,
        "truncation": "auto",
        "max_output_tokens": request.max_output_tokens or limit,
    }
    return msgspec.structs.replace(request, **changed)


def summary_message(summary: str) -> JsonObject:
    """Return what the model sees in place of a compaction item."""
    return {"role": "user", "content": _INTRODUCTION + summary}


class CompactionItem:
    """An ItemBuilder for one item, made of all that the model writes. If the model only thought,
    its thoughts are the summary."""

    def __init__(self, key: str, seal: Callable[[str], str]) -> None:
        self.writer = EventWriter()
        self.done: list[bytes] = []
        self.cut = False
        self._id = f"cmp_{key}_0"
        self._seal = seal
        self._text: list[str] = []
        self._thoughts: list[str] = []

    def feed(self, choice: Choice, event: Event) -> None:
        match event:
            case TextDelta(text=text):
                self._text.append(text)
            case ReasoningDelta(text=text):
                self._thoughts.append(text)
            case Finished():
                self._finish()

    def abandon(self) -> None:
        """Discard it: half a summary is useless."""

    def current(self) -> list[bytes]:
        return self.done

    def _finish(self) -> None:
        summary = "".join(self._text).strip() or "".join(self._thoughts).strip()
        item = msgspec.json.encode(
            {"id": self._id, "type": "compaction", "encrypted_content": self._seal(summary)}
        )
        for event in ("added", "done"):
            self.writer.write(f"response.output_item.{event}", b'"output_index":0,"item":%b' % item)
        self.done.append(item)


def user_messages(items: list[JsonObject]) -> list[JsonObject]:
    return [
        item
        for item in items
        if item.get("role") == "user" and item.get("type") in (None, "message")
    ]
