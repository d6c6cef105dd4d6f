"""``GET /v1/models`` and ``GET /v1/models/{id}``, in Anthropic's shape for its clients."""

from __future__ import annotations

import msgspec
from litestar import Response, get
from litestar.datastructures import State
from litestar.params import FromPath

from service.http.answering import HttpRequest, exchange_of, respond
from service.http.headers import header
from service.http.services import Services
from service.wire.models import ModelCard, ModelList, anthropic_model, anthropic_models


def model_card(services: Services, name: str) -> ModelCard:
    """What clients are told of a model; ``name``: the one of its names that they ask for."""
    ready = services.link.state.ready
    return ModelCard(
        id=name,
        created=services.started,
        root=services.names[0],
        max_model_len=None if ready is None else ready.max_model_len,
        architecture=None if ready is None else ready.architecture,
        tasks=services.tasks,
    )


@get("/v1/models", opt={"route": "models"})
async def list_models(request: HttpRequest, state: State) -> Response[bytes]:
    services: Services = state.services
    exchange = exchange_of(request)
    cards = [model_card(services, name) for name in services.names]
    if _asks_as_anthropic(request):
        page = anthropic_models(cards, dict(request.query_params))
        exchange.succeed("stop")
        return respond(exchange, msgspec.json.encode(page))
    exchange.succeed("stop")
    return respond(exchange, msgspec.json.encode(ModelList(data=cards)))


def _asks_as_anthropic(request: HttpRequest) -> bool:
    return bool(header(request.scope, b"anthropic-version"))


@get("/v1/models/{model_id:path}", opt={"route": "models"})
async def retrieve_model(
    request: HttpRequest, state: State, model_id: FromPath[str]
) -> Response[bytes]:
    services: Services = state.services
    exchange = exchange_of(request)
    # Names may hold slashes, hence a path, which comes with one in front.
    name = services.model_name(str(model_id).removeprefix("/"))
    exchange.record.model = name
    exchange.succeed("stop")
    card = model_card(services, name)
    if _asks_as_anthropic(request):
        return respond(exchange, msgspec.json.encode(anthropic_model(card)))
    return respond(exchange, msgspec.json.encode(card))
