"""Names that other servers have for what Quire measures, so that their boards and autoscalers read
Quire (``--metrics-aliases``). A name is here only if Quire measures that fact.

The names are vLLM's, with its labels: ``model_name`` (the model's first name, under which all names
are summed) and ``engine``, which is 0.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from observability import catalogue, phases
from observability.metric_kinds import Metric, MetricKind
from observability.outcomes import OUTCOMES, ROUTE_TABLE, OutcomeGroup, Route, Trait, can_end

_ENGINE = {"engine": "0"}


@dataclass(frozen=True, slots=True)
class Alias:
    """One series: the sum of ``source``'s series whose labels are among ``where``'s values.
    ``labels``: further ones of the series. ``shown``: the value that it has while the sum is not 0,
    instead of the sum; while it is 0 there is no series."""

    name: str
    kind: MetricKind
    help: str
    source: Metric
    where: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)
    names_model: bool = True  # has the labels model_name and engine
    shown: float | None = None


@dataclass(frozen=True, slots=True)
class InfoAlias:
    """A gauge of value 1 whose labels are facts of ``source``. ``facts``: the names there."""

    name: str
    help: str
    source: Metric
    facts: Mapping[str, str]


def _gauge(name: str, text: str, source: Metric, /, **where: tuple[str, ...]) -> Alias:
    return Alias(f"vllm:{name}", MetricKind.GAUGE, text, source, where)


def _counter(name: str, text: str, source: Metric, /, **where: tuple[str, ...]) -> Alias:
    return Alias(f"vllm:{name}_total", MetricKind.COUNTER, text, source, where)


def _histogram(name: str, text: str, source: Metric, /, **where: tuple[str, ...]) -> Alias:
    return Alias(f"vllm:{name}", MetricKind.HISTOGRAM, text, source, where)


def _by(alias: Alias, /, **labels: str) -> Alias:
    return Alias(alias.name, alias.kind, alias.help, alias.source, alias.where, labels)


def _waiting_by_reason() -> Iterator[Alias]:
    for reason, ours in (
        ("capacity", ("slots", "kv_blocks", "budget")),
        ("deferred", ("constraint",)),
    ):
        text = "Requests in the queue, by what holds them back."
        alias = _gauge(
            "num_requests_waiting_by_reason", text, catalogue.SEQUENCES_WAITING, reason=ours
        )
        yield _by(alias, reason=reason)


def _prompt_tokens_by_source() -> Iterator[Alias]:
    for source, ours in (("local_compute", "computed"), ("local_cache_hit", "cached")):
        text = "Prompt tokens by where they came from."
        alias = _counter("prompt_tokens_by_source", text, catalogue.PROMPT_TOKENS, source=(ours,))
        yield _by(alias, source=source)


def _sleep_states() -> Iterator[Alias]:
    """Quire's engine never sleeps. Without these, vLLM's boards take every server for one that is
    down; while the engine is not ready, they are right."""
    for state, value in (("awake", 1.0), ("weights_offloaded", 0.0), ("discard_all", 0.0)):
        yield Alias(
            "vllm:engine_sleep_state",
            MetricKind.GAUGE,
            "A ready engine is awake: there is no sleep mode.",
            catalogue.ENGINE_READY,
            labels={"sleep_state": state},
            shown=value,
        )


_IN_ENGINE = tuple(route.name for route in ROUTE_TABLE if Trait.ENGINE in route.traits)
_FINISHED = {
    "stop": ("stop", "tool_calls"),
    "length": ("length",),
    "abort": tuple(each.name for each in OUTCOMES if each.group is OutcomeGroup.LEFT),
    "error": tuple(each.name for each in OUTCOMES if each.group is OutcomeGroup.FAILED),
}


def _request_success() -> Iterator[Alias]:
    for reason, outcomes in _FINISHED.items():
        text = "Requests that were accepted and have ended, by reason."
        alias = _counter(
            "request_success", text, catalogue.REQUESTS, route=_IN_ENGINE, outcome=outcomes
        )
        yield _by(alias, finished_reason=reason)


# The method and the first path of each route that has one method. Requests to the other paths of a
# route count there too. Of a request whose client left, it is not known whether the response had
# begun: it has no status here.
HTTP_HANDLERS = {
    "chat_completions": ("POST", "/v1/chat/completions"),
    "completions": ("POST", "/v1/completions"),
    "messages": ("POST", "/v1/messages"),
    "count_tokens": ("POST", "/v1/messages/count_tokens"),
    "responses": ("POST", "/v1/responses"),
    "embeddings": ("POST", "/v1/embeddings"),
    "rerank": ("POST", "/v1/rerank"),
    "score": ("POST", "/v1/score"),
    "tokenize": ("POST", "/tokenize"),
    "detokenize": ("POST", "/detokenize"),
}
STATUS_OUTCOMES = {
    "2xx": tuple(each.name for each in OUTCOMES if each.group is OutcomeGroup.ANSWERED),
    "4xx": (
        *("refused:invalid", "refused:unauthorized", "refused:not_found", "refused:too_large"),
        *("refused:overloaded", "refused:deadline", "refused:limit", "refused:crashing"),
    ),
    "5xx": (
        *("refused:loading", "refused:engine", "refused:preparation", "refused:draining"),
        *("refused:store", "refused:expired"),
        *(each.name for each in OUTCOMES if each.group is OutcomeGroup.FAILED),
    ),
}


def _http_requests() -> Iterator[Alias]:
    for route in ROUTE_TABLE:
        if route.name not in HTTP_HANDLERS:
            continue
        method, path = HTTP_HANDLERS[route.name]
        for status in STATUS_OUTCOMES:
            outcomes = tuple(_possible(route, status))
            yield Alias(
                "http_requests_total",
                MetricKind.COUNTER,
                "Requests by API (its first path), method and class of status, as their outcome "
                "says.",
                catalogue.REQUESTS,
                {"route": (route.name,), "outcome": outcomes},
                {"handler": path, "method": method, "status": status},
                names_model=False,
            )


def _possible(route: Route, status: str) -> Iterator[str]:
    for outcome in OUTCOMES:
        ends = can_end(route, outcome, named=True) or can_end(route, outcome, named=False)
        if outcome.name in STATUS_OUTCOMES[status] and ends:
            yield outcome.name


def _http_seconds() -> Iterator[Alias]:
    for route, (method, path) in HTTP_HANDLERS.items():
        yield Alias(
            "http_request_duration_seconds",
            MetricKind.HISTOGRAM,
            "Time of whole requests, by API (its first path) and method.",
            catalogue.ROUTE_SECONDS,
            {"route": (route,)},
            {"handler": path, "method": method},
            names_model=False,
        )


VLLM_ALIASES: tuple[Alias | InfoAlias, ...] = (
    _gauge("num_requests_running", "Running requests.", catalogue.SEQUENCES_RUNNING),
    _gauge("num_requests_waiting", "Requests in the queue.", catalogue.SEQUENCES_WAITING),
    *_waiting_by_reason(),
    *_sleep_states(),
    _gauge("kv_cache_usage_perc", "KV cache in use, 0 to 1.", catalogue.KV_USAGE_RATIO),
    InfoAlias(
        "vllm:cache_config_info",
        "Shape of the KV cache.",
        catalogue.ENGINE_INFO,
        {"block_size": "block_size", "num_gpu_blocks": "num_kv_blocks"},
    ),
    _counter("prompt_tokens", "Prompt tokens, cached ones too.", catalogue.PROMPT_TOKENS),
    _counter(
        "prompt_tokens_cached",
        "Prompt tokens found in the prefix cache.",
        catalogue.PROMPT_TOKENS,
        source=("cached",),
    ),
    *_prompt_tokens_by_source(),
    _by(
        _counter(
            "prompt_tokens_cached_by_source",
            "Prompt tokens found in the prefix cache, by where it lies.",
            catalogue.PROMPT_TOKENS,
            source=("cached",),
        ),
        source="device",
    ),
    _counter(
        "prefix_cache_queries",
        "Prompt tokens looked up in the prefix cache, each once.",
        catalogue.PROMPT_TOKENS,
    ),
    _counter(
        "prefix_cache_hits",
        "Prompt tokens found in the prefix cache.",
        catalogue.PROMPT_TOKENS,
        source=("cached",),
    ),
    _counter("generation_tokens", "Generated tokens.", catalogue.GENERATED_TOKENS),
    _counter("num_preemptions", "Preemptions.", catalogue.PREEMPTIONS),
    *_request_success(),
    _histogram(
        "time_to_first_token_seconds", "Time to first token.", catalogue.TIME_TO_FIRST_TOKEN
    ),
    _histogram(
        "inter_token_latency_seconds", "Time between tokens.", catalogue.INTER_TOKEN_LATENCY
    ),
    _histogram(
        "request_time_per_output_token_seconds",
        "Mean time between a request's tokens.",
        catalogue.TIME_PER_OUTPUT_TOKEN,
    ),
    _histogram("e2e_request_latency_seconds", "Time of whole requests.", catalogue.E2E_SECONDS),
    *(
        _histogram(
            f"request_{phase.name}_time_seconds",
            f"Time in the phase {phase.name}.",
            catalogue.PHASE_SECONDS,
            phase=(phase.name,),
        )
        for phase in (phases.QUEUEING, phases.PREFILLING, phases.DECODING)
    ),
    _histogram("request_prompt_tokens", "Prompt tokens.", catalogue.REQUEST_PROMPT_TOKENS),
    _histogram(
        "request_generation_tokens", "Generated tokens.", catalogue.REQUEST_GENERATED_TOKENS
    ),
    _histogram(
        "request_max_num_generation_tokens",
        "Generated tokens of the longest choice.",
        catalogue.REQUEST_LONGEST_CHOICE,
    ),
    _histogram(
        "request_prefill_kv_computed_tokens",
        "Prompt tokens that were not in the prefix cache.",
        catalogue.REQUEST_UNCACHED_TOKENS,
    ),
    _histogram("request_num_preemptions", "Preemptions.", catalogue.REQUEST_PREEMPTIONS),
    _histogram("iteration_tokens_total", "Tokens in an engine step.", catalogue.STEP_TOKENS),
    *_http_requests(),
    *_http_seconds(),
)

# By the value of --metrics-aliases.
ALIASES: Mapping[str, tuple[Alias | InfoAlias, ...]] = {"none": (), "vllm": VLLM_ALIASES}


def alias_labels(alias: Alias, model: str) -> dict[str, str]:
    """Return all labels of the series. ``model``: the model's first name."""
    shared = {"model_name": model, **_ENGINE} if alias.names_model else {}
    return {**shared, **alias.labels}


def info_labels(alias: InfoAlias, facts: Mapping[str, str]) -> dict[str, str]:
    return {**{name: facts[ours] for name, ours in alias.facts.items()}, **_ENGINE}
