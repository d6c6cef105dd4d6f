"""What a request adds to histograms and to the counters of its key."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from observability import catalogue
from observability.catalogue import OTHER_KEY, OTHER_MODEL
from observability.metrics import MetricRegistry
from service.telemetry.phases import mean_gap
from service.telemetry.record import RequestRecord


class RequestObservations:
    """Called within one transaction of the ledger. Traces that are exported become exemplars.
    ``keys``: the aliases of API keys."""

    def __init__(self, metrics: MetricRegistry, keys: Sequence[str]) -> None:
        self._models = frozenset(metrics.models)
        self._keys = frozenset(keys)
        series = metrics.series
        self._total = series(catalogue.E2E_SECONDS)
        self._routes = series(catalogue.ROUTE_SECONDS)
        self._phases = series(catalogue.PHASE_SECONDS)
        self._first_tokens = series(catalogue.TIME_TO_FIRST_TOKEN)
        self._prompts = series(catalogue.REQUEST_PROMPT_TOKENS)
        self._outputs = series(catalogue.REQUEST_GENERATED_TOKENS)
        first = metrics.models[0]
        self._gap = series(catalogue.TIME_PER_OUTPUT_TOKEN)(first)
        self._uncached = series(catalogue.REQUEST_UNCACHED_TOKENS)(first)
        self._longest = series(catalogue.REQUEST_LONGEST_CHOICE)(first)
        self._preemptions = series(catalogue.REQUEST_PREEMPTIONS)
        self._handovers = series(catalogue.HANDOVERS)
        self._key_tokens = series(catalogue.KEY_TOKENS)

    def first_token(self, record: RequestRecord) -> None:
        """Observe the time to the first token, as soon as it is there."""
        if record.first_token_time is not None and record.model in self._models:
            seconds = record.first_token_time - record.received_time
            self._first_tokens(record.model).observe(seconds, _exemplar(record))

    def traced_at_last(self, record: RequestRecord) -> None:
        """Make the trace the exemplar of what was observed before it was known to be kept."""
        trace_id = _exemplar(record)
        if record.first_token_time is None or trace_id is None or record.model not in self._models:
            return
        seconds = record.first_token_time - record.received_time
        self._first_tokens(record.model).set_exemplar(seconds, trace_id)

    def ended(self, record: RequestRecord, ended: float, seconds: Mapping[str, float]) -> None:
        """``seconds``: of each phase."""
        named = record.model in self._models
        model = record.model if named else OTHER_MODEL
        trace_id = _exemplar(record)
        self._total(model).observe(ended - record.received_time, trace_id)
        self._routes(record.route).observe(ended - record.received_time, trace_id)
        if named:
            for phase, spent in seconds.items():
                self._phases(model, phase).observe(spent, trace_id)
        if record.sequences:
            if named:
                self._sizes(record, trace_id)
            self._count_tokens(record)

    def _sizes(self, record: RequestRecord, trace_id: int | None) -> None:
        model = record.model
        preemptions = handovers = longest = 0
        for sequence in record.sequences:
            preemptions += sequence.preemptions
            handovers += sequence.handovers
            longest = max(longest, sequence.output_tokens)
        self._prompts(model).observe(record.prompt_tokens, trace_id)
        if _ran(record):
            self._uncached.observe(_uncached(record), trace_id)
        if record.generates:
            self._outputs(model).observe(record.output_tokens, trace_id)
            self._longest.observe(longest, trace_id)
            gap = mean_gap(record.sequences)
            if gap is not None:
                self._gap.observe(gap, trace_id)
        self._preemptions(model).observe(preemptions, trace_id)
        if handovers:
            self._handovers(model).inc(handovers)

    def _count_tokens(self, record: RequestRecord) -> None:
        """Count what the engine did for a key, whether or not the client stayed for it."""
        if not _ran(record):
            return
        key = record.key if record.key in self._keys else OTHER_KEY
        series = self._key_tokens
        series(key, "prompt").inc(_uncached(record))
        series(key, "cached").inc(record.cached_tokens)
        series(key, "output").inc(record.output_tokens)


def _ran(record: RequestRecord) -> bool:
    """The engine began with one of its choices."""
    return any(one.first_scheduled_time is not None for one in record.sequences)


def _uncached(record: RequestRecord) -> int:
    return max(0, record.prompt_tokens - record.cached_tokens)


def _exemplar(record: RequestRecord) -> int | None:
    identity = record.identity
    return identity.trace_id if record.traced and identity is not None else None
