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
) -> list[JsonObject]:
    """Return ``items`` with each item_reference replaced by its target, in ``history`` or in one of
    the ``referred`` responses. Raises InvalidRequestError or NotFoundError."""
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
            response_id = f"resp_{match[1]}"
            if response_id not in referred:
                raise NotFoundError(
                    f"Response with id '{response_id[:80]}' not found.", param=param
                )
            known |= {
                each["id"]: each
                for each in conversation_of(referred[response_id])
                if isinstance(each.get("id"), str)
            }
        if item_id not in known:
            raise NotFoundError(f"Item with id '{item_id[:80]}' not found.", param=param)
        found.append(known[item_id])
    return found


def _is_reference(item: JsonObject) -> bool:
    kind = item.get("type")
    return kind == "item_reference" or (kind is None and "id" in item and "role" not in item)
