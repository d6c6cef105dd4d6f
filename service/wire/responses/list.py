"""Lists the input items of a stored response."""

from __future__ import annotations

from typing import Literal

import msgspec

from service.conversation import JsonObject
from service.errors import InvalidRequestError


class ItemList(msgspec.Struct, frozen=True, kw_only=True):
    object: Literal["list"] = "list"
    data: list[JsonObject]
    first_id: str | None
    last_id: str | None
    has_more: bool


def item_page(items: list[JsonObject], limit: int, after: str | None) -> ItemList:
    """Return at most ``limit`` items after the one with the id ``after``. Raises
    InvalidRequestError if there is no such item."""
    start = 0
    if after is not None:
        places = [index for index, item in enumerate(items) if item["id"] == after]
        if not places:
            raise InvalidRequestError(f"There is no item '{after[:80]}'.", param="after")
        start = places[0] + 1
    page = items[start : start + limit]
    return ItemList(
        data=page,
        first_id=page[0]["id"] if page else None,
        last_id=page[-1]["id"] if page else None,
        has_more=len(items) > start + limit,
    )
