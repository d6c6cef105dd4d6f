"""Looks at the server's parts once a second: the history's sample, the verdict, marks."""

from __future__ import annotations

import dataclasses
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import msgspec

from engine.queueing import WaitingReason
from observability import catalogue
from observability.admin_api import Condition, Verdict
from observability.metrics import MetricRegistry
from service.admission.drain import Drain
from service.constraint.trial import GrammarTrial
from service.engine.engines import Engines
from service.engine.silence import EngineStatus, engine_status, engine_statuses, link_status
from service.overview.diagnose import THRESHOLDS, Thresholds, describe, diagnose
from service.overview.history import LastHour
from service.overview.joined_snapshot import largest_holder
from service.overview.queues import AllQueues, Queues
from service.overview.refusals import Refusals, Refused
from service.overview.ring import COLUMN_NUMBERS
from service.overview.sampler import SecondSampler
from service.overview.sequences import SequenceFigures, sequence_figures
from service.overview.snapshot import OneEngine, Snapshot
from service.overview.steadiness import SteadyCondition
from service.settings import ServiceSettings
from service.supervision.hang_watch import ENGINE_TIMEOUT_SECONDS
from service.supervision.page import Supervision
from service.telemetry.observed import Observed
from service.telemetry.record import RequestRecord
from service.wording import plural

_CONDITIONS = tuple(Condition)
_COMPUTED = ("tokens_out", "tokens_in_computed", "tokens_recomputed")


@dataclass(frozen=True, slots=True)
class WatchedParts:
    """What is looked at. ``live``: the records of requests that have not ended, by id."""

    settings: ServiceSettings
    link: Engines
    drain: Drain
    supervision: Supervision
    metrics: MetricRegistry
    observed: Observed
    live: Mapping[str, RequestRecord]
    trial: GrammarTrial


class ServerWatch:
    """Call ``look`` once a second. Times are monotonic seconds."""

    def __init__(
        self,
        parts: WatchedParts,
        history: LastHour,
        now: float,
        thresholds: Thresholds = THRESHOLDS,
    ) -> None:
        self.parts = parts
        self.history = history
        self.sampler = SecondSampler(history, parts.metrics, parts.observed)
        self.started = now
        self._thresholds = thresholds
        self._refusals = Refusals(thresholds.window)
        self._steady = SteadyCondition(now=now)
        self._last_look = self._last_request = now
        self._queues = AllQueues(parts.metrics)
        self._seen_state = self._state()
        self._refused = Refused()
        self._figures = SequenceFigures()
        self.held: dict[str, int] = {}  # tokens in the KV cache by the key's alias; "": of no key
        self.snapshot = self._diagnosed = self._snapshot(now)
        self._found = diagnose(self.snapshot, thresholds)
        self._engines = self.sampler.totals.engine_identities()
        self._was_draining = False
        self._limited = parts.metrics.series(catalogue.LIMITED_SECONDS)
        if history.ring.is_restarted:
            history.mark("restart", "API worker restarted")

    @property
    def condition(self) -> Condition:
        """What limits the server, without flicker."""
        return self._steady.shown

    @property
    def verdict(self) -> Verdict:
        """The condition with the numbers of the last look."""
        if self._found.condition is self.condition:
            return self._found
        return describe(self.condition, self._diagnosed)

    @property
    def condition_since(self) -> float:
        """When that began, by the monotonic clock."""
        return self._steady.since

    def look(self, now: float) -> None:
        link = self.parts.link
        running = len(link.open_sequences) - link.waiting_sequences
        figures = sequence_figures(link.open_sequences, now, running=running)
        leads = self.parts.supervision.leads
        own = queues = self._own_queues(figures)
        if leads and self._queues:
            queues = self._queues.read()
        if leads:
            grown = self.sampler.sample(now, self._gauges(queues, now))
        else:
            grown = self.sampler.look()
        if grown.get("received") or self.parts.drain.in_flight:
            self._last_request = now
        self._refused = self._refusals.look(now, self.sampler.ended)
        self._figures, self.held = figures, self._held_by_key(figures)
        shown = self._diagnose(now, None if queues is own else queues)
        if leads:
            ring = self.history.ring
            ring.amend(ring.last_slot, COLUMN_NUMBERS["condition"], _CONDITIONS.index(shown))
            self._limited(shown.value).inc(max(0.0, now - self._last_look))
            self._mark_changes()
        else:
            self._engines = self.sampler.totals.engine_identities()
        self._last_look = now

    def notice(self, now: float) -> None:
        """Update the verdict at once if the status of an engine has changed since the last look, or
        a drain has begun or ended."""
        if self._state() != self._seen_state:
            self._diagnose(now, None)

    def _state(self) -> tuple[Sequence[EngineStatus], bool]:
        parts = self.parts
        timeout = parts.settings.engine_silence_timeout
        return engine_statuses(parts.link, parts.supervision, timeout), parts.drain.draining

    def _diagnose(self, now: float, queues: Queues | None) -> Condition:
        """Return the condition to show. ``queues``: of all workers; None if there is only one, or
        if they are not known."""
        self._seen_state = self._state()
        self.snapshot = self._diagnosed = self._snapshot(now)
        if queues is not None:
            self._diagnosed = msgspec.structs.replace(
                self.snapshot,
                sequences=max(self.snapshot.sequences, self.snapshot.running + queues.waiting),
                **dataclasses.asdict(queues),
            )
        self._found = diagnose(self._diagnosed, self._thresholds)
        return self._steady.observe(self._found.condition, now)

    def _mark_changes(self) -> None:
        engines = self.sampler.totals.engine_identities()
        for before, now in zip(self._engines, engines, strict=True):
            if before and now != before:
                self.history.ring.count_engine_restart()
                kept = len(self.parts.link.state.kept)
                self.history.mark("restart", "engine restarted")
                if kept:
                    self.history.mark("handover", f"{plural(kept, 'sequence')} handed over")
        self._engines = engines
        draining = self.parts.drain.draining
        if draining != self._was_draining:
            self._was_draining = draining
            self.history.mark("drain", "drain began" if draining else "drain ended")

    # --- figures --------------------------------------------------------------------------------

    def _own_queues(self, figures: SequenceFigures) -> Queues:
        link = self.parts.link
        waiting = link.waiting_sequences
        return Queues(
            waiting, figures.oldest_waiting, link.predicted_wait(waiting), figures.longest_gap
        )

    def _gauges(self, queues: Queues, now: float) -> dict[str, float | None]:
        link = self.parts.link
        stats = link.stats
        return {
            "running": 0 if stats is None else stats.running,
            **dataclasses.asdict(queues),
            "silence": None if link.last_message_time is None else link.silence,
            "kv_active": None if stats is None else stats.kv_blocks_active,
            "kv_cached": None if stats is None else stats.kv_blocks_cached,
            "kv_free": None if stats is None else stats.kv_blocks_free,
            "flush_waiting": len(self._stalls(now)[0]),
        }

    def _stalls(self, now: float) -> tuple[list[float], int]:
        """Return how long each client that does not read has not, and the number of requests that
        are being answered."""
        stalls, answered = [], 0
        for record in self.parts.live.values():
            since = record.flush.waiting_since
            if since is not None and now - since >= self._thresholds.stall:
                stalls.append(now - since)
            if since is not None or record.first_token_time is not None:
                answered += 1
        return stalls, answered

    def _snapshot(self, now: float) -> Snapshot:
        parts, figures, refused = self.parts, self._figures, self._refused
        link, settings, stats = parts.link, parts.settings, parts.link.stats
        ready, status = (
            link.state.ready,
            engine_status(link, parts.supervision, settings.engine_silence_timeout),
        )
        stalls, answered = self._stalls(now)
        holder, share = largest_holder(self.held)
        window = self._thresholds.window
        rates = {name: self.history.rate(name, window) for name in _COMPUTED}
        connections, connection_limit = self._queues.connections()
        lags = sorted(self.history.values("loop_lag", window))
        return Snapshot(
            engine=status.value,
            detail=parts.supervision.engine_detail(link.state.detail),
            problem=parts.supervision.problem,
            expects_engine=link.expects_engine,
            engines=self._each_engine(),
            load_seconds=link.load_seconds,
            uptime=now - self.started,
            draining=parts.drain.draining,
            drain_seconds_left=parts.drain.seconds_left,
            in_flight=parts.drain.in_flight,
            connections=connections,
            connection_limit=connection_limit,
            receiving=len(parts.drain.uploads),
            silence=link.silence,
            killed_after=self._killed_after(),
            sequences=len(link.open_sequences),
            running=0 if stats is None else stats.running,
            max_running=0 if ready is None else ready.max_num_seqs,
            waiting=link.waiting_sequences,
            waiting_reason=_reason(stats.waiting_reason if stats else None),
            oldest_waiting=figures.oldest_waiting,
            predicted_wait=link.predicted_wait(link.waiting_sequences),
            kv_active=0 if stats is None else stats.kv_blocks_active,
            kv_blocks=0 if ready is None else ready.num_kv_blocks,
            largest_holder=holder,
            largest_holder_share=share,
            recomputed_share=_share(rates["tokens_recomputed"], sum(rates.values())),
            prefilling=figures.prefilling,
            longest_prefill=figures.longest_prefill,
            longest_prefill_tokens=figures.longest_prefill_tokens,
            prompt_tokens=rates["tokens_in_computed"] + rates["tokens_recomputed"],
            output_tokens=rates["tokens_out"],
            longest_step=max(self.history.values("step_longest", window), default=0.0),
            longest_gap=figures.longest_gap,
            # What most seconds reach. A second without a look at the loop counts as on time.
            loop_lag=lags[len(lags) // 2] if len(lags) > window // 2 else 0.0,
            grammars_waiting=parts.trial.waiting,
            oldest_grammar=parts.trial.oldest_wait,
            streams=answered,
            stalled=len(stalls),
            longest_stall=max(stalls, default=0.0),
            refused=refused.rate,
            refused_share=refused.share,
            refused_outcome=refused.outcome,
            since_request=now - self._last_request,
        )

    def _each_engine(self) -> tuple[OneEngine, ...]:
        """Return each of several engines."""
        links, supervision = self.parts.link.links, self.parts.supervision
        if len(links) == 1:
            return ()
        timeout = self.parts.settings.engine_silence_timeout
        return tuple(
            OneEngine(
                status=link_status(link, supervision, timeout).value,
                detail=supervision.engine_detail(link.state.detail),
                silence=link.silence,
                sequences=len(link.open_sequences),
                deaths=supervision.fruitless_deaths(link.number),
            )
            for link in links
        )

    def _killed_after(self) -> float | None:
        timeout = self.parts.settings.engine_hang_timeout
        if not self.parts.supervision.restarts_engines or timeout == 0:
            return None
        return ENGINE_TIMEOUT_SECONDS if timeout is None else timeout

    def _held_by_key(self, figures: SequenceFigures) -> dict[str, int]:
        """Return how many tokens of the KV cache the sequences of each key hold."""
        if not self.parts.settings.needs_key:
            return {}
        held: Counter[str] = Counter()
        for request_id, tokens in figures.held.items():
            record = self.parts.live.get(request_id)
            held[(record and record.key) or ""] += tokens
        return dict(held)


def _share(part: float, whole: float) -> float:
    return part / whole if whole and not math.isnan(part) else 0.0


def _reason(reason: WaitingReason | None) -> str | None:
    return None if reason is None else reason.value
