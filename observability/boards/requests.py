"""Boards about requests: their phases, the API and its streams, and API keys."""

from __future__ import annotations

from observability import catalogue, connection_metrics, store_metrics
from observability.boards.model import (
    BOARD_QUERIES,
    MODEL_CHOICES,
    SERVER_CHOICES,
    Board,
    BoardChoice,
    Panel,
    PanelKind,
    PanelQuery,
    PanelRow,
    PanelUnit,
)
from observability.objectives import BAD_OUTCOMES
from observability.outcomes import NO_ROUTE, OUTCOMES, OutcomeGroup
from observability.phases import FLUSHING, PHASES, RequestPhase
from observability.promql import ratio

_q = BOARD_QUERIES
_NAMES = tuple(outcome.name for outcome in OUTCOMES)
_CLIENT_ERRORS = {
    "400, 422": "refused:invalid",
    "401": "refused:unauthorized",
    "404": "refused:not_found",
    "413": "refused:too_large",
    "429": "refused:overloaded",
}
_READ_AT_ONCE = "no client is slow to read"


def _of_phase(expr: str, legend: str, phase: RequestPhase) -> PanelQuery:
    if phase is not FLUSHING:
        return PanelQuery(expr, legend)
    flushes = _q.increase(catalogue.PHASE_SECONDS, "_count", phase=FLUSHING.name)
    return PanelQuery(expr, legend, _READ_AT_ONCE, f"{flushes} == 0")


_LEFT = tuple(each.name for each in OUTCOMES if each.group is OutcomeGroup.LEFT)

PHASES_BOARD = Board(
    "phases",
    "Quire: phases",
    "Where a request's time goes, from its first byte to its last.",
    (
        PanelRow(
            "All phases",
            (
                Panel(
                    "Mean time in each phase",
                    "Stacked, against the mean of whole requests. flush may overlap decode.",
                    (
                        *(
                            _of_phase(
                                _q.mean(catalogue.PHASE_SECONDS, phase=phase.name),
                                phase.name,
                                phase,
                            )
                            for phase in PHASES
                        ),
                    ),
                    PanelUnit.SECONDS,
                    width=12,
                    stacked=True,
                    exemplars=True,
                ),
                Panel(
                    "Whole requests",
                    "From receipt to end, whatever the outcome.",
                    tuple(
                        PanelQuery(_q.quantile(share, catalogue.E2E_SECONDS), name)
                        for share, name in ((0.5, "p50"), (0.95, "p95"), (0.99, "p99"))
                    ),
                    PanelUnit.SECONDS,
                    width=12,
                    exemplars=True,
                ),
            ),
        ),
        PanelRow(
            "Each phase",
            tuple(
                Panel(
                    phase.name,
                    f"{phase.help[0].upper()}{phase.help[1:]}.",
                    tuple(
                        _of_phase(
                            _q.quantile(share, catalogue.PHASE_SECONDS, phase=phase.name),
                            name,
                            phase,
                        )
                        for share, name in ((0.5, "p50"), (0.95, "p95"), (0.99, "p99"))
                    ),
                    PanelUnit.SECONDS,
                    width=6,
                    exemplars=True,
                )
                for phase in PHASES
            ),
        ),
        PanelRow(
            "Sizes",
            (
                Panel(
                    "Prompt tokens",
                    "Of a request.",
                    tuple(
                        PanelQuery(_q.quantile(share, catalogue.REQUEST_PROMPT_TOKENS), name)
                        for share, name in ((0.5, "p50"), (0.95, "p95"))
                    ),
                    PanelUnit.TOKENS,
                ),
                Panel(
                    "Generated tokens",
                    "Of a request, all its choices together.",
                    tuple(
                        PanelQuery(_q.quantile(share, catalogue.REQUEST_GENERATED_TOKENS), name)
                        for share, name in ((0.5, "p50"), (0.95, "p95"))
                    ),
                    PanelUnit.TOKENS,
                ),
                Panel(
                    "Mean sizes",
                    "Of a request: how much of its prompt the prefix cache did not have, and how "
                    "long its longest choice is.",
                    tuple(
                        PanelQuery(_q.mean(metric), name)
                        for metric, name in (
                            (catalogue.REQUEST_PROMPT_TOKENS, "prompt"),
                            (catalogue.REQUEST_UNCACHED_TOKENS, "prompt, not cached"),
                            (catalogue.REQUEST_GENERATED_TOKENS, "generated"),
                            (catalogue.REQUEST_LONGEST_CHOICE, "longest choice"),
                        )
                    ),
                    PanelUnit.TOKENS,
                ),
                Panel(
                    "Time per output token",
                    "Mean time between a request's tokens (TPOT).",
                    tuple(
                        PanelQuery(_q.quantile(share, catalogue.TIME_PER_OUTPUT_TOKEN), name)
                        for share, name in ((0.5, "p50"), (0.95, "p95"), (0.99, "p99"))
                    ),
                    PanelUnit.SECONDS,
                    exemplars=True,
                ),
                Panel(
                    "Time to first token",
                    "Distribution over requests. Points link to traces.",
                    (
                        PanelQuery(
                            _q.increase(catalogue.TIME_TO_FIRST_TOKEN, "_bucket", by="le"), "{{le}}"
                        ),
                    ),
                    PanelUnit.SECONDS,
                    PanelKind.HEAT_MAP,
                    exemplars=True,
                ),
            ),
        ),
    ),
    MODEL_CHOICES,
)

API_BOARD = Board(
    "api",
    "Quire: API and streaming",
    "What arrives, how it ends, and whether the server or its clients hold streams up.",
    (
        PanelRow(
            "Requests",
            (
                Panel(
                    "Received and ended",
                    "They differ while requests run; requests pile up if they keep diverging.",
                    (
                        PanelQuery(_q.rate(catalogue.REQUESTS_RECEIVED), "received"),
                        PanelQuery(_q.rate(catalogue.REQUESTS), "ended"),
                    ),
                    PanelUnit.REQUESTS,
                ),
                Panel(
                    "In progress",
                    "By API.",
                    (
                        PanelQuery(
                            f"{_q.gauge(catalogue.REQUESTS_IN_PROGRESS, by='route')} > 0",
                            "{{route}}",
                        ),
                    ),
                    PanelUnit.COUNT,
                    stacked=True,
                ),
                Panel(
                    "Received by API",
                    "Route none: paths and methods that no route matches.",
                    (
                        PanelQuery(
                            f"{_q.rate(catalogue.REQUESTS_RECEIVED, by='route')} > 0", "{{route}}"
                        ),
                    ),
                    PanelUnit.REQUESTS,
                    stacked=True,
                ),
                Panel(
                    "Ended by outcome",
                    "Every request ends in exactly one.",
                    (
                        PanelQuery(
                            f"{_q.rate(catalogue.REQUESTS, by='outcome', outcome=_NAMES)} > 0",
                            "{{outcome}}",
                        ),
                    ),
                    PanelUnit.REQUESTS,
                    width=12,
                    stacked=True,
                ),
                Panel(
                    "Refused by status",
                    "Client errors (4xx) and overload (429).",
                    tuple(
                        PanelQuery(_q.rate(catalogue.REQUESTS, outcome=outcome), status)
                        for status, outcome in _CLIENT_ERRORS.items()
                    ),
                    PanelUnit.REQUESTS,
                    width=12,
                    stacked=True,
                ),
                Panel(
                    "Mean time by API",
                    "Of whole requests, whatever the outcome.",
                    (PanelQuery(_q.mean(catalogue.ROUTE_SECONDS, by="route"), "{{route}}"),),
                    PanelUnit.SECONDS,
                ),
                Panel(
                    "Failed or refused by the server",
                    "Requests that count against the availability budget.",
                    (
                        PanelQuery(
                            _q.rate(catalogue.REQUESTS, by="outcome", outcome=BAD_OUTCOMES)
                            + " > 0",
                            "{{outcome}}",
                        ),
                    ),
                    PanelUnit.REQUESTS,
                ),
                Panel(
                    "Unknown paths",
                    "Requests that no route takes, per second: a client with a wrong base URL.",
                    (PanelQuery(_q.rate(catalogue.REQUESTS_RECEIVED, route=NO_ROUTE)),),
                    PanelUnit.REQUESTS,
                ),
                Panel(
                    "Clients that left",
                    "Disconnected, too slow, or past their own deadline.",
                    (
                        PanelQuery(
                            _q.rate(catalogue.REQUESTS, by="outcome", outcome=_LEFT), "{{outcome}}"
                        ),
                    ),
                    PanelUnit.REQUESTS,
                ),
            ),
        ),
        PanelRow(
            "Streams",
            (
                Panel(
                    "Longest gap",
                    "The longest time since the last token, over sequences that have begun.",
                    (PanelQuery(_q.gauge(catalogue.LONGEST_GAP_SECONDS, how="max")),),
                    PanelUnit.SECONDS,
                ),
                Panel(
                    "Writes waiting for clients",
                    "Request seconds in which a write waited for the client to read, per second: "
                    "the number of streams that stall on average.",
                    (
                        PanelQuery(
                            _q.rate(catalogue.PHASE_SECONDS, "_sum", phase=FLUSHING.name), "stalled"
                        ),
                    ),
                    PanelUnit.SECONDS_PER_SECOND,
                ),
                Panel(
                    "Event loop: lag and hold",
                    "How late a timer woke up, and CPU time between two samples of the loop: 99th "
                    "percentiles.",
                    (
                        PanelQuery(_q.quantile(0.99, catalogue.EVENT_LOOP_LAG_SECONDS), "lag"),
                        PanelQuery(_q.quantile(0.99, catalogue.EVENT_LOOP_HOLD_SECONDS), "hold"),
                    ),
                    PanelUnit.SECONDS,
                ),
                Panel(
                    "API worker's CPU",
                    "Share of one core.",
                    (
                        PanelQuery(
                            "rate(process_cpu_seconds_total"
                            '{job=~"$job",instance=~"$instance"}[$__rate_interval])',
                            "{{instance}}",
                        ),
                    ),
                    PanelUnit.SHARE,
                ),
                Panel(
                    "API worker's memory",
                    "Resident.",
                    (
                        PanelQuery(
                            'process_resident_memory_bytes{job=~"$job",instance=~"$instance"}',
                            "{{instance}}",
                        ),
                    ),
                    PanelUnit.BYTES,
                ),
                Panel(
                    "Connections",
                    "Of clients to the public HTTP port, and how many it accepts at once; more "
                    "wait, health checks among them.",
                    (
                        PanelQuery(_q.gauge(connection_metrics.OPEN_CONNECTIONS), "open"),
                        PanelQuery(_q.gauge(connection_metrics.CONNECTION_LIMIT), "limit"),
                    ),
                    PanelUnit.COUNT,
                ),
                Panel(
                    "Admin API",
                    "Requests by the scope that they require and how they ended.",
                    (
                        PanelQuery(
                            _q.rate(catalogue.ADMIN_REQUESTS, by="scope, result"),
                            "{{scope}} {{result}}",
                        ),
                    ),
                    PanelUnit.REQUESTS,
                ),
                Panel(
                    "Store unavailable",
                    "1: the database cannot be used to read responses, store them (write), read "
                    "API keys, store ended requests and usage (records) or share limits.",
                    (
                        PanelQuery(
                            _q.gauge(store_metrics.STORE_UNAVAILABLE, how="max", by="use"),
                            "{{use}}",
                        ),
                    ),
                    PanelUnit.COUNT,
                ),
                Panel(
                    "Responses not stored",
                    "Responses that should have been stored.",
                    (PanelQuery(_q.rate(store_metrics.RESPONSES_NOT_STORED), "not stored"),),
                    PanelUnit.PER_SECOND,
                ),
                Panel(
                    "Telemetry dropped",
                    "Spans, log lines and records that were lost.",
                    (PanelQuery(_q.rate(catalogue.TELEMETRY_DROPPED, by="signal"), "{{signal}}"),),
                    PanelUnit.PER_SECOND,
                ),
            ),
        ),
    ),
    (
        *SERVER_CHOICES[:1],
        BoardChoice("model", "Model", f'{catalogue.REQUESTS.name}{{job=~"$job"}}'),
        *SERVER_CHOICES[1:],
    ),
)


def _key_tokens(kind: str) -> str:
    return _q.rate(catalogue.KEY_TOKENS, by="key", kind=kind)


_KEY_TOTAL = "sum by (key) (increase({}[$__range]))"

KEYS_BOARD = Board(
    "keys",
    "Quire: keys",
    "Who uses the tokens, by the aliases of API keys. Requests without a key are other.",
    (
        PanelRow(
            "Tokens by key",
            (
                *(
                    Panel(
                        title,
                        help_text,
                        (PanelQuery(_key_tokens(kind), "{{key}}"),),
                        PanelUnit.TOKENS_PER_SECOND,
                        stacked=True,
                    )
                    for title, help_text, kind in (
                        ("Output", "Generated tokens.", "output"),
                        ("Prompt, computed", "Prompt tokens that the model computed.", "prompt"),
                        ("Prompt, cached", "Prompt tokens found in the prefix cache.", "cached"),
                    )
                ),
                Panel(
                    "Tokens in the time range",
                    "Sums over the board's time range.",
                    tuple(
                        PanelQuery(
                            _KEY_TOTAL.format(_q.series(catalogue.KEY_TOKENS, kind=kind)), name
                        )
                        for kind, name in (
                            ("output", "output"),
                            ("prompt", "prompt computed"),
                            ("cached", "prompt cached"),
                        )
                    ),
                    PanelUnit.TOKENS,
                    PanelKind.TABLE,
                    width=12,
                ),
                Panel(
                    "Share of prompt tokens cached",
                    "By key: how well its prompts reuse the prefix cache.",
                    (
                        PanelQuery(
                            ratio(
                                _key_tokens("cached"),
                                _q.rate(catalogue.KEY_TOKENS, by="key", kind=("prompt", "cached")),
                            ),
                            "{{key}}",
                        ),
                    ),
                    PanelUnit.SHARE,
                    width=12,
                    maximum=1,
                ),
            ),
        ),
    ),
    SERVER_CHOICES,
)
