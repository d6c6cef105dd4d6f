"""Ends the requests that a killed worker was serving: the next worker counts, traces and logs each
of them once, as ``error:worker``."""

from __future__ import annotations

import msgspec

from observability import catalogue
from observability.catalogue import OTHER_MODEL
from observability.ledger import Past
from observability.logging import get_logger
from observability.outcomes import ROUTES
from service.telemetry.open_request import decode_open
from service.telemetry.requests import CUT_OUTCOME, Telemetry

_log = get_logger()


def end_cut_requests(telemetry: Telemetry) -> None:
    """Call it before the worker accepts requests, at each start."""
    for row, text in list(telemetry.open_requests):
        try:
            record = decode_open(text)
        except (msgspec.DecodeError, ValueError):  # counted below
            telemetry.open_requests.remove(row)
            continue
        telemetry.end_cut_request(record, row)
    for route in ROUTES:
        _count_unattributed(telemetry, route)
    telemetry.metrics.clear_gauges()
    if telemetry.metrics.ledger.past is Past.UNKNOWN:
        _log.warning("the metrics of the worker before cannot be read; they begin at 0")


def _count_unattributed(telemetry: Telemetry, route: str) -> None:
    """Count the open requests of a route of which the ledger had only the number."""
    metrics = telemetry.metrics
    still_open = metrics[catalogue.REQUESTS_IN_PROGRESS].labels(route)
    count = still_open.value
    if count <= 0:
        return
    with metrics.ledger:
        metrics[catalogue.REQUESTS].labels(OTHER_MODEL, route, CUT_OUTCOME).inc(count)
        still_open.set(0.0)
    _log.error("requests were cut that are only counted", route=route, count=round(count))
