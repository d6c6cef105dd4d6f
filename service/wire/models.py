"""``GET /v1/models`` and ``GET /v1/models/{id}``."""

from __future__ import annotations

import datetime
from typing import Annotated

import msgspec
from msgspec import Meta

from service.errors import InvalidRequestError


class ModelCard(msgspec.Struct, frozen=True, kw_only=True):
    """``created``: Unix seconds at which this server began to serve it. ``max_model_len``: prompt
    plus output, in tokens; ``architecture``: as in config.json, or ``simulated`` if no model is
    loaded; ``implementation``: whose code computes it, ``native``, ``transformers``
    or ``simulated``; ``quantization``: how its weights are stored in few bits, empty for floats;
    ``unserved_inputs``: what its checkpoint reads besides text (image, video, audio), which is not
    supported here;
    ``tasks``: the supported ones of generate, embed and score. All are None while the model
    loads."""

    id: str
    object: str = "model"
    created: int
    owned_by: str = "quire"
    root: str
    max_model_len: int | None
    architecture: str | None
    implementation: str | None
    quantization: str | None
    unserved_inputs: tuple[str, ...] | None
    tasks: tuple[str, ...] | None


class ModelList(msgspec.Struct, frozen=True, kw_only=True):
    object: str = "list"
    data: list[ModelCard]


class AnthropicModel(msgspec.Struct, frozen=True, kw_only=True):
    """The model card in Anthropic's format."""

    type: str = "model"
    id: str
    display_name: str
    created_at: str
    lifecycle: str = "active"
    max_input_tokens: int | None
    max_tokens: int | None


class AnthropicModelList(msgspec.Struct, frozen=True, kw_only=True):
    data: list[AnthropicModel]
    has_more: bool
    first_id: str | None
    last_id: str | None


class ModelPage(msgspec.Struct, frozen=True, kw_only=True):
    """The requested part of the list: after or before a model that it names."""

    limit: Annotated[int, Meta(ge=1, le=1000)] = 20
    after_id: str | None = None
    before_id: str | None = None


def anthropic_model(card: ModelCard) -> AnthropicModel:
    created = datetime.datetime.fromtimestamp(card.created, datetime.UTC)
    return AnthropicModel(
        id=card.id,
        display_name=card.id,
        created_at=created.strftime("%Y-%m-%dT%H:%M:%SZ"),
        max_input_tokens=card.max_model_len,
        max_tokens=card.max_model_len,
    )


def anthropic_models(cards: list[ModelCard], query: dict[str, str]) -> AnthropicModelList:
    """Raises InvalidRequestError for an invalid query."""
    known = {name: query[name] for name in ("limit", "after_id", "before_id") if name in query}
    try:
        page = msgspec.convert(known, ModelPage, strict=False)
    except msgspec.ValidationError as error:
        raise InvalidRequestError(f"The query is not as expected: {error}.") from None
    names = [card.id for card in cards]
    start, end = 0, len(names)
    for name in (page.after_id, page.before_id):
        if name is not None and name not in names:
            raise InvalidRequestError(f"There is no model '{name[:80]}' to page from.")
    if page.after_id is not None:
        start = names.index(page.after_id) + 1
    if page.before_id is not None:
        end = names.index(page.before_id)
        start = max(start, end - page.limit)
    shown = [anthropic_model(card) for card in cards[start : min(end, start + page.limit)]]
    more = start > 0 if page.before_id is not None else start + len(shown) < end
    return AnthropicModelList(
        data=shown,
        has_more=more,
        first_id=shown[0].id if shown else None,
        last_id=shown[-1].id if shown else None,
    )
