"""Overview: is the server up, is it fast enough, what limits it."""

from __future__ import annotations

from observability import catalogue, queue_metrics
from observability.boards.model import (
    BOARD_QUERIES,
    MODEL_CHOICES,
    SLO_ITL,
    SLO_TTFT,
    Board,
    Panel,
    PanelKind,
    PanelQuery,
    PanelRow,
    PanelUnit,
)
from observability.objectives import BAD_OUTCOMES, COUNTED_OUTCOMES
from observability.outcomes import OUTCOMES, QUEUE_REFUSALS, OutcomeGroup
from observability.promql import ratio

_q = BOARD_QUERIES
_REFUSED = tuple(each.name for each in OUTCOMES if each.group is OutcomeGroup.REFUSED)
_GROUPS = tuple(
    (group, tuple(each.name for each in OUTCOMES if each.group is group)) for group in OutcomeGroup
)
_ATTAINMENT_STEPS = ((0.0, "red"), (0.95, "orange"), (0.99, "green"))

_STATE = PanelRow(
    "Now",
    (
        Panel(
            "Servers up",
            "Servers that answer scrapes.",
            (PanelQuery('sum(up{job=~"$job", instance=~"$instance"})'),),
            PanelUnit.PLAIN,
            PanelKind.STAT,
            width=3,
        ),
        Panel(
            "Engines ready",
            "Engines that are loaded and not silent. /health is ok as long as one is.",
            (PanelQuery(_q.gauge(catalogue.ENGINES, state="ok")),),
            PanelUnit.PLAIN,
            PanelKind.STAT,
            width=3,
            steps=((0, "red"), (1, "green")),
        ),
        Panel(
            "Requests received",
            "Requests whose headers were read, per second.",
            (PanelQuery(_q.rate(catalogue.REQUESTS_RECEIVED)),),
            PanelUnit.REQUESTS,
            PanelKind.STAT,
            width=3,
        ),
        Panel(
            "Output",
            "Tokens generated per second.",
            (PanelQuery(_q.rate(catalogue.GENERATED_TOKENS)),),
            PanelUnit.TOKENS_PER_SECOND,
            PanelKind.STAT,
            width=3,
        ),
        Panel(
            "First token within SLO",
            "Share of requests whose first token came within the objective.",
            (PanelQuery(_q.attained(catalogue.TIME_TO_FIRST_TOKEN, "$slo_ttft")),),
            PanelUnit.SHARE,
            PanelKind.STAT,
            width=3,
            maximum=1,
            steps=_ATTAINMENT_STEPS,
        ),
        Panel(
            "Token gaps within SLO",
            "Share of gaps between tokens within the objective.",
            (PanelQuery(_q.attained(catalogue.INTER_TOKEN_LATENCY, "$slo_itl")),),
            PanelUnit.SHARE,
            PanelKind.STAT,
            width=3,
            maximum=1,
            steps=_ATTAINMENT_STEPS,
        ),
        Panel(
            "Failed or refused by the server",
            "Share of requests that failed, or were refused through no fault of theirs.",
            (
                PanelQuery(
                    ratio(
                        _q.rate(catalogue.REQUESTS, outcome=BAD_OUTCOMES),
                        _q.rate(catalogue.REQUESTS, outcome=COUNTED_OUTCOMES),
                    )
                ),
            ),
            PanelUnit.SHARE,
            PanelKind.STAT,
            width=3,
            steps=((0.001, "orange"), (0.01, "red")),
        ),
        Panel(
            "KV cache in use",
            "Share of blocks that sequences hold, of the fullest engine.",
            (PanelQuery(_q.gauge(catalogue.KV_USAGE_RATIO, how="max")),),
            PanelUnit.SHARE,
            PanelKind.STAT,
            width=3,
            maximum=1,
            steps=((0.85, "orange"), (0.97, "red")),
        ),
    ),
)

_SPEED = PanelRow(
    "Is it fast enough?",
    (
        Panel(
            "Time to first token",
            "From receipt of the request to its first token. Points link to traces.",
            (
                *(
                    PanelQuery(_q.quantile(share, catalogue.TIME_TO_FIRST_TOKEN), name)
                    for share, name in ((0.5, "p50"), (0.95, "p95"), (0.99, "p99"))
                ),
                PanelQuery("vector($slo_ttft)", "SLO"),
            ),
            PanelUnit.SECONDS,
            exemplars=True,
        ),
        Panel(
            "Time between tokens",
            "Every gap between consecutive tokens of a sequence.",
            (
                *(
                    PanelQuery(_q.quantile(share, catalogue.INTER_TOKEN_LATENCY), name)
                    for share, name in ((0.5, "p50"), (0.95, "p95"), (0.99, "p99"))
                ),
                PanelQuery("vector($slo_itl)", "SLO"),
            ),
            PanelUnit.SECONDS,
        ),
        Panel(
            "Where the time goes",
            "Request seconds spent in each phase, per second: the number of requests that are in "
            "it on average. Queue and prefill growing relative to decode mean an overload.",
            (PanelQuery(_q.rate(catalogue.PHASE_SECONDS, "_sum", by="phase"), "{{phase}}"),),
            PanelUnit.SECONDS_PER_SECOND,
            stacked=True,
        ),
    ),
)

_LIMITS = PanelRow(
    "What limits it?",
    (
        Panel(
            "Sequences",
            "Running and waiting.",
            (
                PanelQuery(_q.gauge(catalogue.SEQUENCES_RUNNING), "running"),
                PanelQuery(
                    _q.gauge(catalogue.SEQUENCES_WAITING, by="reason"), "waiting: {{reason}}"
                ),
            ),
            PanelUnit.COUNT,
            stacked=True,
        ),
        Panel(
            "Oldest wait",
            "How long the oldest waiting sequence has waited, and how long a new one is predicted "
            "to wait.",
            (
                PanelQuery(_q.gauge(catalogue.OLDEST_WAITING_SECONDS, how="max"), "oldest"),
                PanelQuery(
                    _q.gauge(catalogue.PREDICTED_WAIT_SECONDS, how="max"),
                    "predicted",
                    silent="sequences wait, and fewer than two have started",
                    proof=f"{_q.gauge(catalogue.SEQUENCES_WAITING)} > 0",
                ),
            ),
            PanelUnit.SECONDS,
        ),
        Panel(
            "Waiting by class",
            "Sequences that wait for an engine, by service class.",
            (PanelQuery(_q.gauge(queue_metrics.CLASS_WAITING, by="class"), "{{class}}"),),
            PanelUnit.COUNT,
            stacked=True,
        ),
        Panel(
            "Oldest wait by class",
            "How long the oldest waiting sequence of each service class has waited.",
            (
                PanelQuery(
                    _q.gauge(queue_metrics.CLASS_OLDEST_WAITING_SECONDS, how="max", by="class"),
                    "{{class}}",
                ),
            ),
            PanelUnit.SECONDS,
        ),
        Panel(
            "No place in the queue",
            " ".join(f"{name}: {text}." for name, text in QUEUE_REFUSALS.items()),
            (PanelQuery(_q.rate(queue_metrics.REFUSED_SEQUENCES, by="reason"), "{{reason}}"),),
            PanelUnit.PER_SECOND,
            stacked=True,
        ),
        Panel(
            "Requests ended",
            "By group of outcomes.",
            tuple(
                PanelQuery(_q.rate(catalogue.REQUESTS, outcome=outcomes), group.value)
                for group, outcomes in _GROUPS
            ),
            PanelUnit.REQUESTS,
            stacked=True,
        ),
        Panel(
            "Refused",
            "Requests refused before any work, by reason.",
            (
                PanelQuery(
                    f"{_q.rate(catalogue.REQUESTS, by='outcome', outcome=_REFUSED)} > 0",
                    "{{outcome}}",
                ),
            ),
            PanelUnit.REQUESTS,
            stacked=True,
        ),
        Panel(
            "What limited the server",
            "Share of the time, by the verdict of the admin API.",
            (PanelQuery(f"{_q.rate(catalogue.LIMITED_SECONDS, by='by')} > 0", "{{by}}"),),
            PanelUnit.SECONDS_PER_SECOND,
            stacked=True,
        ),
        Panel(
            "Tokens",
            "Generated, and prompt tokens by where they came from.",
            (
                PanelQuery(_q.rate(catalogue.GENERATED_TOKENS), "generated"),
                PanelQuery(_q.rate(catalogue.PROMPT_TOKENS, by="source"), "prompt: {{source}}"),
            ),
            PanelUnit.TOKENS_PER_SECOND,
        ),
    ),
)

OVERVIEW = Board(
    "overview",
    "Quire: overview",
    "Is the server up, is it fast enough, and what limits it.",
    (_STATE, _SPEED, _LIMITS),
    MODEL_CHOICES,
    (SLO_TTFT, SLO_ITL),
)
