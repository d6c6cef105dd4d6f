"""``GET /v1/models`` and ``GET /v1/models/{id}``, in Anthropic's shape for its clients."""

from __future__ import annotations

import msgspec
from litestar import Response, get
from litestar.params import FromPath

from service.http.call import HttpCall
from service.http.scope import header
from service.serving.model_cards import model_card
from service.wire.models import ModelList, anthropic_model, anthropic_models


@get("/v1/models", opt={"route": "models"})
async def list_models(request: HttpCall) -> Response[bytes]:
    services = request.services
    cards = [model_card(services, name) for name in services.limits.names]
    if _asks_as_anthropic(request):
        page = anthropic_models(cards, dict(request.query_params))
        return request.answer(msgspec.json.encode(page))
    return request.answer(msgspec.json.encode(ModelList(data=cards)))


def _asks_as_anthropic(request: HttpCall) -> bool:
    return bool(header(request.scope, b"anthropic-version"))


@get("/v1/models/{model_id:path}", opt={"route": "models"})
async def retrieve_model(request: HttpCall, model_id: FromPath[str]) -> Response[bytes]:
    # Names may contain slashes, hence the path type, which adds a leading slash.
    name = request.services.limits.model_name(str(model_id).removeprefix("/"))
    request.exchange.record.model = name
    card = model_card(request.services, name)
    if _asks_as_anthropic(request):
        return request.answer(msgspec.json.encode(anthropic_model(card)))
    return request.answer(msgspec.json.encode(card))
