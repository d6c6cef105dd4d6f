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
from service.telemetry.engine_totals import EngineTotals
from service.telemetry.observed import Observed

_NO_STATE = EngineStats()
_NO_FIGURES = EngineFigures(EngineStatus.LOADING, None, 0.0, 0.0, None)
_HANDLE_BYTES = 8


class EngineTelemetry:
    """The engine's gauges, counters and step histograms, from its messages.

    Messages arrive with every step, scrapes every few seconds: a message's state is only stored,
    and ``publish`` sets gauges and counters from it. Of several workers the one that leads counts
    steps, which all hear, and the engine's totals.
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
        self._oldest_wait = metrics[catalogue.OLDEST_WAITING_SECONDS].labels(model)
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
        self._state = _NO_STATE
        self._is_lost = False
        self._last_token: dict[int, float] = {}  # handle -> time of its latest token
        # The handles of the last step with tokens, packed, and its time, which ``_last_token``
        # does not have yet: a batch that stays the same is one comparison.
        self._batch = b""
        self._batch_time = 0.0

    def on_ready(self, ready: Ready, kept: Set[int]) -> None:
        """Record that the engine is ready. ``kept``: handles of sequences that it inherited from
        the last one."""
        self._keep_gaps(kept)
        self._totals.engine_is(ready.identity)
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

    def lead(self) -> None:
        """Count what only one worker counts, from now on."""
        self._totals.lead()

    def on_step(self, outputs: StepOutputs) -> None:
        self._observe_gaps(outputs)
        if outputs.phase is not None and self._totals.leads:
            self._step_seconds[outputs.phase].observe(outputs.step_seconds)
            if outputs.step_seconds > self._observed.longest_step:
                self._observed.longest_step = outputs.step_seconds
            self._step_tokens.observe(outputs.step_tokens)
            self._step_sequences.observe(outputs.step_sequences)
        self.on_stats(outputs.stats)

    def on_stats(self, stats: EngineStats) -> None:
        self._totals.heard(stats)
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
        self._totals.publish()

    def _publish_figures(self, figures: EngineFigures) -> None:
        self._ready.set(figures.status is EngineStatus.OK)
        self._oldest_wait.set(figures.oldest_wait)
        self._longest_gap.set(figures.longest_gap)
        self._silence.set(figures.silence)
        self._predicted_wait.set(figures.predicted_wait)
        heard_at = 0.0 if figures.silence is None else time.time() - figures.silence
        self._last_message.set(heard_at)

    def _keep_gaps(self, kept: Set[int]) -> None:
        """Only keep measuring the gaps of these sequences."""
        last_token = self._last_tokens()
        self._last_token = {handle: last_token[handle] for handle in kept if handle in last_token}

    def _last_tokens(self) -> dict[int, float]:
        """Return when each sequence had its latest token."""
        if self._batch:
            handles = array("q", self._batch)
            self._last_token.update(dict.fromkeys(handles, self._batch_time))
            self._batch = b""
        return self._last_token

    def _observe_gaps(self, outputs: StepOutputs) -> None:
        now, packed = outputs.time, outputs.handles
        if packed and packed == self._batch:
            gap, times = now - self._batch_time, len(packed) // _HANDLE_BYTES
            self._gaps.observe(gap, times)
            self._observed.gaps.append((gap, times))
            self._batch_time = now
        elif packed:
            last_token = self._last_tokens()
            # Most sequences had their previous token in the same step: there are few distinct gaps,
            # and the work per token is done in C.
            for before, times in Counter(map(last_token.get, array("q", packed))).items():
                if before is not None:
                    self._gaps.observe(now - before, times)
                    self._observed.gaps.append((now - before, times))
            self._batch, self._batch_time = packed, now
        if outputs.finished:
            last_token = self._last_tokens()
            for finished in outputs.finished:
                last_token.pop(finished.handle, None)
