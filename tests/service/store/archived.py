"""An archive that is open, and what is put into it."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from observability import catalogue
from observability.admin_api import EventKind, KeptRequest, PrefixReport, RequestEvent
from observability.usage_table import UsageFigures, UsageGroup
from service.records.row import row_of
from service.store import archive
from service.store.archive import ArchiveSources, RequestArchive
from service.store.place import store_place
from service.store.store import ResponseStore
from service.store.sweep import ArchiveLimits
from service.telemetry.requests import Telemetry
from tests.service.store.stored import MANY, until

KEYS = ("alice", "bob")


class Archived:
    """An archive with the telemetry that feeds it. ``keep`` is what the end of a request does."""

    def __init__(
        self,
        url: str,
        telemetry: Telemetry,
        limits: ArchiveLimits,
        on_away: Callable[[bool], None] = lambda away: None,
    ) -> None:
        self.telemetry = telemetry
        place = store_place(url)
        self.responses = ResponseStore(place, MANY)
        sources = ArchiveSources(telemetry.ended_requests, telemetry.usage)
        self.archive = RequestArchive(place, limits, self.responses, sources, on_away=on_away)

    def keep(self, *kept: KeptRequest) -> None:
        for one in kept:
            with self.telemetry.metrics.ledger:
                self.telemetry.ended_requests.put(row_of(one))

    def use(self, time: float, group: UsageGroup, **figures: float) -> None:
        with self.telemetry.metrics.ledger:
            self.telemetry.usage.count(time, group, UsageFigures(**figures))

    async def written(self) -> None:
        """Until all records are in the database."""
        await until(lambda: not self.telemetry.ended_requests.fill)

    @property
    def dropped(self) -> float:
        found = self.telemetry.metrics.sample(catalogue.TELEMETRY_DROPPED, {"signal": "records"})
        assert found is not None
        return found


def telemetry(ledger: int | None = None) -> Telemetry:
    return Telemetry(
        ["m", "n"], version="1", keys=KEYS, keeps_requests=True, ledger_descriptor=ledger
    )


@asynccontextmanager
async def archived(
    url: str,
    limits: ArchiveLimits | None = None,
    ledger: int | None = None,
    on_away: Callable[[bool], None] = lambda away: None,
) -> AsyncIterator[Archived]:
    found = Archived(url, telemetry(ledger), limits or ArchiveLimits(), on_away)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(archive, "_POLL_SECONDS", 0.02)
        async with _open(found):
            yield found


@asynccontextmanager
async def _open(found: Archived) -> AsyncIterator[None]:
    found.responses.open()
    found.archive.open()
    try:
        await until(lambda: found.archive.available)
        yield
    finally:
        await found.archive.close()
        await found.responses.close()


def kept(number: int, **fields: Any) -> KeptRequest:
    """Request ``number``, which ended that many seconds before ``BASE``."""
    ended = fields.pop("ended", BASE - number)
    total = fields.get("total", 1.0 + number % 7)
    return KeptRequest(
        **{
            "request_id": f"req_{number:08d}",
            "trace_id": f"{number:032x}",
            "received": ended - total,
            "ended": ended,
            "total": total,
            "route": ("chat_completions", "responses")[number % 2],
            "key": (*KEYS, None)[number % 3],
            "model": ("m", "n")[number % 2],
            "outcome": ("stop", "length", "client_gone", "error:engine")[number % 4],
            "status": 200,
            "ttft": None if number % 5 == 0 else 0.1 * (number % 11),
            "prompt_tokens": 100 + number % 13,
            "cached_tokens": number % 17,
            "output_tokens": number % 19,
            "phases": {"queue": 0.1 * (number % 3), "decode": 0.15},
            "prefix": PrefixReport(16, 100, "diverged", "req_other", at_message=1, messages=2),
            "events": (RequestEvent(EventKind.OUTPUT, 0.1, 1.0),),
            **fields,
        }
    )


BASE = float(int(time.time()))


def ids(requests: Iterable[KeptRequest]) -> list[str]:
    return [one.request_id for one in requests]
