"""Assembles the application of one API worker."""

from __future__ import annotations

import asyncio
import secrets
from pathlib import Path

from observability.logging import get_logger
from service.admission.admission import Admission
from service.admission.drain import Drain
from service.checkpoint.checkpoint import Checkpoint, load_checkpoint
from service.constraint.trial import GrammarTrial
from service.engine.link import EngineLink
from service.generation.generator import Generator
from service.generation.run import RunLimits, RunRegistry
from service.http.application import App, make_app
from service.preparation.jobs import Limits, Setup
from service.preparation.preparation import Preparation
from service.preparation.processes import PreparationProcesses, arguments_for
from service.preparation.work import Model
from service.serving.services import Services
from service.settings import ServiceSettings
from service.store.place import StorePlace, secret_dir, store_place
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
    """Create the app. ``state.services`` has what routes use; ``state.drain`` shuts it down
    gracefully.

    The engine on ``socket_path`` may start later. The caller opens ``state.services.store``; it is
    closed with the app. Raises OSError or ValueError if the model directory's tokenizer or template
    is unusable, or the store was created by another program.
    """
    checkpoint = load_checkpoint(
        model_dir,
        tool_call_parser=settings.tool_call_parser,
        reasoning_parser=settings.reasoning_parser,
    )
    _log.info("output format", format=checkpoint.output_format.name or "plain text")
    services = _services(settings, checkpoint, model_dir, socket_path, telemetry, supervision)
    warming_up: list[asyncio.Task[None]] = []

    async def start() -> None:
        services.link.start()
        warming_up.append(asyncio.create_task(services.preparation.warm_up(), name="warm-up"))

    async def stop() -> None:
        warming_up.pop().cancel()
        await services.link.close()
        await services.runs.close()
        await services.store.close()
        await services.preparation.close()

    return make_app(services, on_startup=start, on_shutdown=stop)


def _services(
    settings: ServiceSettings,
    checkpoint: Checkpoint,
    model_dir: Path,
    socket_path: Path,
    telemetry: Telemetry,
    supervision: Supervision | None,
) -> Services:
    link = EngineLink(
        socket_path,
        on_step=telemetry.on_step,
        on_state=telemetry.on_state,
        restart_timeout=settings.engine_restart_timeout,
    )
    supervision = supervision or Supervision(None)
    drain = Drain(settings.drain_timeout)
    place = None if settings.store_url == "none" else store_place(settings.store_url)
    sealing_key = load_secret(settings.signing_key, secret_dir(place))
    signing_key = settings.signing_key or secrets.token_urlsafe(32)
    setup = Setup(
        signing_key=signing_key,
        sealing_key=sealing_key,
        template_writes=checkpoint.template_writes,
    )
    model = Model(checkpoint, Signer(signing_key), ReasoningSeal(sealing_key))
    limits = Limits(
        names=settings.names(model_dir),
        max_choices=settings.max_choices,
        refuse_unknown=settings.unknown_fields == "refuse",
    )
    return Services(
        settings=settings,
        limits=limits,
        checkpoint=checkpoint,
        link=link,
        generator=Generator(link, checkpoint),
        admission=Admission(settings, link, drain, supervision),
        drain=drain,
        supervision=supervision,
        telemetry=telemetry,
        preparation=_preparation(settings, limits, model, model_dir, setup),
        signer=model.signer,
        store=_store(settings, place),
        runs=_runs(settings),
        seal=model.seal,
        metrics_pages=ScrapePages(telemetry.exposition_pieces),
        upload_room=UploadRoom.for_bodies(settings.max_body_bytes),
        answer_room=UploadRoom.for_answers(settings.max_body_bytes),
    )


def _preparation(
    settings: ServiceSettings, limits: Limits, model: Model, model_dir: Path, setup: Setup
) -> Preparation:
    arguments = arguments_for(
        model_dir,
        tool_call_parser=settings.tool_call_parser,
        reasoning_parser=settings.reasoning_parser,
    )
    processes = PreparationProcesses(arguments, setup)
    return Preparation(model, limits, processes, GrammarTrial(model_dir))


def _store(settings: ServiceSettings, place: StorePlace | None) -> ResponseStore:
    limits = StoreLimits(
        responses=settings.store_max_responses,
        bytes=settings.store_max_bytes,
        ttl=settings.store_ttl,
    )
    return ResponseStore(place, limits)


def _runs(settings: ServiceSettings) -> RunRegistry:
    limits = RunLimits(
        timeout=settings.resume_timeout,
        run_bytes=settings.resume_stream_bytes,
        total_bytes=settings.resume_total_bytes,
    )
    return RunRegistry(limits)
