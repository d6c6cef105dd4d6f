"""All numbers the live page shows, taken together at each scrape.

A reading never changes once taken: a chart is a row of readings, and costs no arithmetic.
NaN says that a number is not known: no scrape before this one, or nothing to measure.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import observability.catalogue as catalogue
from dashboard.series import History
from observability.metric_kinds import Metric
from observability.outcomes import OutcomeGroup, group_of

RATE_SECONDS = 10.0
QUANTILE_SECONDS = 30.0

SHOWN = (
    catalogue.SEQUENCES_RUNNING,
    catalogue.SEQUENCES_WAITING,
    catalogue.KV_USAGE_RATIO,
    catalogue.KV_BLOCKS,
    catalogue.PROMPT_TOKENS,
    catalogue.GENERATED_TOKENS,
    catalogue.PREEMPTIONS,
    catalogue.REQUESTS,
    catalogue.REQUESTS_IN_PROGRESS,
    catalogue.TIME_TO_FIRST_TOKEN,
    catalogue.INTER_TOKEN_LATENCY,
    catalogue.ENGINE_INFO,
    catalogue.BUILD_INFO,
)
# Metrics that older servers do not have; what they would say is then not known.
NEWER = (
    catalogue.REQUESTS_RECEIVED,
    catalogue.ENGINE_SILENCE_SECONDS,
    catalogue.OLDEST_WAITING_SECONDS,
    catalogue.LONGEST_GAP_SECONDS,
    catalogue.ENGINES,
)

FAMILIES = frozenset(metric.name for metric in (*SHOWN, *NEWER))


@dataclass(frozen=True, slots=True)
class Quantiles:
    """Seconds, interpolated within a histogram's buckets as PromQL does: of two digits the second
    is a guess already."""

    p50: float
    p95: float
    p99: float


@dataclass(frozen=True, slots=True)
class Reading:
    """``time``: seconds of the poller's clock. Rates are per second."""

    time: float
    running: float
    waiting: Mapping[str, float]  # sequences by what keeps them waiting
    in_progress: float
    kv_ratio: float
    kv_blocks: Mapping[str, float]
    prompt_computed: float
    prompt_cached: float
    generated: float
    preemptions: float
    requests: Mapping[str, float]  # ended ones, by outcome
    received: float
    silence: float  # seconds since the engine's last message
    oldest_waiting: float  # seconds
    longest_gap: float  # seconds since the last token of the sequence that waits longest for one
    ttft: Quantiles
    itl: Quantiles

    @property
    def waiting_total(self) -> float:
        return _total(self.waiting)

    @property
    def requests_total(self) -> float:
        return _total(self.requests)

    @property
    def arriving(self) -> float:
        """Requests per second: those that begin, of a server that counts them, else those that
        end."""
        return self.requests_total if math.isnan(self.received) else self.received

    @property
    def in_hand(self) -> float:
        """Requests that the server has begun and not ended."""
        if math.isnan(self.in_progress):
            return _total({"running": self.running, "waiting": self.waiting_total})
        return self.in_progress

    def ended(self, group: OutcomeGroup) -> float:
        """Requests per second whose outcome belongs to ``group``."""
        if not self.requests:
            return math.nan
        return sum(rate for outcome, rate in self.requests.items() if group_of(outcome) is group)


def read(time: float, history: History) -> Reading:
    """The state after the newest scrape in ``history``."""
    return Reading(
        time=time,
        running=history.gauge(catalogue.SEQUENCES_RUNNING.name),
        waiting=_gauges(history, catalogue.SEQUENCES_WAITING, "reason"),
        in_progress=history.gauge(catalogue.REQUESTS_IN_PROGRESS.name),
        kv_ratio=history.gauge(catalogue.KV_USAGE_RATIO.name),
        kv_blocks=_gauges(history, catalogue.KV_BLOCKS, "state"),
        prompt_computed=_tokens(history, catalogue.PROMPT_TOKENS, {"source": "computed"}),
        prompt_cached=_tokens(history, catalogue.PROMPT_TOKENS, {"source": "cached"}),
        generated=_tokens(history, catalogue.GENERATED_TOKENS, {}),
        preemptions=_tokens(history, catalogue.PREEMPTIONS, {}),
        requests=history.rates_by(catalogue.REQUESTS.name, "outcome", RATE_SECONDS),
        received=history.rate(catalogue.REQUESTS_RECEIVED.name, RATE_SECONDS),
        silence=history.gauge(catalogue.ENGINE_SILENCE_SECONDS.name),
        oldest_waiting=history.gauge(catalogue.OLDEST_WAITING_SECONDS.name),
        longest_gap=history.gauge(catalogue.LONGEST_GAP_SECONDS.name),
        ttft=_quantiles(history, catalogue.TIME_TO_FIRST_TOKEN),
        itl=_quantiles(history, catalogue.INTER_TOKEN_LATENCY),
    )


def engine_labels(history: History) -> dict[str, str]:
    """Return what the newest scrape says of the engine, with ``max_num_seqs`` of all engines
    together: the metric has that of each. Empty if there is no engine."""
    labels = history.info(catalogue.ENGINE_INFO.name)
    most, engines = labels.get("max_num_seqs", ""), history.gauge(catalogue.ENGINES.name)
    if most.isdigit() and engines > 1:
        labels["max_num_seqs"] = str(int(most) * round(engines))
    return labels


def _gauges(history: History, metric: Metric, label: str) -> dict[str, float]:
    """The gauge for each value that the catalogue allows the label."""
    values = next(item.values for item in metric.labels if item.name == label) or ()
    return {value: history.gauge(metric.name, {label: value}) for value in values}


def _tokens(history: History, metric: Metric, match: Mapping[str, str]) -> float:
    return history.rate(metric.name, RATE_SECONDS, match)


def _quantiles(history: History, metric: Metric) -> Quantiles:
    return Quantiles(
        history.quantile(0.5, metric.name, QUANTILE_SECONDS),
        history.quantile(0.95, metric.name, QUANTILE_SECONDS),
        history.quantile(0.99, metric.name, QUANTILE_SECONDS),
    )


def _total(values: Mapping[str, float]) -> float:
    known = [value for value in values.values() if not math.isnan(value)]
    return sum(known) if known else math.nan
