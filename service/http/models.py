"""``GET /v1/models`` and ``GET /v1/models/{id}``, in Anthropic's shape for its clients."""

from __future__ import annotations

import msgspec
from litestar import Response
from litestar.params import FromPath

from service.http.call import HttpCall
from service.http.scope import is_from_anthropics_client
from service.http.serves import serves
from service.serving.model_cards import model_card, model_cards
from service.wire.models import ModelList, anthropic_model, anthropic_models


@serves("GET /v1/models")
async def list_models(request: HttpCall) -> Response[bytes]:
    cards = model_cards(request.requester)
    if is_from_anthropics_client(request.scope):
        page = anthropic_models(cards, dict(request.query_params))
        return request.answer(msgspec.json.encode(page))
    return request.answer(msgspec.json.encode(ModelList(data=cards)))


@serves("GET /v1/models/{model_id:path}")
async def retrieve_model(request: HttpCall, model_id: FromPath[str]) -> Response[bytes]:
    # Names may contain slashes, hence the path type, which adds a leading slash.
    client = request.requester
    name = client.limits.model_name(str(model_id).removeprefix("/"))
    request.exchange.record.model = name
    card = model_card(client, name)
    if is_from_anthropics_client(request.scope):
        return request.answer(msgspec.json.encode(anthropic_model(card)))
    return request.answer(msgspec.json.encode(card))
