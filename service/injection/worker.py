"""Installs the faults of the API worker, each around one object of the part that it breaks."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from engine.faults.page import FaultPage, FaultTrigger
from engine.faults.table import Fault, Place
from observability.logging import get_logger
from observability.tracing import Tracer
from service.engine.engines import Engines
from service.engine.submission import Submission
from service.generation import generator
from service.output.formed import FormedParser
from service.output.parser import OutputParser

_log = get_logger()
_STORE_ERRORS = {
    "store_down": "the database is down (injected by --fault store_down)",
    "store_full": "database or disk is full (injected by --fault store_full)",
}


class InjectedError(RuntimeError):
    """What a broken part of the worker raises."""


def inject_into_worker(page: FaultPage, link: Engines, tracer: Tracer) -> None:
    """Install every fault of this process. ``link``: its requests are the events of the worker's
    own faults."""
    for fault, trigger in page.at(Place.WORKER):
        if fault.name == "parser_error":
            _break_parsers(trigger)
        else:
            link.on_submit = _after(link.on_submit, fault, trigger, _harm(fault))
    outages = list(page.at(Place.STORE))
    if outages:
        _interrupt_store(outages)
    for fault, trigger in page.at(Place.EXPORTER):
        _hang_exports(fault, trigger, tracer)


def _harm(fault: Fault) -> Callable[[], None]:
    match fault.name:
        case "worker_kill":
            return partial(os.kill, os.getpid(), signal.SIGKILL)
        case "worker_stall":
            return partial(time.sleep, fault.duration)
        case "clock_jump":
            return partial(jump_clock, fault.duration)
    raise AssertionError(fault.name)


def _after(
    then: Callable[[Submission], None] | None,
    fault: Fault,
    trigger: FaultTrigger,
    harm: Callable[[], None],
) -> Callable[[Submission], None]:
    """Return what is to be called with each submission: what was there, then the fault."""

    def on_submit(submission: Submission) -> None:
        if then is not None:
            then(submission)
        if trigger():
            _log.warning("injecting a fault", fault=fault.name)
            harm()

    return on_submit


def jump_clock(seconds: float) -> None:
    """Set the wall clock forward, or back, for all Python code of this process."""
    before, before_ns = time.time, time.time_ns
    time.time = lambda: before() + seconds
    time.time_ns = lambda: before_ns() + int(seconds * 1e9)


def _break_parsers(trigger: FaultTrigger) -> None:
    """Give each choice that is hit a parser that raises."""

    def breaking(sound: type[OutputParser]) -> Callable[..., OutputParser]:
        def parser(*arguments: Any, **more: Any) -> OutputParser:
            if not trigger():
                return sound(*arguments, **more)
            _log.warning("injecting a fault", fault="parser_error")
            return BrokenParser(*arguments, **more)

        return parser

    # The names by which the generator creates them.
    for sound in (OutputParser, FormedParser):
        vars(generator)[sound.__name__] = breaking(sound)


class BrokenParser(OutputParser):
    """Raises at the first text."""

    def feed_token(self, text: str, tokens: int) -> None:
        raise InjectedError("the parser failed (injected by --fault parser_error)")

    def feed(self, text: str) -> None:
        raise InjectedError("the parser failed (injected by --fault parser_error)")


def _interrupt_store(faults: list[tuple[Fault, FaultTrigger]]) -> None:
    # Imported late: SQLAlchemy takes a second, which only these faults are worth.
    from service.store.injection import Outage, inject

    inject(
        Outage(
            _STORE_ERRORS[fault.name],
            trigger,
            fault.duration,
            spares_reads=fault.name == "store_full",
        )
        for fault, trigger in faults
    )


def _hang_exports(fault: Fault, trigger: FaultTrigger, tracer: Tracer) -> None:
    from observability.otlp import OtlpTracer  # only installed where spans are exported

    if not isinstance(tracer, OtlpTracer):
        _log.warning("not injecting a fault: no spans are exported", fault=fault.name)
        return

    def before() -> None:
        if trigger():
            _log.warning("injecting a fault", fault=fault.name)
            time.sleep(fault.duration)

    tracer.before_export(before)
