"""Workers that follow each other on one ledger."""

from __future__ import annotations

import os
from pathlib import Path

from observability.tracing import Tracer
from service.telemetry.cut_requests import end_cut_requests
from service.telemetry.requests import Telemetry


def worker(path: Path, tracer: Tracer | None = None) -> Telemetry:
    """The next worker, before it has ended the requests of the one before."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT)
    return Telemetry(["m", "alias"], version="1", tracer=tracer, ledger_descriptor=descriptor)


def successor(path: Path, tracer: Tracer | None = None) -> Telemetry:
    """The next worker, ready to accept."""
    telemetry = worker(path, tracer)
    end_cut_requests(telemetry)
    return telemetry
