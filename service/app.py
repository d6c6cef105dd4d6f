"""The application of one API worker, put together from its parts."""

from __future__ import annotations

import asyncio
import secrets
from pathlib import Path

from observability.logging import get_logger
from service.checkpoint.checkpoint import load_checkpoint
from service.constraint.trial import GrammarTrial
from service.engine.link import EngineLink
from service.generation.admission import Admission, Drain
from service.generation.generator import Generator
from service.generation.run import RunLimits, RunRegistry
from service.http.application import App, make_app
from service.preparation.jobs import Setup
from service.preparation.processes import Preparation, arguments_for
from service.preparation.work import Model
from service.serving.services import Services
from service.settings import ServiceSettings
from service.store.place import secret_dir, store_place
from service.store.secret import load_secret
from service.store.store import ResponseStore, StoreLimits
from service.supervision.page import Supervision
from service.telemetry.observer import Telemetry
from service.telemetry.scrape import ScrapePages
from service.tenants.upload_room import UploadRoom
from service.wire.messages.signatures import Signer
from service.wire.responses.seal import ReasoningSeal

_log = get_logger()


def create_app(
    settings: ServiceSettings,
    *,
    model_dir: Path,
    socket_path: Path,
    telemetry: Telemetry,
    supervision: Supervision | None = None,
) -> App:
    """``state.services`` holds what routes use, ``state.drain`` ends the worker's life gently.

    The engine behind ``socket_path`` may come up later. ``state.services.store`` is the caller's
    to open, and closed with the app. Raises OSError or ValueError for a model directory whose
    tokenizer or template cannot be used, or a store that is none of ours.
    """
    checkpoint = load_checkpoint(
        model_dir,
        tool_call_parser=settings.tool_call_parser,
        reasoning_parser=settings.reasoning_parser,
    )
    _log.info("output format", format=checkpoint.output_format.name or "plain text")
    link = EngineLink(
        socket_path,
        on_step=telemetry.on_step,
        on_state=telemetry.on_state,
        restart_timeout=settings.engine_restart_timeout,
    )
    supervision = supervision or Supervision(None)
    drain = Drain(settings.drain_timeout)
    place = None if settings.store_url == "none" else store_place(settings.store_url)
    setup = Setup(
        signing_key=settings.signing_key or secrets.token_urlsafe(32),
        sealing_key=load_secret(settings.signing_key, secret_dir(place)),
        template_writes=checkpoint.template_writes,
    )
    signer, seal = Signer(setup.signing_key), ReasoningSeal(setup.sealing_key)
    preparation = Preparation(
        Model(checkpoint, signer, seal),
        arguments_for(
            model_dir,
            tool_call_parser=settings.tool_call_parser,
            reasoning_parser=settings.reasoning_parser,
        ),
        setup,
    )
    services = Services(
        settings=settings,
        names=settings.names(model_dir),
        checkpoint=checkpoint,
        link=link,
        generator=Generator(link, checkpoint),
        admission=Admission(settings, link, drain, supervision),
        drain=drain,
        supervision=supervision,
        telemetry=telemetry,
        preparation=preparation,
        grammar_trial=GrammarTrial(model_dir),
        signer=signer,
        store=ResponseStore(
            place,
            StoreLimits(
                responses=settings.store_max_responses,
                bytes=settings.store_max_bytes,
                ttl=settings.store_ttl,
            ),
        ),
        runs=RunRegistry(
            RunLimits(
                timeout=settings.resume_timeout,
                run_bytes=settings.resume_stream_bytes,
                total_bytes=settings.resume_total_bytes,
            )
        ),
        seal=seal,
        metrics_pages=ScrapePages(telemetry.exposition_pieces),
        upload_room=UploadRoom.for_bodies(settings.max_body_bytes),
        answer_room=UploadRoom.for_answers(settings.max_body_bytes),
    )

    warming_up: list[asyncio.Task[None]] = []

    async def start() -> None:
        link.start()
        warming_up.append(asyncio.create_task(services.preparation.warm_up(), name="warm-up"))

    async def stop() -> None:
        warming_up.pop().cancel()
        await link.close()
        await services.runs.close()
        await services.store.close()
        await services.grammar_trial.close()
        await services.preparation.close()

    return make_app(services, on_startup=start, on_shutdown=stop)
