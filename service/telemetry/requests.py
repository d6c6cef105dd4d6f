"""The API worker's metrics, traces and logs: each request once, at its end, from its record; the
engine with each of its messages.

Implements ``service.telemetry.observer.Telemetry``. All calls come from the worker's event loop;
none blocks.
"""

from __future__ import annotations

import asyncio
import platform
import time
from collections.abc import Callable, Iterator, Mapping, Sequence

from engine.messages import Finished, Heartbeat, PrefixMiss, StepOutputs
from observability import catalogue
from observability.catalogue import OTHER_KEY, OTHER_MODEL, MetricKind, Scope
from observability.logging import (
    get_logger,
    log_request,
    printable,
    sound_client_request_id,
)
from observability.metrics import MetricRegistry
from observability.open_requests import OpenRequests
from observability.outcomes import NO_ROUTE, OutcomeGroup, Trait, group_of, is_outcome
from observability.phases import PHASES
from observability.tracing import IdentityTracer, Tracer
from service.engine.link import EngineState, LinkPhase
from service.engine.silence import EngineFigures
from service.telemetry.engine import EngineTelemetry
from service.telemetry.line_budget import LineBudget
from service.telemetry.loop_holds import LoopHolds
from service.telemetry.open_request import encode_open
from service.telemetry.phases import other_seconds, seconds_of
from service.telemetry.record import RequestRecord
from service.telemetry.request_series import create_request_series, unserved
from service.telemetry.spans import phase_spans, server_span

LOOP_LAG_INTERVAL_SECONDS = 0.25
# Of the ledger: requests that are open beyond these are counted, but if the worker is killed, their
# ends have no log line and no span.
OPEN_REQUEST_ROWS = 2048
CUT_OUTCOME = "error:worker"

_log = get_logger()


class Telemetry:
    """``models``: the model's names, the primary one first. ``keys``: the aliases of API keys.
    ``log_clients``: keep clients' addresses and user agents. ``dropped_log_lines`` returns how many
    log lines were lost since the start. ``ledger_descriptor``: of the memory that the next worker
    continues, see ``observability.ledger``. ``serves_grpc``: gRPC calls may arrive."""

    def __init__(
        self,
        models: Sequence[str],
        *,
        version: str,
        tracer: Tracer | None = None,
        keys: Sequence[str] = (),
        log_clients: bool = True,
        dropped_log_lines: Callable[[], int] = lambda: 0,
        ledger_descriptor: int | None = None,
        serves_grpc: bool = False,
    ) -> None:
        self.metrics = MetricRegistry(
            models,
            label_values={catalogue.KEY.name: keys},
            open_requests=OPEN_REQUEST_ROWS,
            descriptor=ledger_descriptor,
        )
        self._ledger = self.metrics.ledger
        self.open_requests = OpenRequests(self._ledger)
        self._rows: dict[str, int] = {}  # by request id
        self._models = frozenset(models)
        self._keys = frozenset(keys)
        self._log_clients = log_clients
        self._tracer = tracer or IdentityTracer()
        self._engine = EngineTelemetry(self.metrics)
        self._dropped = {
            "spans": self._tracer.dropped_spans,
            "log_lines": dropped_log_lines,
        }
        self._dropped_before = dict.fromkeys(self._dropped, 0)
        self._received = self.metrics.series(catalogue.REQUESTS_RECEIVED)
        self._requests = self.metrics.series(catalogue.REQUESTS)
        self._handovers = self.metrics.series(catalogue.HANDOVERS)
        self._key_tokens = self.metrics.series(catalogue.KEY_TOKENS)
        self.holds = LoopHolds(self.metrics.series(catalogue.EVENT_LOOP_HOLD_SECONDS)().observe)
        self._in_progress = self.metrics.series(catalogue.REQUESTS_IN_PROGRESS)
        self._histograms = {
            metric: self.metrics.series(metric)
            for metric in catalogue.METRICS
            if metric.kind is MetricKind.HISTOGRAM and metric.scope in (Scope.MODEL, Scope.REQUEST)
        }
        self._unrouted_lines = LineBudget()
        self.metrics[catalogue.BUILD_INFO].info(
            {"version": version, "python": platform.python_version()}
        )
        self._without = Trait.NONE if serves_grpc else Trait.RPC
        create_request_series(self.metrics, without=self._without | Trait.ENGINE)

    # --- requests -----------------------------------------------------------------------------

    def request_started(self, record: RequestRecord) -> None:
        """Join the record to its caller's trace or start a new one, and count it as in progress."""
        identity = self._tracer.begin(record.traceparent, record.tracestate)
        record.identity = identity
        record.trace_id, record.span_id = identity.trace_id_hex, identity.span_id_hex
        record.client_request_id = sound_client_request_id(record.client_request_id)
        record.client_address = printable(record.client_address) if self._log_clients else None
        record.user_agent = printable(record.user_agent) if self._log_clients else None
        with self._ledger:
            self._received(record.route).inc()
            self._in_progress(record.route).inc()
            row = self.open_requests.insert(encode_open(record))
        if row is not None:
            self._rows[record.request_id] = row
        self._still_alive()
        self.holds.request_begins()

    def request_described(self, record: RequestRecord) -> None:
        """Note for the next worker what is known of an open request by now."""
        row = self._rows.get(record.request_id)
        if row is not None:
            self.open_requests.update(row, encode_open(record))

    def first_token(self, record: RequestRecord) -> None:
        """The first generated token of any choice reached the response, at
        ``record.first_token_time``."""
        if record.first_token_time is not None:
            seconds = record.first_token_time - record.received_time
            with self._ledger:
                self._observe(record, catalogue.TIME_TO_FIRST_TOKEN, seconds)
                self.request_described(record)

    def request_finished(self, record: RequestRecord) -> None:
        """Count, trace and log a request whose outcome and status are set. Sets ``ended_time`` if
        it is not set."""
        if not is_outcome(record.outcome):
            _log.error(
                "request ended without a known outcome",
                request_id=record.request_id,
                outcome=record.outcome,
            )
            record.outcome = "error:internal"
        if record.ended_time is None:
            record.ended_time = time.monotonic()
        self.holds.request_ends()
        self._end(record, record.ended_time, self._rows.pop(record.request_id, None))
        self._still_alive()

    def _end(self, record: RequestRecord, ended: float, row: int | None) -> None:
        model = record.model if record.model in self._models else OTHER_MODEL
        seconds = seconds_of(record)
        # Together, so that a request is neither counted twice nor lost if this worker is killed.
        with self._ledger:
            self._in_progress(record.route).dec()
            self._requests(model, record.route, record.outcome).inc()
            self._observe_at_end(record, ended, seconds)
            if row is not None:
                self.open_requests.remove(row)
        if record.identity is not None and record.identity.sampled:
            self._tracer.write(record.identity, server_span(record), phase_spans(record))
        if record.route == NO_ROUTE and not self._may_log_unrouted():
            return
        log_request(
            log_fields(record, seconds), failed=group_of(record.outcome) is OutcomeGroup.FAILED
        )

    def _may_log_unrouted(self) -> bool:
        """False if there were too many lines about requests that no route takes."""
        if not self._unrouted_lines.take():
            return False
        left_out = self._unrouted_lines.left_out()
        if left_out:
            _log.warning("did not log some requests that no route takes", count=left_out)
        return True

    def _observe_at_end(
        self, record: RequestRecord, ended: float, seconds: Mapping[str, float]
    ) -> None:
        self._observe(record, catalogue.E2E_SECONDS, ended - record.received_time)
        for phase, spent in seconds.items():
            self._observe(record, catalogue.PHASE_SECONDS, spent, phase)
        if not record.sequences:
            return
        preemptions = sum(sequence.preemptions for sequence in record.sequences)
        self._observe(record, catalogue.REQUEST_PROMPT_TOKENS, record.prompt_tokens)
        if record.generates:
            self._observe(record, catalogue.REQUEST_GENERATED_TOKENS, record.output_tokens)
        self._observe(record, catalogue.REQUEST_PREEMPTIONS, preemptions)
        handovers = sum(sequence.handovers for sequence in record.sequences)
        if handovers and record.model in self._models:
            self._handovers(record.model).inc(handovers)
        self._count_tokens(record)

    def _count_tokens(self, record: RequestRecord) -> None:
        """Count what the engine did for a key, whether or not the client stayed for it."""
        if all(one.first_scheduled_time is None for one in record.sequences):
            return
        key = record.key if record.key in self._keys else OTHER_KEY
        self._key_tokens(key, "prompt").inc(max(0, record.prompt_tokens - record.cached_tokens))
        self._key_tokens(key, "cached").inc(record.cached_tokens)
        self._key_tokens(key, "output").inc(record.output_tokens)

    def _observe(
        self, record: RequestRecord, metric: catalogue.Metric, value: float, *labels: str
    ) -> None:
        if record.model in self._models:
            model = record.model
        elif metric.scope is Scope.REQUEST:
            model = OTHER_MODEL
        else:
            return  # no model, no engine work
        identity = record.identity
        exemplar = identity.trace_id if identity is not None and identity.sampled else None
        self._histograms[metric](model, *labels).observe(value, exemplar)

    def end_cut_request(self, record: RequestRecord, row: int) -> None:
        """End a request that the worker before was serving when it died. ``row``: where the ledger
        has it."""
        record.outcome = CUT_OUTCOME
        last_seen = self._ledger.cells[self._ledger.layout.alive_cell]
        first_token = record.first_token_time or 0.0
        record.ended_time = max(last_seen, record.received_time, first_token)
        self._end(record, record.ended_time, row)

    def _still_alive(self) -> None:
        self._ledger.set(self._ledger.layout.alive_cell, time.monotonic())

    # --- the engine ---------------------------------------------------------------------------

    def on_step(self, message: StepOutputs | Heartbeat) -> None:
        """Count what the engine did since its last message."""
        self.holds.engine_spoke()
        if isinstance(message, StepOutputs):
            self._engine.on_step(message)
        else:
            self._engine.on_stats(message.stats)

    def on_state(self, state: EngineState) -> None:
        """The engine became ready, or was lost."""
        if state.phase is LinkPhase.READY and state.ready is not None:
            create_request_series(self.metrics, without=self._without | unserved(state.ready))
            self._engine.on_ready(state.ready, state.kept)
        elif state.phase is LinkPhase.LOST:
            self._engine.lost(state.kept)

    def read_engine(self, read: Callable[[], EngineFigures]) -> None:
        """Set what is called for each metrics page, for figures that move without a message."""
        self._engine.read = read

    # --- the worker ---------------------------------------------------------------------------

    async def watch_event_loop(self) -> None:
        """Measure, until cancelled, how late the event loop wakes a timer."""
        lag = self.metrics.series(catalogue.EVENT_LOOP_LAG_SECONDS)()
        loop = asyncio.get_running_loop()
        while True:
            due = loop.time() + LOOP_LAG_INTERVAL_SECONDS
            await asyncio.sleep(LOOP_LAG_INTERVAL_SECONDS)
            lag.observe(max(0.0, loop.time() - due))
            self._still_alive()

    def exposition(self, accept: str | None) -> tuple[bytes, str]:
        """Return the scrape page and its content type, in the format that the Accept header
        prefers."""
        pieces, content_type = self.exposition_pieces(accept)
        return b"".join(pieces), content_type

    def exposition_pieces(self, accept: str | None) -> tuple[Iterator[bytes], str]:
        """Like ``exposition``, generating the pieces lazily."""
        pieces, content_type = self.metrics.exposition_pieces(accept)

        def current() -> Iterator[bytes]:
            self._publish()
            yield from pieces

        return current(), content_type

    def _publish(self) -> None:
        self._engine.publish()
        counter = self.metrics[catalogue.TELEMETRY_DROPPED]
        for signal, read in self._dropped.items():
            now = read()
            counter.labels(signal).inc(now - self._dropped_before[signal])
            self._dropped_before[signal] = now

    def close(self) -> None:
        """Send queued spans, for at most 2 s."""
        self._tracer.close()


def log_fields(record: RequestRecord, seconds: dict[str, float]) -> dict[str, object]:
    """Return the values of a request's log line, by field name. Durations are in milliseconds.
    ``seconds``: of each phase."""
    ended = record.received_time if record.ended_time is None else record.ended_time
    routed = record.route != NO_ROUTE
    return {
        "request_id": record.request_id,
        "client_request_id": record.client_request_id,
        "key": record.key,
        "client_address": record.client_address,
        "user_agent": record.user_agent,
        "trace_id": record.trace_id,
        "span_id": record.span_id,
        "route": record.route,
        "status": record.status,
        "outcome": record.outcome,
        "error": record.error,
        "error_code": record.error_code,
        "error_field": record.error_field,
        "retry_after": record.retry_after,
        "method": None if routed else record.http_method,
        "path": record.asked,
        "waiting": record.waiting,
        "model": record.model or None,
        "stream": record.stream,
        "choices": record.choices,
        "prompt_tokens": record.prompt_tokens,
        "cached_tokens": record.cached_tokens,
        **_prefix_fields(record.prefix_miss),
        "output_tokens": record.output_tokens,
        **{
            phase.log_field: round(seconds[phase.name] * 1e3, 3)
            for phase in PHASES
            if phase.name in seconds
        },
        "other_ms": round(other_seconds(record, seconds, ended) * 1e3, 3),
        "ttft_ms": _milliseconds(record.received_time, record.first_token_time),
        "itl_mean_ms": _mean_gap_ms(record.sequences),
        "total_ms": _milliseconds(record.received_time, record.ended_time),
        "preemptions": sum(sequence.preemptions for sequence in record.sequences),
        "handovers": sum(sequence.handovers for sequence in record.sequences),
        "ignored": record.ignored,
    }


def _prefix_fields(miss: PrefixMiss | None) -> dict[str, object]:
    if miss is None:
        return {}
    ago = miss.seconds_ago
    return {
        "prefix_miss": miss.reason.value,
        "prefix_diverged_from": miss.request_id or None,
        "prefix_evicted_s": None if ago is None else round(ago, 3),
    }


def _milliseconds(start: float, end: float | None) -> float | None:
    return None if end is None else round((end - start) * 1e3, 3)


def _mean_gap_ms(sequences: Sequence[Finished]) -> float | None:
    gaps, seconds = 0, 0.0
    for sequence in sequences:
        first, last = sequence.first_token_time, sequence.last_token_time
        if first is not None and last is not None and sequence.output_tokens > 1:
            gaps += sequence.output_tokens - 1
            seconds += last - first
    return round(seconds / gaps * 1e3, 3) if gaps else None
