"""Assembles the application of one API worker."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Coroutine, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from observability import store_metrics
from observability.logging import get_logger
from service.admission.admission import Admission
from service.admission.drain import Drain
from service.checkpoint.checkpoint import Checkpoint, load_checkpoint
from service.checkpoint.defaults import GENERATION
from service.constraint.trial import GrammarTrial
from service.engine.engines import Engines
from service.engine.pool import connect_engines
from service.engine.silence import SilenceLog
from service.generation.generator import Generator
from service.generation.run import RunLimits, RunRegistry
from service.http.application import App, make_app
from service.http.responses.lifecycle import stop_deleted
from service.overview.overviews import Overviews
from service.overview.ring import Ring
from service.overview.watch import WatchedParts
from service.peers.peers import Peers
from service.preparation.jobs import Limits, Setup
from service.preparation.preparation import Preparation
from service.preparation.processes import PreparationProcesses, arguments_for
from service.preparation.work import Model
from service.records.records import Records
from service.serving.key_sources import KeySources
from service.serving.keys import KeyRing
from service.serving.limit_sharing import LimitSharing
from service.serving.metering import Metering
from service.serving.services import Services
from service.settings import ServiceSettings
from service.store.archive import ArchiveSources, RequestArchive
from service.store.condition import StoreWatch
from service.store.key_store import KeyStore
from service.store.limit_store import LimitStore
from service.store.place import StorePlace, secret_dir, store_place
from service.store.secret import load_secret
from service.store.store import ResponseStore, StoreLimits
from service.store.sweep import ArchiveLimits
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
    records: Records | None = None,
    ring: Ring | None = None,
    sources: ArchiveSources | None = None,
    metering: Metering | None = None,
    peers: Peers | None = None,
    other_sockets: Sequence[Path] = (),
) -> App:
    """Create the app. ``state.services`` has what routes use; ``state.drain`` shuts it down
    gracefully. ``records``: those that ``telemetry`` reports requests to. ``ring``: the history's
    memory, which may have that of the worker before. ``sources``: what it keeps for the database.
    ``peers``: the server's other workers. The engine on ``socket_path`` and those on
    ``other_sockets`` may start later. The caller opens ``state.services.store`` and then
    ``archive``; both are closed with the app. Raises OSError or ValueError if the model's tokenizer
    or template is unusable, or the store another program's.
    """
    checkpoint = load_checkpoint(
        model_dir,
        tool_call_parser=settings.tool_call_parser,
        reasoning_parser=settings.reasoning_parser,
    )
    for one in checkpoint.ignored_defaults:
        _log.warning("a sampling default of the model is ignored", file=GENERATION, **one._asdict())
    _log.info("output format", format=checkpoint.output_format.name or "plain text")
    services = _services(
        settings,
        checkpoint,
        model_dir,
        (socket_path, *other_sockets),
        telemetry,
        supervision,
        Ring() if ring is None else ring,
        Records() if records is None else records,
        Metering() if metering is None else metering,
    )
    if peers is not None:
        services = replace(services, ids=peers.ids, peers=peers)
    if sources is not None:
        archive = _archive(settings, services, sources)
        services = replace(services, archive=archive)
    _inform(telemetry, services)
    silence = SilenceLog(services.link, services.supervision, settings.engine_silence_timeout)
    background: list[asyncio.Task[None]] = []

    async def start() -> None:
        services.link.start()
        background.extend(map(_begin, (silence.run(), *_works(services))))

    async def stop() -> None:
        while background:
            background.pop().cancel()
        await _close(services)

    return make_app(services, on_startup=start, on_shutdown=stop)


def _begin(work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
    task = asyncio.create_task(work)
    task.add_done_callback(_report)
    return task


def _report(task: asyncio.Task[None]) -> None:
    """Log the error of a background task, because that is a bug."""
    if not task.cancelled() and (error := task.exception()) is not None:
        _log.error("a background task failed", exc_info=error)


async def _close(services: Services) -> None:
    services.drain.begin()
    await services.link.close()
    await services.runs.close()
    await services.key_sources.close()
    if services.archive is not None:
        await services.archive.close()
    await services.store.close()
    await services.preparation.close()


def _works(services: Services) -> Iterator[Coroutine[Any, Any, None]]:
    """Yield what services do in the background."""
    yield services.preparation.warm_up()
    yield services.overviews.run()
    if services.settings.keys_change:
        yield services.key_sources.run()
        yield services.metering.follow(services.keys, services.archive)
        place = services.store.place
        if place is not None and place.backend == "postgresql":
            yield _share_limits(services, place)


async def _share_limits(services: Services, place: StorePlace) -> None:
    store = LimitStore(place)
    supervision = services.supervision
    sharing = LimitSharing(
        services.metering,
        services.keys,
        store,
        lambda: supervision.leads,
        on_alone=_unavailable(services.telemetry, "limits"),
    )
    try:
        await sharing.run()
    finally:
        await store.close()


def _services(
    settings: ServiceSettings,
    checkpoint: Checkpoint,
    model_dir: Path,
    sockets: Sequence[Path],
    telemetry: Telemetry,
    supervision: Supervision | None,
    ring: Ring,
    records: Records,
    metering: Metering,
) -> Services:
    link = _engines(settings, sockets, telemetry)
    supervision = supervision or Supervision(None)
    drain = Drain(settings.drain_timeout)
    place = _place(settings, supervision)
    setup = _setup(settings, place, checkpoint, supervision)
    model = Model(checkpoint, Signer(setup.signing_key), ReasoningSeal(setup.sealing_key))
    limits = _limits(settings, model_dir)
    runs = _runs(settings)
    store = _store(settings, place, supervision, partial(stop_deleted, runs), telemetry)
    trial = GrammarTrial(model_dir)
    keys = KeyRing(settings.keys, settings.tracing_key, changes=settings.keys_change)
    parts = WatchedParts(
        settings,
        link,
        drain,
        supervision,
        telemetry.metrics,
        telemetry.observed,
        records.live,
        trial,
    )
    admission = Admission(settings, link, drain, supervision)
    return Services(
        settings=settings,
        limits=limits,
        checkpoint=checkpoint,
        link=link,
        generator=Generator(link, checkpoint, admission.check_choices),
        admission=admission,
        drain=drain,
        supervision=supervision,
        telemetry=telemetry,
        preparation=_preparation(settings, limits, model, model_dir, setup, trial),
        signer=model.signer,
        store=store,
        runs=runs,
        seal=model.seal,
        metrics_pages=ScrapePages(telemetry.exposition_pieces),
        upload_room=UploadRoom.for_bodies(settings.max_body_bytes),
        answer_room=UploadRoom.for_answers(settings.max_body_bytes),
        overviews=_overviews(parts, ring, limits.names, records),
        records=records,
        keys=keys,
        metering=metering,
        key_sources=_key_sources(settings, keys, store, telemetry),
    )


def _engines(settings: ServiceSettings, sockets: Sequence[Path], telemetry: Telemetry) -> Engines:
    return connect_engines(
        sockets,
        on_step=telemetry.on_step,
        on_state=telemetry.on_state,
        restart_timeout=settings.engine_restart_timeout,
        silence_timeout=settings.engine_silence_timeout,
    )


def _limits(settings: ServiceSettings, model_dir: Path) -> Limits:
    return Limits(
        names=settings.names(model_dir),
        max_choices=settings.max_choices,
        refuse_unknown=settings.unknown_fields == "refuse",
    )


def _key_sources(
    settings: ServiceSettings, keys: KeyRing, store: ResponseStore, telemetry: Telemetry
) -> KeySources:
    place = store.place
    return KeySources(
        keys,
        file=None if settings.keys_file is None else Path(settings.keys_file),
        store=KeyStore(place) if settings.stored_keys and place is not None else None,
        is_up=lambda: store.readable,
        on_away=_unavailable(telemetry, "keys"),
    )


def _inform(telemetry: Telemetry, services: Services) -> None:
    """Let telemetry and the overview read what changes in services while it runs, and the load
    trace learn of each request."""
    services.link.on_submit = services.load_trace.submitted
    services.records.on_ended(services.load_trace.ended)
    telemetry.read_engine(services.engine_figures)
    telemetry.traces.keeping.slo = services.overviews.slo
    services.overviews.health = partial(_health, services.store, services.archive)


def _overviews(
    parts: WatchedParts,
    ring: Ring,
    names: tuple[str, ...],
    records: Records,
) -> Overviews:
    overviews = Overviews(parts, ring, names=names, windows=records.window)
    records.limited_by = lambda: overviews.limited_by
    return overviews


def _setup(
    settings: ServiceSettings,
    place: StorePlace | None,
    checkpoint: Checkpoint,
    supervision: Supervision,
) -> Setup:
    return Setup(
        signing_key=settings.signing_key or supervision.signing_key or secrets.token_urlsafe(32),
        sealing_key=load_secret(settings.signing_key, secret_dir(place)),
        probed=checkpoint.probed,
    )


def _preparation(
    settings: ServiceSettings,
    limits: Limits,
    model: Model,
    model_dir: Path,
    setup: Setup,
    trial: GrammarTrial,
) -> Preparation:
    arguments = arguments_for(
        model_dir,
        tool_call_parser=settings.tool_call_parser,
        reasoning_parser=settings.reasoning_parser,
    )
    waiting = settings.max_waiting_requests
    processes = PreparationProcesses(arguments, setup, most_waiting=waiting)
    return Preparation(model, limits, processes, trial)


def _store(
    settings: ServiceSettings,
    place: StorePlace | None,
    supervision: Supervision,
    on_deleted: Callable[[str], None],
    telemetry: Telemetry,
) -> ResponseStore:
    limits = StoreLimits(
        responses=settings.store_max_responses,
        bytes=settings.store_max_bytes,
        ttl=settings.store_ttl,
    )
    watch = StoreWatch(
        unreadable=_unavailable(telemetry, "read"),
        unwritable=_unavailable(telemetry, "write"),
        unstored=telemetry.metrics[store_metrics.RESPONSES_NOT_STORED].labels().inc,
    )
    return ResponseStore(place, limits, lambda: supervision.leads, on_deleted, watch)


def _unavailable(telemetry: Telemetry, use: str) -> Callable[[bool], None]:
    """Return what sets the gauge of whether the store cannot be used for this."""
    found: Callable[[bool], None] = (
        telemetry.metrics[store_metrics.STORE_UNAVAILABLE].labels(use).set
    )
    return found


def _archive(
    settings: ServiceSettings,
    services: Services,
    sources: ArchiveSources,
) -> RequestArchive:
    limits = ArchiveLimits(
        requests=settings.store_max_requests,
        request_days=settings.store_request_days,
        usage_days=settings.store_usage_days,
    )
    supervision = services.supervision
    return RequestArchive(
        services.store.place,
        limits,
        services.store,
        sources,
        lambda: supervision.leads,
        _unavailable(services.telemetry, "records"),
    )


def _place(settings: ServiceSettings, supervision: Supervision) -> StorePlace | None:
    if settings.store_url == "none":
        return None
    return replace(store_place(settings.store_url), memory=supervision.store_memory)


def _runs(settings: ServiceSettings) -> RunRegistry:
    limits = RunLimits(
        timeout=settings.resume_timeout,
        run_bytes=settings.resume_stream_bytes,
        total_bytes=settings.resume_total_bytes // settings.api_workers,
    )
    return RunRegistry(limits)


def _health(store: ResponseStore, archive: RequestArchive | None) -> dict[str, str]:
    if not store.is_configured:
        return {"store": "off"}
    if not store.readable:
        return {"store": "not available"}
    if not store.available:
        return {"store": "cannot be written"}
    if archive is not None and archive.is_away:
        return {"store": "requests and usage cannot be written"}
    return {"store": "ok"}
