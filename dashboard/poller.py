"""One background poller per server, shared by every session that displays it.

A server is scraped once per interval regardless of the number of viewers, and not at all when there
have been none for a while.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from dataclasses import dataclass

import httpx

from dashboard import server
from dashboard.certificates import certificates
from dashboard.exposition import parse
from dashboard.histories import Histories
from dashboard.reading import (
    FAMILIES,
    QUANTILE_SECONDS,
    RATE_SECONDS,
    Reading,
    engine_labels,
    read,
)


@dataclass(frozen=True, slots=True)
class View:
    """What is known now. ``age``: seconds since the newest reading, None before the first. ``now``:
    seconds of the readings' clock, and ``wall`` of the Unix epoch, at the same moment.
    ``problem``: why the last scrape of /metrics brought none, or is not of the same server as those
    before, in words."""

    health: server.Health
    engine: dict[str, str]
    readings: tuple[Reading, ...]
    age: float | None
    now: float
    wall: float
    problem: str

    @property
    def latest(self) -> Reading | None:
        return self.readings[-1] if self.readings else None


class Poller:
    """Times in seconds. ``keep``: how far back readings go. ``patience``: after how long
    without a look the polling stops; the next look starts it again."""

    def __init__(
        self, url: str, *, interval: float = 1.0, keep: float = 300.0, patience: float = 30.0
    ) -> None:
        self.url = url
        self._interval = interval
        self._patience = patience
        self._histories = Histories(max(RATE_SECONDS, QUANTILE_SECONDS))
        self._readings: deque[Reading] = deque(maxlen=round(keep / interval))
        self._health = server.Health(server.State.UNREACHABLE, detail="Not checked yet.")
        self._engine: dict[str, str] = {}
        self._problem = ""
        self._looked = 0.0
        self._lock = threading.Lock()
        self._first = threading.Event()
        self._closed = threading.Event()
        self._thread: threading.Thread | None = None

    def view(self, wait: float = 0.0) -> View:
        """``wait``: how long to wait at most for the very first poll to come back."""
        with self._lock:
            self._looked = time.monotonic()
            if self._thread is None and not self._closed.is_set():
                self._thread = threading.Thread(
                    target=self._run, name=f"poll {self.url}", daemon=True
                )
                self._thread.start()
        if wait:
            self._first.wait(wait)
        with self._lock:
            now = time.monotonic()
            readings = tuple(self._readings)
            return View(
                health=self._health,
                engine=self._engine,
                readings=readings,
                age=now - readings[-1].time if readings else None,
                now=now,
                wall=time.time(),
                problem=self._problem,
            )

    @property
    def polling(self) -> bool:
        with self._lock:
            return self._thread is not None

    def close(self) -> None:
        self._closed.set()

    def _run(self) -> None:
        with httpx.Client(verify=certificates(), timeout=server.TIMEOUT) as client:
            due = time.monotonic()
            while True:
                self._poll(client)
                self._first.set()
                due = max(due + self._interval, time.monotonic())
                self._closed.wait(due - time.monotonic())
                if not self._wanted():
                    return

    def _wanted(self) -> bool:
        """Under the lock, so that a look either keeps this thread or finds it gone."""
        with self._lock:
            idle = time.monotonic() - self._looked > self._patience
            if idle or self._closed.is_set():
                self._thread = None
                return False
            return True

    def _poll(self, client: httpx.Client) -> None:
        health = server.health(client, self.url)
        away = health.state is server.State.UNREACHABLE
        problem = health.detail if away else self._scrape(client)
        with self._lock:
            self._health = health
            self._problem = problem

    def _scrape(self, client: httpx.Client) -> str:
        """Returns what went wrong, or nothing."""
        try:
            response = client.get(f"{self.url}/metrics")
        except httpx.TransportError as error:
            return server.unreachable(self.url, error)
        if response.is_error:
            return f"{self.url}/metrics returned {response.status_code} {response.reason_phrase}."
        try:
            page = parse(response.text, FAMILIES)
        except ValueError as error:
            return f"{self.url}/metrics is not in the Prometheus text format: {error}"
        if not page.gauges and not page.cumulative:
            return f"{self.url}/metrics has no Quire metrics. Is it a different server?"
        now = time.monotonic()
        history = self._histories.append(now, page)
        reading = read(now, history)
        with self._lock:
            self._readings.append(reading)
            self._engine = engine_labels(history) or self._engine
        if several := self._histories.alternating():
            return (
                f"{self.url} leads to several servers ({', '.join(several)}), and these figures "
                "are of one after the other. Give each server's URL, or dns+ before the "
                "URL of a name that has the addresses of all."
            )
        return ""
