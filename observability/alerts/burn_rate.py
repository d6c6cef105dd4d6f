"""Alerts on how fast the budget of an objective is spent, each over a long and a short window: the
long one says that it matters, the short one that it is still so."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from observability import catalogue
from observability.alerts.model import Alert, Recording, Severity
from observability.metric_kinds import Metric
from observability.objectives import BAD_OUTCOMES, COUNTED_OUTCOMES, Objectives
from observability.promql import Queries, bound_text, ratio

LEAST_REQUESTS = 20
"""In the short window: with fewer, the share of misses says little."""
MOST_STRAY_MISSES = 10
"""In the short window. On a server with little traffic, a few failed requests are a large share,
and a worker that dies fails about as many. An outage misses more."""


@dataclass(frozen=True, slots=True)
class BurnPace:
    """``factor``: misses as a multiple of the budget. A budget for 30 days lasts 30 / factor."""

    name: str
    factor: float
    long: str
    short: str
    severity: Severity
    lasts: str


PACES = (
    BurnPace("Fast", 14.4, "1h", "5m", Severity.PAGE, "2 days"),
    BurnPace("Medium", 6, "6h", "30m", Severity.PAGE, "5 days"),
    BurnPace("Slow", 3, "1d", "2h", Severity.TICKET, "10 days"),
)
_WINDOWS = tuple(window for pace in PACES for window in (pace.long, pace.short))


@dataclass(frozen=True, slots=True)
class _Indicator:
    """``missed`` and ``counted`` are PromQL with ``WINDOW`` for the window."""

    name: str
    key: str
    budget: float
    missed: str
    counted: str
    what: str
    look: tuple[str, ...]
    act: tuple[str, ...]

    def record(self, window: str) -> str:
        return f"job:quire_{self.key}_missed:ratio_rate{window}"


_WINDOW = "WINDOW"
_Q = Queries(window=_WINDOW)


def _missed(metric: Metric, bound: float) -> str:
    return f"1 - {_Q.attained(metric, bound_text(bound), by='job')}"


def _increase(metric: Metric, suffix: str, **labels: tuple[str, ...]) -> str:
    return _Q.increase(metric, suffix, by="job", **labels)


_TTFT_TEXTS = (
    (
        "Board *Overview*, *Where the time goes*: which phase grew?",
        "`queue`: what do sequences wait for (*Sequences*)? `prefill`: longer prompts, or "
        "a lower share of cached tokens (board *KV cache and prefixes*)? `receive`: slow "
        "uploads. `tokenize`, `admit`: the API worker is short of CPU.",
    ),
    (
        "Overload: add replicas, or lower `--max-waiting-requests`, so that clients are "
        "refused at once and retry elsewhere.",
        "One caller floods the server: find it on board *Keys* and limit its key.",
        "The prefix cache stopped helping: see QuireHitRateDrop.",
    ),
)
_ITL_TEXTS = (
    (
        "Board *Engine*, heat maps: which kind of step got longer? Mixed steps carry parts "
        "of prompts.",
        "*Sequences in a step*: larger batches take longer. *Preemptions*: preempted "
        "sequences see a long gap.",
    ),
    (
        "Long prompts slow decodes down: lower `--max-num-batched-tokens`.",
        "Batches too large for the objective: lower `--max-num-seqs`, add replicas.",
    ),
)
_AVAILABILITY_TEXTS = (
    (
        "Board *API and streaming*, *Failed or refused by the server*: which outcome?",
        "[Outcomes](metrics.md#outcomes) says what each one means; the request's log line "
        "has `error`.",
    ),
    (
        "`refused:overloaded`: see QuireShedding. `error:engine`, `refused:engine`: see "
        "QuireEngineSilent and the engine's log. `error:worker`: see QuireWorkerRestarts. "
        "`error:store`, `refused:store`: see QuireStoreUnavailable.",
        "After a release: roll it back.",
    ),
)


def _indicators(objectives: Objectives) -> tuple[_Indicator, ...]:
    bad = _Q.rate(catalogue.REQUESTS, by="job", outcome=BAD_OUTCOMES)
    counted = _Q.rate(catalogue.REQUESTS, by="job", outcome=COUNTED_OUTCOMES)
    return (
        _Indicator(
            "Ttft",
            "ttft",
            objectives.ttft_budget,
            _missed(catalogue.TIME_TO_FIRST_TOKEN, objectives.ttft),
            _increase(catalogue.TIME_TO_FIRST_TOKEN, "_count"),
            f"requests got their first token later than {objectives.ttft:g} s",
            *_TTFT_TEXTS,
        ),
        _Indicator(
            "Itl",
            "itl",
            objectives.itl_budget,
            _missed(catalogue.INTER_TOKEN_LATENCY, objectives.itl),
            _increase(catalogue.INTER_TOKEN_LATENCY, "_count"),
            f"gaps between tokens were longer than {objectives.itl:g} s",
            *_ITL_TEXTS,
        ),
        _Indicator(
            "Availability",
            "availability",
            objectives.availability_budget,
            ratio(bad, counted),
            _increase(catalogue.REQUESTS, "", outcome=COUNTED_OUTCOMES),
            "requests failed or were refused through no fault of theirs",
            *_AVAILABILITY_TEXTS,
        ),
    )


def recordings(objectives: Objectives) -> Iterator[Recording]:
    """Yield the shares of misses over each window, which boards and alerts can read cheaply."""
    for indicator in _indicators(objectives):
        for window in _WINDOWS:
            yield Recording(indicator.record(window), indicator.missed.replace(_WINDOW, window))


def budget_alerts(objectives: Objectives) -> Iterator[Alert]:
    for indicator in _indicators(objectives):
        for pace in PACES:
            yield _alert(indicator, pace)


def _alert(indicator: _Indicator, pace: BurnPace) -> Alert:
    limit = f"{pace.factor * indicator.budget:.6g}"
    recent, counted = indicator.record(pace.short), indicator.counted.replace(_WINDOW, pace.short)
    return Alert(
        f"Quire{indicator.name}Budget{pace.name}",
        f"{indicator.record(pace.long)} > {limit}"
        f" and {recent} > {limit}"
        f" and {counted} > {LEAST_REQUESTS}"
        f" and {recent} * {counted} > {MOST_STRAY_MISSES}",
        pace.severity,
        "{{ $labels.job }}: {{ $value | humanizePercentage }} of "
        f"{indicator.what} in the last {pace.long}",
        f"Over {pace.long} and over the last {pace.short}, the share of misses was more than "
        f"{pace.factor:g} times the budget of {indicator.budget:.3g}, with more than "
        f"{MOST_STRAY_MISSES} misses in the last {pace.short}. A 30-day budget would last "
        f"{pace.lasts}.",
        indicator.look,
        indicator.act,
        "slo",
    )
