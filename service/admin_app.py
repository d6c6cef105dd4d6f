"""Assembles the admin API's application around that of the public port."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from msgspec import inspect

from engine.faults.page import FaultPage
from engine.options import options
from observability import logging
from observability.admin_api import Frame, KvMap
from observability.audit_log import AuditLog
from service.admin.audit import AuditTrail
from service.admin.feed import Feed
from service.admin.hot_settings import HotSettings, Knob
from service.admin.load import LoadRuns
from service.admin.own_part import OwnPart
from service.admin.timed import Timed
from service.admin.whole import Whole
from service.engine.inspections import NoInspectionError
from service.http.admin.application import AdminApp, make_admin_app
from service.http.admin.call import AdminDesk
from service.http.admin.load_sender import sender
from service.http.application import App
from service.serving.services import Services
from service.settings import ServiceSettings
from service.store.archive import RequestArchive

LOG_LEVELS = ("debug", "info", "warning", "error")
_LEAST = 0.001  # of settings that must be more than 0
_OPTIONS = {option.name: option for option in options(ServiceSettings)}


def create_admin_app(app: App, faults: FaultPage | None = None) -> AdminApp:
    """Return the application; ``app`` is the public one, whose services it uses. ``faults``: those
    that may be injected."""
    services: Services = app.state.services
    path = services.settings.audit_log
    audit = AuditTrail(services.archive, AuditLog(None if path is None else Path(path)))
    log_level = Timed[str](
        services.settings.log_level,
        logging.set_level,
        lambda level: _fell_back(services, audit, "loglevel", level),
    )
    traces = services.telemetry.traces
    ratio = traces.sampling_ratio
    tracing = None
    if ratio is not None:
        tracing = Timed[float](
            ratio,
            traces.set_sampling_ratio,
            lambda back: _fell_back(services, audit, "tracing", back),
        )
    settings = HotSettings(_knobs(app, services, log_level, tracing))
    overridable: dict[str, Timed[Any]] = {"log_level": log_level}
    if tracing is not None:
        overridable["tracing"] = tracing
    whole = Whole(services.peers, OwnPart(services, settings, audit, overridable))
    desk = AdminDesk(
        services=services,
        archive=services.archive,
        audit=audit,
        settings=settings,
        log_level=log_level,
        tracing=tracing,
        feed=_feed(services, whole),
        load=LoadRuns(sender(app), services.limits.names[0]),
        whole=whole,
        faults=faults,
    )

    async def start() -> None:
        await whole.adopt()

    async def stop() -> None:
        await desk.load.stop()
        desk.feed.close()
        log_level.close()
        if tracing is not None:
            tracing.close()
        audit.close()

    return make_admin_app(desk, on_startup=start, on_shutdown=stop)


def _fell_back(services: Services, audit: AuditTrail, action: str, value: object) -> None:
    if services.peers.leads:  # the same has ended at the other workers
        audit.add("timer", "", action, after=f"{value}")


def _feed(services: Services, whole: Whole) -> Feed:
    overviews = services.overviews
    seen = time.time()

    async def frame() -> Frame:
        nonlocal seen
        since, seen = seen, time.time()
        overview, live = await whole.overview(live=True)
        return overviews.frame(overview, since=since, live=live)

    async def kv_map(engine: int) -> KvMap | None:
        try:
            return await whole.kv_map(engine)
        except NoInspectionError:
            return None

    return Feed(frame, kv_map)


def _tracing_knobs(tracing: Timed[float] | None) -> list[Knob]:
    if tracing is None:
        return []
    return [
        Knob(
            "tracing_ratio",
            "Share of requests that are traced by chance; errors and slow ones are in any case.",
            "float",
            lambda: tracing.lasting,
            tracing.set,
            minimum=0.0,
            maximum=1.0,
        )
    ]


def _knob(
    name: str,
    read: Callable[[], Any],
    write: Callable[[Any], None],
    *,
    unit: str = "",
    note: str = "",
) -> Knob:
    """Return a knob for the setting of this name, with its text and bounds. ``note``: a sentence
    about changing it."""
    option = _OPTIONS[name]
    kind = option.kind
    assert isinstance(kind, inspect.IntType | inspect.FloatType)
    return Knob(
        name,
        f"{option.description} {note}".rstrip(),
        "int" if isinstance(kind, inspect.IntType) else "float",
        read,
        write,
        minimum=_LEAST if kind.ge is None else kind.ge,
        maximum=kind.le,
        unit=unit,
    )


def _retention_knobs(archive: RequestArchive | None) -> list[Knob]:
    if archive is None:
        return []
    limits = archive.limits
    fields = {
        "store_max_requests": ("requests", "requests"),
        "store_request_days": ("request_days", "d"),
    }
    return [
        _knob(name, partial(getattr, limits, field), partial(setattr, limits, field), unit=unit)
        for name, (field, unit) in fields.items()
    ]


def _slo_knobs(slo: dict[str, float]) -> list[Knob]:
    return [
        _knob(
            f"slo_{name}",
            partial(slo.__getitem__, name),
            partial(slo.__setitem__, name),
            unit="s",
        )
        for name in ("ttft", "itl")
    ]


def _knobs(
    app: App, services: Services, log_level: Timed[str], tracing: Timed[float] | None
) -> list[Knob]:
    admission = services.admission

    def set_most_waiting(value: int) -> None:
        admission.most_waiting = services.overviews.max_waiting = value

    def set_patience(value: float) -> None:
        app.patience = value

    return [
        *_slo_knobs(services.overviews.slo),
        _knob(
            "max_waiting_requests",
            lambda: admission.most_waiting,
            set_most_waiting,
            unit="sequences",
        ),
        _knob(
            "slow_reader_timeout",
            lambda: app.patience,
            set_patience,
            unit="s",
            note="A change applies to requests that begin after it.",
        ),
        Knob(
            "log_level",
            f"{_OPTIONS['log_level'].description} A change applies to the API workers, not to the "
            "engine.",
            "choice",
            lambda: log_level.lasting,
            log_level.set,
            choices=LOG_LEVELS,
        ),
        *_tracing_knobs(tracing),
        *_retention_knobs(services.archive),
    ]
