"""The Litestar application of one API worker."""

from __future__ import annotations

from pathlib import Path

import structlog
from litestar import Litestar
from litestar.datastructures import State
from litestar.types import (
    LifeSpanReceive,
    LifeSpanScope,
    LifeSpanSend,
    Receive,
    Scope,
    Send,
)

from service.checkpoint import load_checkpoint
from service.engine_link import EngineLink
from service.generation.admission import Admission, Drain
from service.generation.constraint_trial import GrammarTrial
from service.generation.generator import Generator
from service.generation.run import RunLimits, RunRegistry
from service.observer import Telemetry
from service.routes.chat import chat_completions
from service.routes.completions import completions
from service.routes.embeddings import embeddings
from service.routes.event_stream import SERVER_SEND
from service.routes.exchange import ExchangeMiddleware, KeyRing
from service.routes.failures import respond_to_failure
from service.routes.messages import count_tokens, messages
from service.routes.models import list_models, retrieve_model
from service.routes.openapi import build_document
from service.routes.operations import live, metrics, ready
from service.routes.pages import docs, landing, openapi
from service.routes.replay import resume_stream
from service.routes.rerank import rerank, score
from service.routes.responses import create_response
from service.routes.responses_stored import (
    cancel_response,
    delete_response,
    list_input_items,
    retrieve_response,
)
from service.routes.services import Services
from service.routes.tokenize import detokenize, tokenize
from service.settings import ServiceSettings
from service.store.schema import database_url, secret_dir
from service.store.secret import load_secret
from service.store.store import ResponseStore, StoreLimits
from service.version import VERSION
from service.wire.responses_seal import ReasoningSeal
from service.wire.signatures import Signer

_log = structlog.get_logger()

ROUTES = (
    *(chat_completions, completions, list_models, retrieve_model, tokenize, detokenize),
    *(create_response, retrieve_response, delete_response, cancel_response, list_input_items),
    *(embeddings, rerank, score),
    *(resume_stream, messages, count_tokens, ready, live, metrics, landing, docs, openapi),
)


class App(Litestar):
    """Litestar, remembering the HTTP server's own ``send`` for streams."""

    async def __call__(
        self,
        scope: Scope | LifeSpanScope,
        receive: Receive | LifeSpanReceive,
        send: Send | LifeSpanSend,
    ) -> None:
        if scope["type"] != "lifespan":
            scope.setdefault("state", {})[SERVER_SEND] = send
        await super().__call__(scope, receive, send)


def create_app(
    settings: ServiceSettings, *, model_dir: Path, socket_path: Path, telemetry: Telemetry
) -> Litestar:
    """``state.services`` holds what routes use, ``state.drain`` ends the worker's life gently.

    The engine behind ``socket_path`` may come up later. Raises OSError or ValueError for a model
    directory whose tokenizer or template cannot be used, or a store that is none of ours.
    """
    checkpoint = load_checkpoint(
        model_dir,
        tool_call_parser=settings.tool_call_parser,
        reasoning_parser=settings.reasoning_parser,
    )
    _log.info("output format", format=checkpoint.output_format.name or "plain text")
    link = EngineLink(socket_path, on_step=telemetry.on_step, on_state=telemetry.on_state)
    drain = Drain(settings.drain_timeout)
    store_url = None if settings.store_url == "none" else database_url(settings.store_url)
    store = ResponseStore(
        store_url,
        StoreLimits(
            responses=settings.store_max_responses,
            bytes=settings.store_max_bytes,
            ttl=settings.store_ttl,
        ),
    )
    services = Services(
        settings=settings,
        names=settings.names(model_dir),
        checkpoint=checkpoint,
        link=link,
        generator=Generator(link, checkpoint),
        admission=Admission(settings, link, drain),
        drain=drain,
        telemetry=telemetry,
        grammar_trial=GrammarTrial(model_dir),
        signer=Signer(settings.signing_key or ""),
        store=store,
        runs=RunRegistry(
            RunLimits(
                timeout=settings.resume_timeout,
                run_bytes=settings.resume_stream_bytes,
                total_bytes=settings.resume_total_bytes,
            )
        ),
        seal=ReasoningSeal(load_secret(settings.signing_key, secret_dir(store_url))),
    )
    keys = KeyRing(settings.api_key)
    document = build_document(version=VERSION, needs_key=bool(keys))

    async def start_link(_app: Litestar) -> None:
        link.start()
        store.open()

    async def close_link(_app: Litestar) -> None:
        await link.close()
        await services.runs.close()
        await store.close()
        await services.grammar_trial.close()

    return App(
        route_handlers=list(ROUTES),
        middleware=[
            ExchangeMiddleware(keys, telemetry, drain, patience=settings.slow_reader_timeout)
        ],
        exception_handlers={Exception: respond_to_failure},
        on_startup=[start_link],
        on_shutdown=[close_link],
        state=State({"services": services, "drain": drain, "openapi": document}),
        openapi_config=None,
        logging_config=None,
        debug=False,
    )
