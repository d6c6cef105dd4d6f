"""Resolves a Responses request's references to stored responses."""

from __future__ import annotations

import re
from typing import Any

import msgspec

from service.conversation import JsonObject
from service.errors import InvalidRequestError, NotFoundError
from service.preparation.jobs import History, Needs, Noted
from service.wire.responses.conversation import own_items
from service.wire.responses.request import ResponsesRequest

# With what clients can do without a store. For the AI SDK's default provider it is not obvious.
NO_STORE = (
    "This server stores no responses (--store-url none). Send 'store': false (AI SDK: "
    "providerOptions.openai.store = false) and the items themselves, or start the server with a "
    "store."
)
_ITEM_ID = re.compile(r"[a-z]+_([0-9a-f]{32})_i?\d{1,6}\Z")


def needs_of(request: ResponsesRequest, noted: Noted) -> Needs | None:
    """Return the stored responses that the request refers to; None if there are none."""
    referred = dict.fromkeys(
        f"resp_{match[1]}"
        for item in own_items(request)
        if _is_reference(item)
        and isinstance(item_id := item.get("id"), str)
        and (match := _ITEM_ID.match(item_id))
    )
    if request.previous_response_id is None and not referred:
        return None
    return Needs(
        noted=noted,
        request=request,
        previous=request.previous_response_id,
        referred=list(referred),
    )


def conversation_of(stored: History) -> list[JsonObject]:
    """Return all items up to and including the answer."""
    output = msgspec.json.decode(stored.body, type=_Output).output
    return [*stored_items(stored.context), *stored_items(stored.input), *output]


class _Output(msgspec.Struct):
    output: list[dict[str, Any]]


def stored_items(data: bytes) -> list[JsonObject]:
    return msgspec.json.decode(data, type=list[dict[str, Any]])


def resolved(
    items: list[JsonObject],
    history: list[JsonObject],
    referred: dict[str, History],
    *,
    has_store: bool = True,
) -> list[JsonObject]:
    """Return ``items`` with each item_reference replaced by its target, in ``history`` or in one of
    the ``referred`` responses. Raises InvalidRequestError or NotFoundError; its message says
    so if there is no store."""
    if not any(map(_is_reference, items)):
        return items
    known = {item["id"]: item for item in history if isinstance(item.get("id"), str)}
    found: list[JsonObject] = []
    for index, item in enumerate(items):
        if not _is_reference(item):
            found.append(item)
            continue
        param = f"input[{index}].id"
        item_id = item.get("id")
        if not isinstance(item_id, str):
            raise InvalidRequestError(f"Missing required parameter: '{param}'.", param=param)
        if item_id not in known and (match := _ITEM_ID.match(item_id)) is not None:
            stored = referred.get(f"resp_{match[1]}")
            known |= {
                each["id"]: each
                for each in (() if stored is None else conversation_of(stored))
                if isinstance(each.get("id"), str)
            }
        if item_id not in known:
            raise NotFoundError(missing(f"Item with id '{item_id[:80]}'", has_store), param=param)
        found.append(known[item_id])
    return found


def missing(what: str, has_store: bool) -> str:
    """Return the message that ``what`` was not found."""
    return f"{what} not found." if has_store else f"{what} not found. {NO_STORE}"


def _is_reference(item: JsonObject) -> bool:
    kind = item.get("type")
    return kind == "item_reference" or (kind is None and "id" in item and "role" not in item)
