"""Requests that no route or method takes, counted and logged like others."""

from __future__ import annotations

import re

from service.serving.exchange import Exchange
from service.telemetry.observer import Telemetry
from service.telemetry.record import RequestRecord

MOST_PATH_CHARS = 128
_NOT_PLAIN = re.compile(r"[^A-Za-z0-9._~/:@+=-]")


def begin_unrouted(record: RequestRecord, path: str, telemetry: Telemetry) -> Exchange:
    """Return the exchange, begun. ``path``: as requested, of which the record gets as much as
    may be logged."""
    record.asked = _NOT_PLAIN.sub("*", path[:MOST_PATH_CHARS])
    exchange = Exchange(record, telemetry)
    telemetry.request_started(record)
    return exchange
