"""The engine's metrics, as counted by the API worker from the messages of its link."""

from __future__ import annotations

import time
from array import array
from collections import Counter
from collections.abc import Callable, Set

from engine.messages import EngineStats, Ready, StepOutputs, StepPhase
from engine.queueing import RefusalReason, ServiceClass, WaitingReason
from observability import catalogue, queue_metrics
from observability.metrics import MetricRegistry
from service.engine.silence import EngineFigures, EngineStatus
from service.engine.waits import ClassWait
from service.telemetry.engine_totals import EngineTotals
from service.telemetry.observed import Observed

_NO_STATE = EngineStats()
_NO_FIGURES = EngineFigures(EngineStatus.LOADING, None, {}, 0.0, None)
_NO_WAIT = ClassWait()
_HANDLE_BYTES = 8


class _View:
    """One engine, as last seen. ``batch``: the handles of its last step with tokens, packed, and
    ``batch_time`` when that was, while ``_last_token`` does not have it: a batch that stays the
    same is one comparison."""

    __slots__ = ("batch", "batch_time", "state")

    def __init__(self) -> None:
        self.state = _NO_STATE
        self.batch = b""
        self.batch_time = 0.0


class EngineTelemetry:
    """The engines' gauges, counters and step histograms, from their messages. Figures of several
    engines are summed up.

    Messages arrive with every step, scrapes every few seconds: a message's state is only stored,
    and ``publish`` sets gauges and counters from it. Of several workers, the one that leads counts
    steps and the engine's totals.
    """

    def __init__(self, metrics: MetricRegistry, observed: Observed, *, leads: bool = True) -> None:
        model = metrics.models[0]
        self._observed = observed
        self.read: Callable[[], EngineFigures] = lambda: _NO_FIGURES
        self._metrics = metrics
        self._model = model
        self._running = metrics[catalogue.SEQUENCES_RUNNING].labels(model)
        self._waiting = {
            reason: metrics[catalogue.SEQUENCES_WAITING].labels(model, reason.value)
            for reason in WaitingReason
        }
        blocks = metrics[catalogue.KV_BLOCKS]
        self._free = blocks.labels(model, "free")
        self._cached = blocks.labels(model, "cached")
        self._active = blocks.labels(model, "active")
        self._usage = metrics[catalogue.KV_USAGE_RATIO].labels(model)
        self._last_message = metrics[catalogue.ENGINE_LAST_MESSAGE].labels(model)
        self._ready = metrics[catalogue.ENGINE_READY].labels(model)
        self._engines = {
            status: metrics[catalogue.ENGINES].labels(model, status.value)
            for status in EngineStatus
        }
        self._oldest_wait = metrics[catalogue.OLDEST_WAITING_SECONDS].labels(model)
        self._class_waiting = {
            kind: metrics[queue_metrics.CLASS_WAITING].labels(model, kind.value)
            for kind in ServiceClass
        }
        self._class_oldest = {
            kind: metrics[queue_metrics.CLASS_OLDEST_WAITING_SECONDS].labels(model, kind.value)
            for kind in ServiceClass
        }
        self._refusals = {
            reason: metrics[queue_metrics.REFUSED_SEQUENCES].labels(model, reason.value)
            for reason in RefusalReason
        }
        self._longest_gap = metrics[catalogue.LONGEST_GAP_SECONDS].labels(model)
        self._silence = metrics[catalogue.ENGINE_SILENCE_SECONDS].labels(model)
        self._predicted_wait = metrics[catalogue.PREDICTED_WAIT_SECONDS].labels(model)
        self._load_seconds = metrics[catalogue.ENGINE_LOAD_SECONDS].labels(model)
        self._step_seconds = {
            phase: metrics[catalogue.STEP_SECONDS].labels(model, phase.value) for phase in StepPhase
        }
        self._step_tokens = metrics[catalogue.STEP_TOKENS].labels(model)
        self._step_sequences = metrics[catalogue.STEP_SEQUENCES].labels(model)
        self._gaps = metrics[catalogue.INTER_TOKEN_LATENCY].labels(model)
        self._totals = EngineTotals(metrics, leads=leads)
        self._views = [_View()]
        self._last_token: dict[int, float] = {}  # handle -> time of its latest token

    def _view(self, engine: int) -> _View:
        views = self._views
        while len(views) <= engine:
            views.append(_View())
        return views[engine]

    def on_ready(self, ready: Ready, kept: Set[int], engine: int = 0) -> None:
        """Record that the engine is ready. ``kept``: handles of sequences that it inherited from
        the last one."""
        self._keep_gaps(kept)
        self._totals.engine_is(ready.identity, engine)
        self._load_seconds.set(ready.load_seconds)
        self._metrics[catalogue.ENGINE_INFO].info(
            {
                "model": self._model,
                "dtype": ready.dtype,
                "device": ready.device,
                "block_size": str(ready.block_size),
                "num_kv_blocks": str(ready.num_kv_blocks),
                "max_model_len": str(ready.max_model_len),
                "max_num_seqs": str(ready.max_num_seqs),
                "quantization": ready.quantization or "none",
            }
        )

    def lead(self) -> None:
        """Count what only one worker counts, from now on."""
        self._totals.lead()

    def on_step(self, outputs: StepOutputs, engine: int = 0) -> None:
        self._observe_gaps(self._view(engine), outputs)
        if outputs.phase is not None and self._totals.leads:
            self._step_seconds[outputs.phase].observe(outputs.step_seconds)
            if outputs.step_seconds > self._observed.longest_step:
                self._observed.longest_step = outputs.step_seconds
            self._step_tokens.observe(outputs.step_tokens)
            self._step_sequences.observe(outputs.step_sequences)
        self.on_stats(outputs.stats, engine)

    def on_stats(self, stats: EngineStats, engine: int = 0) -> None:
        self._totals.heard(stats, engine)
        self._view(engine).state = stats

    def lost(self, kept: Set[int], engine: int = 0) -> None:
        """Record that the link to the engine broke: its sequences are gone, except for those handed
        to the next engine (``kept``, by handle), whose streams see one long gap."""
        self._keep_gaps(kept)
        self._view(engine).state = _NO_STATE

    def publish(self) -> None:
        """Update gauges and counters for a scrape."""
        each = [view.state for view in self._views]
        self._running.set(sum(stats.running for stats in each))
        waiting = Counter[WaitingReason]()
        for stats in each:
            # Queued since the last scheduling: so far they only wait for the next step's budget.
            waiting[stats.waiting_reason or WaitingReason.BUDGET] += stats.waiting
        for reason, gauge in self._waiting.items():
            gauge.set(waiting[reason])
        free = sum(stats.kv_blocks_free for stats in each)
        cached = sum(stats.kv_blocks_cached for stats in each)
        active = sum(stats.kv_blocks_active for stats in each)
        self._free.set(free)
        self._cached.set(cached)
        self._active.set(active)
        blocks = free + cached + active
        self._usage.set(active / blocks if blocks else 0.0)
        self._publish_figures(self.read())
        self._totals.publish()

    def _publish_figures(self, figures: EngineFigures) -> None:
        self._ready.set(figures.status is EngineStatus.OK)
        for status, gauge in self._engines.items():
            gauge.set(figures.engines.count(status))
        self._oldest_wait.set(figures.oldest_wait)
        for kind in ServiceClass:
            wait = figures.waits.get(kind, _NO_WAIT)
            self._class_waiting[kind].set(wait.waiting)
            self._class_oldest[kind].set(wait.oldest)
        self._longest_gap.set(figures.longest_gap)
        self._silence.set(figures.silence)
        self._predicted_wait.set(figures.predicted_wait)
        heard_at = 0.0 if figures.silence is None else time.time() - figures.silence
        self._last_message.set(heard_at)

    def _keep_gaps(self, kept: Set[int]) -> None:
        """Only keep measuring the gaps of these sequences."""
        for view in self._views:
            self._add_batch(view)
        last_token = self._last_token
        self._last_token = {handle: last_token[handle] for handle in kept if handle in last_token}

    def _add_batch(self, view: _View) -> None:
        if view.batch:
            handles = array("q", view.batch)
            self._last_token.update(dict.fromkeys(handles, view.batch_time))
            view.batch = b""

    def _observe_gaps(self, view: _View, outputs: StepOutputs) -> None:
        now, packed = outputs.time, outputs.handles
        if packed and packed == view.batch:
            gap, times = now - view.batch_time, len(packed) // _HANDLE_BYTES
            self._gaps.observe(gap, times)
            self._observed.gaps.append((gap, times))
            view.batch_time = now
        elif packed:
            self._add_batch(view)
            last_token = self._last_token
            # Most sequences had their previous token in the same step: there are few distinct gaps,
            # and the work per token is done in C.
            for before, times in Counter(map(last_token.get, array("q", packed))).items():
                if before is not None:
                    self._gaps.observe(now - before, times)
                    self._observed.gaps.append((now - before, times))
            view.batch, view.batch_time = packed, now
        if outputs.finished:
            self._add_batch(view)
            for finished in outputs.finished:
                self._last_token.pop(finished.handle, None)
                if finished.refusal is not None:
                    self._refusals[finished.refusal.reason].inc()
