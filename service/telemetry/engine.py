"""The engine's metrics, as counted by the API worker from the messages of its link."""

from __future__ import annotations

import time
from array import array
from collections import Counter
from collections.abc import Callable, Set

from engine.messages import EngineStats, Ready, StepOutputs, StepPhase, WaitingReason
from observability import catalogue
from observability.metrics import MetricRegistry
from service.engine.silence import EngineFigures, EngineStatus

_NO_STATE = EngineStats()
_NO_FIGURES = EngineFigures(EngineStatus.LOADING, None, 0.0, 0.0, None)
_FIELDS = tuple(total.field for metric in catalogue.METRICS for total in metric.totals)


class EngineTelemetry:
    """The engine's gauges, counters and step histograms, from its messages.

    Messages arrive with every step, scrapes every few seconds: a message's state is only stored,
    and ``publish`` sets gauges and counters from it. The engine reports totals since its start; if
    one decreases, the engine was restarted, and counters continue from their previous values.
    """

    def __init__(self, metrics: MetricRegistry) -> None:
        model = metrics.models[0]
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
        self._oldest_wait = metrics[catalogue.OLDEST_WAITING_SECONDS].labels(model)
        self._longest_gap = metrics[catalogue.LONGEST_GAP_SECONDS].labels(model)
        self._load_seconds = metrics[catalogue.ENGINE_LOAD_SECONDS].labels(model)
        self._step_seconds = {
            phase: metrics[catalogue.STEP_SECONDS].labels(model, phase.value) for phase in StepPhase
        }
        self._step_tokens = metrics[catalogue.STEP_TOKENS].labels(model)
        self._step_sequences = metrics[catalogue.STEP_SEQUENCES].labels(model)
        self._gaps = metrics[catalogue.INTER_TOKEN_LATENCY].labels(model)
        self._counters = {
            total.field: metrics[metric].labels(*filter(None, (model, total.value)))
            for metric in catalogue.METRICS
            for total in metric.totals
        }
        self._state = _NO_STATE
        self._earlier = dict.fromkeys(_FIELDS, 0.0)  # totals of earlier engines
        self._published = dict(self._earlier)
        self._is_lost = False
        self._last_token: dict[int, float] = {}  # handle -> time of its latest token

    def on_ready(self, ready: Ready, kept: Set[int]) -> None:
        """Record that the engine is ready. ``kept``: handles of sequences that it inherited from
        the last one."""
        self._keep_gaps(kept)
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
            }
        )

    def on_step(self, outputs: StepOutputs) -> None:
        self._observe_gaps(outputs)
        if outputs.phase is not None:
            self._step_seconds[outputs.phase].observe(outputs.step_seconds)
            self._step_tokens.observe(outputs.step_tokens)
            self._step_sequences.observe(outputs.step_sequences)
        self.on_stats(outputs.stats)

    def on_stats(self, stats: EngineStats) -> None:
        before = self._state
        if stats.steps < before.steps or stats.tokens_generated < before.tokens_generated:
            self._earlier = self._totals(before)
        self._state = stats
        self._is_lost = False

    def lost(self, kept: Set[int]) -> None:
        """Record that the link to the engine broke: its sequences are gone, except for those handed
        to the next engine (``kept``, by handle), whose streams see one long gap."""
        self._keep_gaps(kept)
        self._is_lost = True

    def publish(self) -> None:
        """Update gauges and counters for a scrape."""
        stats = _NO_STATE if self._is_lost else self._state
        self._running.set(stats.running)
        # Queued since the last scheduling: so far they only wait for the next step's budget.
        reason = stats.waiting_reason or WaitingReason.BUDGET
        for each, gauge in self._waiting.items():
            gauge.set(stats.waiting if each is reason else 0)
        self._free.set(stats.kv_blocks_free)
        self._cached.set(stats.kv_blocks_cached)
        self._active.set(stats.kv_blocks_active)
        blocks = stats.kv_blocks_free + stats.kv_blocks_cached + stats.kv_blocks_active
        self._usage.set(stats.kv_blocks_active / blocks if blocks else 0.0)
        self._publish_figures(self.read())
        totals = self._totals(self._state)
        for field, counter in self._counters.items():
            counter.inc(totals[field] - self._published[field])
        self._published = totals

    def _publish_figures(self, figures: EngineFigures) -> None:
        self._ready.set(figures.status is EngineStatus.OK)
        self._oldest_wait.set(figures.oldest_wait)
        self._longest_gap.set(figures.longest_gap)
        self._publish_if_known(catalogue.ENGINE_SILENCE_SECONDS, figures.silence)
        self._publish_if_known(catalogue.PREDICTED_WAIT_SECONDS, figures.predicted_wait)
        heard_at = 0.0 if figures.silence is None else time.time() - figures.silence
        self._last_message.set(heard_at)

    def _publish_if_known(self, metric: catalogue.Metric, value: float | None) -> None:
        """Without a value there is no series."""
        if value is None:
            self._metrics[metric].remove(self._model)
        else:
            self._metrics[metric].labels(self._model).set(value)

    def _totals(self, stats: EngineStats) -> dict[str, float]:
        """Return the totals of all engines so far."""
        return {field: before + getattr(stats, field) for field, before in self._earlier.items()}

    def _keep_gaps(self, kept: Set[int]) -> None:
        """Only keep measuring the gaps of these sequences."""
        last_token = self._last_token
        self._last_token = {handle: last_token[handle] for handle in kept if handle in last_token}

    def _observe_gaps(self, outputs: StepOutputs) -> None:
        now, last_token = outputs.time, self._last_token
        handles = array("q", outputs.handles)
        # Most sequences had their previous token in the same step: there are few distinct gaps, and
        # the work per token is done in C.
        for before, times in Counter(map(last_token.get, handles)).items():
            if before is not None:
                self._gaps.observe(now - before, times)
        last_token.update(dict.fromkeys(handles, now))
        for finished in outputs.finished:
            last_token.pop(finished.handle, None)
