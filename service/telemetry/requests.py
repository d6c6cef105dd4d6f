"""The API worker's metrics, traces and logs: each request once, at its end, from its record; the
engine with each of its messages.

Implements ``service.telemetry.observer.Telemetry``. All calls come from the worker's event loop;
none blocks.
"""

from __future__ import annotations

import asyncio
import platform
import time
from collections.abc import Callable, Iterator, Sequence

from engine.messages import Heartbeat, PrefixMiss, StepOutputs
from observability import catalogue
from observability.aliases import ALIASES
from observability.byte_ring import ByteRing
from observability.catalogue import OTHER_KEY, OTHER_MODEL
from observability.combined import NOTHING_SHARED, Shared
from observability.logging import (
    get_logger,
    log_request,
    logs_requests,
    printable,
    sound_client_request_id,
)
from observability.metrics import MetricRegistry
from observability.open_requests import OpenRequests
from observability.outcomes import NO_ROUTE, ROUTES, OutcomeGroup, Trait, group_of, is_outcome
from observability.phases import PHASES
from observability.tracing import IdentityTracer, Tracer
from observability.usage_table import UsageTable
from service.engine.link import EngineState, LinkPhase
from service.engine.silence import EngineFigures
from service.telemetry.ended_requests import EndedRequests
from service.telemetry.engine import EngineTelemetry
from service.telemetry.line_budget import LineBudget
from service.telemetry.loop_holds import LoopHolds
from service.telemetry.observations import RequestObservations
from service.telemetry.observed import Observed
from service.telemetry.observer import RequestWatcher
from service.telemetry.open_request import encode_open
from service.telemetry.phases import mean_gap, other_seconds, seconds_of
from service.telemetry.record import RequestRecord
from service.telemetry.request_series import create_request_series, unserved
from service.telemetry.traces import RequestTraces
from service.telemetry.usage import usage_of_request

LOOP_LAG_INTERVAL_SECONDS = 0.25
# Of the ledger: requests that are open beyond these are counted, but if the worker is killed, their
# ends have no log line and no span.
OPEN_REQUEST_ROWS = 2048
USAGE_ROWS = 2048
KEY_NAMES = 10_000  # that are learned while the server runs: as many as a keys file may have
# Of the ledger, for records of ended requests on their way to the database: about 3,000.
ENDED_BYTES = 4 * 1024 * 1024
CUT_OUTCOME = "error:worker"

_log = get_logger()


def _build(version: str, server: str) -> dict[str, str]:
    return {"version": version, "python": platform.python_version(), "server": server}


class Telemetry:
    """``models``: the model's names, the primary one first. ``keys``: the aliases of API keys.
    ``server``: see ``service.identity``. ``log_clients``: keep clients' addresses and user agents.
    ``dropped_log_lines`` returns how many log lines were lost since the start.
    ``ledger_descriptor``: of the memory that the next worker continues, see
    ``observability.ledger``. ``serves_grpc``: gRPC calls may arrive. ``metrics_aliases``: a key of
    ``observability.aliases.ALIASES``. ``records`` hears of each request that begins and ends.
    ``keeps_requests``: there is a database for them. ``newest_names``: see ``RequestTraces``.
    ``keys_change``: keys may get other aliases, too.
    ``shared``: by all workers of the server. ``leads``: see ``lead``.
    """

    def __init__(
        self,
        models: Sequence[str],
        *,
        version: str,
        server: str = "",
        tracer: Tracer | None = None,
        keys: Sequence[str] = (),
        log_clients: bool = True,
        dropped_log_lines: Callable[[], int] = lambda: 0,
        ledger_descriptor: int | None = None,
        serves_grpc: bool = False,
        newest_names: bool = False,
        metrics_aliases: str = "none",
        records: RequestWatcher | None = None,
        keeps_requests: bool = False,
        keys_change: bool = False,
        shared: Shared = NOTHING_SHARED,
        leads: bool = True,
    ) -> None:
        self._records = records
        self.metrics = MetricRegistry(
            models,
            label_values={catalogue.KEY.name: keys},
            open_requests=OPEN_REQUEST_ROWS,
            usage_rows=USAGE_ROWS,
            ring_bytes=ENDED_BYTES if keeps_requests else 0,
            key_names=KEY_NAMES if keys_change else 0,
            descriptor=ledger_descriptor,
            aliases=ALIASES[metrics_aliases],
            shared=shared,
        )
        self._ledger = self.metrics.ledger
        self.open_requests = OpenRequests(self._ledger)
        self._rows: dict[str, int] = {}  # by request id
        self.usage = UsageTable(
            self._ledger, (*keys, OTHER_KEY), (*self.metrics.models, OTHER_MODEL), ROUTES
        )
        self.ended_requests = EndedRequests(
            ByteRing(self._ledger), self.metrics[catalogue.TELEMETRY_DROPPED].labels("records").inc
        )
        self._models = frozenset(models)
        self._log_clients = log_clients
        self.tracer = tracer or IdentityTracer()
        self.traces = RequestTraces(self.tracer, newest_names=newest_names)
        self.observed = Observed()
        self._engine = EngineTelemetry(self.metrics, self.observed, leads=leads)
        self._dropped = {"spans": self.tracer.dropped_spans, "log_lines": dropped_log_lines}
        self._dropped_before = dict.fromkeys(self._dropped, 0)
        self._received = self.metrics.series(catalogue.REQUESTS_RECEIVED)
        self._requests = self.metrics.series(catalogue.REQUESTS)
        self._observations = RequestObservations(self.metrics, keys)
        self.holds = LoopHolds(self._observe_hold)
        self._in_progress = self.metrics.series(catalogue.REQUESTS_IN_PROGRESS)
        self._unrouted_lines = LineBudget()
        self.metrics[catalogue.BUILD_INFO].info(_build(version, server))
        self._without = Trait.NONE if serves_grpc else Trait.RPC
        create_request_series(self.metrics, without=self._without | Trait.ENGINE)

    # --- requests -----------------------------------------------------------------------------

    def request_started(self, record: RequestRecord) -> None:
        """Join the record to its caller's trace or start a new one, and count it as in progress."""
        self.traces.begin(record)
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
        if self._records is not None:
            self._records.began(record)

    def caller_trusted(self, record: RequestRecord) -> None:
        """Let the sampled flag of the request's caller decide whether its trace is exported."""
        self.traces.trust_caller(record)

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
            self.observed.first_tokens.append(seconds)
            with self._ledger:
                self._observations.first_token(record)
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
        early = record.traced
        self.traces.decide(record)
        # Together, so that a request is neither counted twice nor lost if this worker is killed.
        with self._ledger:
            self._in_progress(record.route).dec()
            self._requests(model, record.route, record.outcome).inc()
            self._observations.ended(record, ended, seconds)
            if record.traced and not early:
                self._observations.traced_at_last(record)
            self.usage.count(time.time(), *usage_of_request(record, ended))
            if self._records is not None:
                self._records.ended(record, seconds)
            if row is not None:
                self.open_requests.remove(row)
        self.traces.write(record)
        if record.route == NO_ROUTE and not self._may_log_unrouted():
            return
        failed = group_of(record.outcome) is OutcomeGroup.FAILED
        # Building the fields takes 25 us.
        if logs_requests(failed=failed):
            log_request(log_fields(record, seconds), failed=failed)

    def _may_log_unrouted(self) -> bool:
        """False if there were too many lines about requests that no route takes."""
        if not self._unrouted_lines.take():
            return False
        left_out = self._unrouted_lines.left_out()
        if left_out:
            _log.warning("did not log some requests that no route takes", count=left_out)
        return True

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

    def on_step(self, message: StepOutputs | Heartbeat, engine: int = 0) -> None:
        """Count what an engine did since its last message. ``engine``: its index."""
        self.holds.engine_spoke()
        if isinstance(message, StepOutputs):
            self._engine.on_step(message, engine)
        else:
            self._engine.on_stats(message.stats, engine)

    def on_state(self, state: EngineState, engine: int = 0) -> None:
        """An engine became ready, or was lost."""
        if state.phase is LinkPhase.READY and state.ready is not None:
            create_request_series(self.metrics, without=self._without | unserved(state.ready))
            self._engine.on_ready(state.ready, state.kept, engine)
        elif state.phase is LinkPhase.LOST:
            self._engine.lost(state.kept, engine)

    def lead(self) -> None:
        """Count from now on what only one of the server's workers counts: what engines did."""
        self._engine.lead()

    def read_engine(self, read: Callable[[], EngineFigures]) -> None:
        """Set what is called for each metrics page, for figures that move without a message."""
        self._engine.read = read

    # --- the admin API ------------------------------------------------------------------------

    def admin_request(self, scope: str, result: str) -> None:
        """Count a request to the admin API."""
        self.metrics[catalogue.ADMIN_REQUESTS].labels(scope, result).inc()

    # --- the worker ---------------------------------------------------------------------------

    def _observe_hold(self, seconds: float) -> None:
        self.metrics[catalogue.EVENT_LOOP_HOLD_SECONDS].labels().observe(seconds)
        self.observed.held(seconds)

    async def watch_event_loop(self) -> None:
        """Measure, until cancelled, how late the event loop wakes a timer."""
        lag = self.metrics.series(catalogue.EVENT_LOOP_LAG_SECONDS)()
        loop = asyncio.get_running_loop()
        while True:
            due = loop.time() + LOOP_LAG_INTERVAL_SECONDS
            await asyncio.sleep(LOOP_LAG_INTERVAL_SECONDS)
            late = max(0.0, loop.time() - due)
            lag.observe(late)
            self.observed.held(late)
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
            self.publish()
            yield from pieces

        return current(), content_type

    def publish(self) -> None:
        """Set what is only computed when a page needs it."""
        self._engine.publish()
        counter = self.metrics[catalogue.TELEMETRY_DROPPED]
        for signal, read in self._dropped.items():
            now = read()
            counter.labels(signal).inc(now - self._dropped_before[signal])
            self._dropped_before[signal] = now

    def close(self) -> None:
        """Send queued spans, for at most 2 s."""
        self.tracer.close()


def log_fields(record: RequestRecord, seconds: dict[str, float]) -> dict[str, object]:
    """Return the values of a request's log line, by field name. Durations are in milliseconds.
    ``seconds``: of each phase."""
    ended = record.received_time if record.ended_time is None else record.ended_time
    routed = record.route != NO_ROUTE
    gap = mean_gap(record.sequences)
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
        "itl_mean_ms": None if gap is None else round(gap * 1e3, 3),
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
