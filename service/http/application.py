"""Litestar's application: every route, and what surrounds them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from litestar import Litestar
from litestar.datastructures import State
from litestar.plugins import PluginProtocol
from litestar.types import (
    LifeSpanReceive,
    LifeSpanScope,
    LifeSpanSend,
    Receive,
    Scope,
    Send,
)

from observability import connection_metrics
from observability.metrics import MetricRegistry
from service.http.call import HttpCall
from service.http.chat import chat_completions
from service.http.completions import completions
from service.http.connections import Connections
from service.http.door import Door, first_segments
from service.http.embeddings import embeddings
from service.http.failures import respond_to_failure
from service.http.forwarding import Forwarding
from service.http.messages import count_tokens, messages
from service.http.middleware import ExchangeMiddleware
from service.http.models import list_models, retrieve_model
from service.http.openapi import build_document
from service.http.operations import live, metrics, ready
from service.http.origins import OriginRules
from service.http.pages import docs, landing, openapi
from service.http.replay import resume_stream
from service.http.rerank import rerank, score
from service.http.responses.compact import compact_response, count_input_tokens
from service.http.responses.create import create_response
from service.http.responses.socket import SOCKET, ResponsesSockets
from service.http.responses.stored import (
    cancel_response,
    delete_response,
    list_input_items,
    retrieve_response,
)
from service.http.serves import served_by
from service.http.tokenize import detokenize, tokenize, tokenizer_info
from service.http.unrouted import KnownRoutes
from service.routes.tables import PUBLIC
from service.serving.access import Access
from service.serving.connection_limits import ConnectionLimits
from service.serving.services import Services
from service.settings import ServiceSettings
from service.version import VERSION

HANDLERS = (
    *(chat_completions, completions, list_models, retrieve_model, tokenize, detokenize),
    *(create_response, retrieve_response, delete_response, cancel_response, list_input_items),
    *(compact_response, count_input_tokens),
    *(embeddings, rerank, score, tokenizer_info),
    *(resume_stream, messages, count_tokens, ready, live, metrics, landing, docs, openapi),
)


class App(Litestar):
    """Wraps Litestar in a ``Door``, which does once what is the same for every route.

    Paths also work without ``/v1``, HEAD is GET without a body, every response has CORS headers,
    and a client that does not read its answer is cut off.
    """

    door: Door
    exchanges: ExchangeMiddleware
    sockets: ResponsesSockets

    @staticmethod
    def _get_default_plugins(plugins: list[PluginProtocol]) -> list[PluginProtocol]:
        # Litestar's own plugins are for pydantic and attrs models and would import these libraries
        # wherever they are installed. If this were no longer called, only startup would be slower.
        return plugins

    @property
    def patience(self) -> float:
        """Seconds that a client may block one write of its answer."""
        return self.door.patience

    @patience.setter
    def patience(self, seconds: float) -> None:
        self.door.patience = self.exchanges.patience = seconds

    async def __call__(
        self,
        scope: Scope | LifeSpanScope,
        receive: Receive | LifeSpanReceive,
        send: Send | LifeSpanSend,
    ) -> None:
        # The scope determines which of the types it is.
        arguments: tuple[Any, Any, Any] = (scope, receive, send)
        match str(scope["type"]):
            case "http":
                await self.door.serve(super().__call__, *arguments)
            case "websocket":
                await self.sockets.serve(*arguments)
            case _:
                await super().__call__(*arguments)


def _connections(settings: ServiceSettings, metrics: MetricRegistry) -> Connections:
    most = ConnectionLimits.of(settings).http
    metrics[connection_metrics.CONNECTION_LIMIT].labels().set(most)
    return Connections(
        idle_timeout=settings.idle_timeout,
        first_timeout=settings.receive_timeout,
        most=most,
        on_count=metrics[connection_metrics.OPEN_CONNECTIONS].labels().set,
    )


def make_app(
    services: Services,
    *,
    on_startup: Callable[[], Awaitable[None]],
    on_shutdown: Callable[[], Awaitable[None]],
) -> App:
    """``state.services`` holds what routes use, ``state.drain`` shuts the worker down gracefully,
    ``state.connections`` monitors open client connections."""
    settings = services.settings
    PUBLIC.check_served([SOCKET, *served_by(HANDLERS)])
    keys = services.keys
    access = Access(keys, services.key_sources.look_early)
    document = build_document(version=VERSION, needs_key=bool(keys))
    origins = OriginRules.of(
        host=settings.host,
        keys=bool(keys),
        allowed_hosts=settings.allowed_hosts,
        allowed_origins=settings.allowed_origins,
    )
    connections = _connections(settings, services.telemetry.metrics)
    exchanges = _exchanges(services, access, origins)
    app = App(
        route_handlers=list(HANDLERS),
        middleware=[exchanges],
        exception_handlers={Exception: respond_to_failure},
        on_startup=[on_startup],
        on_shutdown=[on_shutdown],
        state=State(
            {
                "services": services,
                "drain": services.drain,
                "openapi": document,
                "connections": connections,
                "routes": KnownRoutes(
                    (route.method, route.template) for route in served_by(HANDLERS)
                ),
            }
        ),
        request_class=HttpCall,
        openapi_config=None,
        logging_config=None,
        debug=False,
    )
    app.exchanges = exchanges
    app.door = Door(
        origins,
        connections,
        versioned=first_segments(route.path for route in PUBLIC),
        patience=settings.slow_reader_timeout,
    )
    app.sockets = ResponsesSockets(app, services, access, origins, connections)
    return app


def _exchanges(services: Services, access: Access, origins: OriginRules) -> ExchangeMiddleware:
    settings = services.settings
    return ExchangeMiddleware(
        access,
        origins,
        services.telemetry,
        services.drain,
        patience=settings.slow_reader_timeout,
        keep_alive=settings.stream_keep_alive,
        receive_timeout=settings.receive_timeout,
        upload_room=services.upload_room,
        answer_room=services.answer_room,
        exchanges=services.exchanges,
        refuse_unknown=settings.unknown_fields == "refuse",
        metering=services.metering,
        ids=services.ids,
        forwarding=Forwarding(services.peers, services.drain) if services.peers else None,
    )
