"""The server at a glance: what limits it, its figures, its last hour. Everything is sampled once a
second; reading it costs little."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable, Mapping, Sequence

import msgspec

from engine.queueing import WaitingReason
from observability.admin_api import Frame, KeptRequest, KvMap, Overview, Verdict, Window
from observability.logging import get_logger
from service.engine.silence import EngineStatus, engine_status, link_status
from service.identity import identity
from service.overview.history import LastHour
from service.overview.kv_cache import KvCaches
from service.overview.ring import Ring
from service.overview.snapshot import Snapshot
from service.overview.watch import ServerWatch, WatchedParts
from service.version import VERSION

# Of the requests that ended in the last seconds; objectives are seconds by "ttft" and "itl".
Windows = Callable[[float, Mapping[str, float]], Window]

MINUTE = 60
FIVE_MINUTES = 300

_log = get_logger()


class Overviews:
    """``names``: of the model; ``windows``: exact figures of ended requests; ``health``: more parts
    of the server, and how they are. ``slo``, ``max_waiting`` and ``health`` may be changed at any
    time."""

    def __init__(
        self,
        parts: WatchedParts,
        ring: Ring,
        *,
        names: Sequence[str],
        windows: Windows = lambda seconds, _: Window(seconds=seconds),
        health: Callable[[], dict[str, str]] = dict,
    ) -> None:
        self.history = LastHour(ring)
        self.slo = {"ttft": parts.settings.slo_ttft, "itl": parts.settings.slo_itl}
        self.max_waiting = parts.settings.max_waiting_requests
        self._parts = parts
        self._names = tuple(names)
        self._windows = windows
        self.health = health
        self.kv_caches = KvCaches([one.inspections for one in parts.link.links], parts.live)
        self._watch = ServerWatch(parts, self.history, time.monotonic())
        self._server = identity(parts.settings.port)
        self._seen: dict[int, Window] = {}  # by seconds, at the last look

    async def run(self) -> None:
        """Look once a second, just after the second's end, until cancelled."""
        while True:
            now = time.monotonic()
            await asyncio.sleep(math.floor(now) + 1.002 - now)
            try:
                self.look()
            except Exception:  # the next second may be looked at again
                _log.exception("failed to sample the history")

    def look(self) -> None:
        """Look now."""
        self._watch.look(time.monotonic())
        # With the same look's rates: of requests that were received until then, and ended.
        self._seen = {seconds: self.window(seconds) for seconds in (MINUTE, FIVE_MINUTES)}

    @property
    def snapshot(self) -> Snapshot:
        """What this worker's verdict is made of."""
        return self._watch.snapshot

    @property
    def held(self) -> dict[str, int]:
        """How many tokens of the KV cache each key's sequences hold, by its alias; "": no key's."""
        return self._watch.held

    @property
    def limited_by(self) -> str:
        """The condition that limits the server, as a string."""
        return self._watch.condition.value

    def verdict(self) -> Verdict:
        since = time.time() - max(0.0, time.monotonic() - self._watch.condition_since)
        return msgspec.structs.replace(self._watch.verdict, since=since)

    def now(self) -> Overview:
        """Return the server as of the last look, or as it is now if its state has changed since."""
        self._watch.notice(time.monotonic())
        status = self._status()
        link, snapshot = self._parts.link, self._watch.snapshot
        ready, stats, ring = link.state.ready, link.stats, self.history.ring
        blocks = (0, 0, 0)
        if stats is not None:
            blocks = stats.kv_blocks_active, stats.kv_blocks_cached, stats.kv_blocks_free
        reason = snapshot.waiting_reason or WaitingReason.BUDGET.value
        return Overview(
            time=time.time(),
            server=self._server,
            version=VERSION,
            model=self._names[0],
            models=self._names,
            state="draining" if snapshot.draining else status.value,
            verdict=self.verdict(),
            uptime=snapshot.uptime,
            running=snapshot.running,
            max_running=snapshot.max_running,
            waiting=snapshot.waiting,
            max_waiting=self.max_waiting,
            waiting_by_reason={reason: snapshot.waiting} if snapshot.waiting else {},
            oldest_waiting=snapshot.oldest_waiting,
            predicted_wait=snapshot.predicted_wait,
            silence=snapshot.silence,
            longest_gap=snapshot.longest_gap,
            kv_blocks_active=blocks[0],
            kv_blocks_cached=blocks[1],
            kv_blocks_free=blocks[2],
            block_size=0 if ready is None else ready.block_size,
            quantization="" if ready is None else ready.quantization,
            unserved_inputs=() if ready is None else ready.unserved_inputs,
            minute=self._seen.get(MINUTE) or self.window(MINUTE),
            five_minutes=self._seen.get(FIVE_MINUTES) or self.window(FIVE_MINUTES),
            slo=dict(self.slo),
            engines=len(link.links),
            parts={"engine": self._engine_health(status), **self._each_engine(), **self.health()},
            engine_restarts=ring.engine_restarts,
            worker_restarts=ring.restarts,
            largest_holder=snapshot.largest_holder,
            largest_holder_share=snapshot.largest_holder_share,
        )

    def window(self, seconds: int) -> Window:
        """Return the last seconds: rates from the history, quantiles from ended requests."""
        rate = self.history.rate
        out, computed = rate("tokens_out", seconds), rate("tokens_in_computed", seconds)
        again = rate("tokens_recomputed", seconds)
        work = out + computed + again
        return msgspec.structs.replace(
            self._windows(float(seconds), self.slo),
            tokens_out=out,
            tokens_in_computed=computed,
            tokens_in_cached=rate("tokens_in_cached", seconds),
            received=rate("received", seconds),
            recomputed_share=again / work if work else 0.0,
        )

    def frame(
        self,
        overview: Overview | None = None,
        *,
        since: float | None = None,
        live: tuple[KeptRequest, ...] | None = None,
        kv: KvMap | None = None,
    ) -> Frame:
        """Return a message of the feed. ``overview``: None for this worker's now. ``since``: Unix
        time from which marks are new; None: none are sent."""
        return Frame(
            overview=overview or self.now(),
            sample=self.history.newest(),
            live=live,
            kv=kv,
            marks=() if since is None else self.history.marks(since, time.time()),
        )

    def mark(self, kind: str, text: str) -> None:
        """Have charts show that something was done now, such as a setting that was changed."""
        self.history.mark(kind, text)

    def _status(self) -> EngineStatus:
        parts = self._parts
        return engine_status(parts.link, parts.supervision, parts.settings.engine_silence_timeout)

    def _each_engine(self) -> dict[str, str]:
        """Return how each of several engines is."""
        parts, timeout = self._parts, self._parts.settings.engine_silence_timeout
        links = parts.link.links
        if len(links) == 1:
            return {}
        each = [(one, link_status(one, parts.supervision, timeout)) for one in links]
        return {
            f"engine {one.number} of {len(links)}": (
                status.value if status is EngineStatus.OK else f"{status.value}: {one.state.detail}"
            )
            for one, status in each
        }

    def _engine_health(self, status: EngineStatus) -> str:
        if status is EngineStatus.OK:
            return status.value
        supervision = self._parts.supervision
        detail = supervision.engine_detail(self._parts.link.state.detail)
        return f"{status.value}: {supervision.problem or detail}"
