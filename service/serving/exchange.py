"""One request from first byte to last: its caller, its record, its end."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator

from engine.queueing import ServiceClass
from observability.admin_api import EventKind
from service.admission.drain import Drain
from service.engine.happenings import Happening
from service.errors import OverloadedError, QuireError
from service.generation.request import Generation, GenerationRequest
from service.pooling.request import PooledTexts
from service.serving.metering import Metering
from service.telemetry.observer import Telemetry
from service.telemetry.record import RequestRecord
from service.tenants.caller import ANYBODY, Caller
from service.tenants.limit_ledger import LimitUse
from service.tenants.tier import Tier
from service.tenants.upload_room import FREE_BYTES, Gained, UploadRoom
from service.wire.decode import Ignored
from service.wire.field_paths import public_path
from service.wire.limit_headers import limit_headers

CANCELLED_PATIENCE = 1.0
"""Seconds that a client may block a write of a request that an operator has cancelled."""


class Exchange:
    """The state of one counted request. ``patience``: seconds that its client may block a write;
    ``receive_timeout``: seconds that it may pause while sending a body; ``keep_alive``: seconds of
    silence after which its stream gets a comment. ``ignored``: parts of the request that have no
    effect here; a header and the log line name them. ``upload_room`` limits the arriving body,
    ``answer_room`` what is kept for its answer, ``metering`` what its key may use."""

    def __init__(
        self,
        record: RequestRecord,
        telemetry: Telemetry,
        *,
        patience: float = 60.0,
        keep_alive: float = 0.0,
        receive_timeout: float = 30.0,
        drain: Drain | None = None,
        refuse_unknown: bool = False,
        upload_room: UploadRoom | None = None,
        answer_room: UploadRoom | None = None,
        exchanges: OpenExchanges | None = None,
        metering: Metering | None = None,
    ) -> None:
        self.record = record
        self.caller = ANYBODY
        self.ignored = Ignored(refuse=refuse_unknown)
        self.patience = patience
        self.keep_alive = keep_alive
        self.receive_timeout = receive_timeout
        self.generation: Generation | None = None
        self.detached = False
        self.service_class = ServiceClass.STANDARD  # of its generation, once it began
        self.deadline: float | None = None  # of the first token, in monotonic seconds
        self.pooled: PooledTexts | None = None
        self.drain = drain
        self.upload_room = upload_room
        self.held = 0  # bytes beyond the free allowance
        self._answer_room = answer_room
        self._holds = contextlib.ExitStack()
        self._telemetry = telemetry
        self._cancellation: QuireError | None = None
        # Set by who sends the answer, whose client may not be reading it.
        self.on_cancel: Callable[[], None] | None = None
        self._exchanges = exchanges
        self._metering = metering
        self._use: LimitUse | None = None
        if exchanges is not None:
            exchanges.add(self)

    @property
    def headers(self) -> dict[str, str]:
        """Headers for every response of this exchange."""
        # Anthropic's clients expect the second.
        headers = {"x-request-id": self.record.request_id, "request-id": self.record.request_id}
        if self.ignored.names:
            headers["x-quire-ignored"] = self.ignored.summary()
        if self.ignored.meant:
            headers["x-quire-hint"] = self.ignored.hint()
        if self.record.trace_id:
            headers["x-trace-id"] = self.record.trace_id
        if self.record.identity is not None:
            headers["traceresponse"] = self.record.identity.traceresponse
        if self.caller.limits:
            headers |= self._limit_headers()
        return headers

    def _limit_headers(self) -> dict[str, str]:
        """What its key has left now, or had once this request was counted."""
        if self._metering is None:
            return {}
        caller, use = self.caller, self._use
        state = self._metering.state(caller) if use is None else use.state
        return limit_headers(self.record.route, caller.limits, state)

    def count(self, tokens: int | None = None) -> None:
        """Count the request against the limits of its key, and reserve ``tokens`` once it is known
        how many it may need. Raises LimitError."""
        if self._metering is None or not self.caller.limits:
            return
        if self._use is None:
            self._use = self._metering.enter(self.caller)
        if tokens is not None and self._use is not None:
            self._metering.take(self._use, tokens)

    def identify(self, caller: Caller) -> None:
        """Record whose request it is."""
        self.caller = caller
        self.record.key = caller.alias
        if caller.may_sample:
            self._telemetry.caller_trusted(self.record)
        self._telemetry.request_described(self.record)

    def describe(self, request: GenerationRequest) -> None:
        """Record what the engine is to do, before it is submitted: this process may die then."""
        record = self.record
        record.choices = request.n * len(request.prompts)
        record.max_tokens = request.params.max_tokens
        record.temperature = request.params.temperature
        record.top_p = request.params.top_p
        self._telemetry.request_described(record)

    def began(self, generation: Generation) -> None:
        """Record that the engine now works on this exchange."""
        self.generation = generation
        request = generation.request
        self.record.update = self._note_progress
        self._report_priority(request.priority)
        self.service_class = self.caller.class_of(request.priority, request.tier)
        if request.tier is Tier.PRIORITY and not self.caller.may_hurry:
            self.ignored.add("service_tier")
        self._cancel_work()

    def began_pooling(self, pooled: PooledTexts) -> None:
        """Record that the engine now computes vectors for this exchange."""
        self.pooled = pooled
        self.record.update = self._note_progress
        self._report_priority(pooled.request.priority)
        self.record.generates = False
        self._telemetry.request_described(self.record)
        self._cancel_work()

    def cancel(self, error: QuireError) -> bool:
        """End what the engine does for this exchange with ``error``, now or as soon as it begins;
        its blocks are freed. False if the answer is complete already."""
        if self.record.outcome or (self.generation is not None and self.generation.done):
            return False
        self._cancellation = error
        self.record.happenings.append(Happening(EventKind.CANCELLED, time.monotonic()))
        self._cancel_work()
        if self.on_cancel is not None:
            self.on_cancel()
        return True

    @property
    def cancellation(self) -> QuireError | None:
        """The error that the client gets if an operator has cancelled the request."""
        return self._cancellation

    def _cancel_work(self) -> None:
        if self._cancellation is None:
            return
        if self.generation is not None:
            self.generation.fail(self._cancellation)
        if self.pooled is not None:
            self.pooled.fail(self._cancellation)

    def check_cancelled(self) -> None:
        """Raise the error with which it was cancelled, if it was."""
        if self._cancellation is not None:
            raise self._cancellation

    @contextlib.contextmanager
    def receiving(self) -> Iterator[Gained]:
        """Count the arriving body, which the block reads."""
        try:
            if self.upload_room is None:
                yield lambda _: None
            else:
                with self.upload_room.arriving(self.caller) as gained:
                    yield gained
        finally:
            self.record.received_body()

    def hold(self, size: int) -> None:
        """Count ``size`` bytes as kept for the answer, until this exchange has ended.

        Raises OverloadedError when all exchanges together keep too much.
        """
        if self._answer_room is not None:
            self._holds.enter_context(self._answer_room.arriving(self.caller))(size)
            self.held += max(0, size - FREE_BYTES)

    def _report_priority(self, asked: int) -> None:
        if self.caller.priority(asked) != asked:
            self.ignored.add("priority")

    def detach(self) -> Callable[[], None]:
        """Let the work continue after the response has been sent. The caller must call the returned
        function when the work ends."""
        self.detached = True
        return self._close

    def close(self) -> None:
        """End the exchange, because its response was sent or cannot be, unless the work
        continues."""
        if not self.detached:
            self._close()

    def _close(self) -> None:
        self._holds.close()
        if self.drain is not None:
            self.drain.leave()
        self.finish()

    def succeed(self, outcome: str) -> None:
        self.record.outcome = outcome

    def fail(self, error: QuireError) -> None:
        """Record that the answer, or the rest of the stream, is this error. The first outcome is
        kept; that of a cancelled exchange is its cancellation."""
        if not self.record.outcome:
            record = self.record
            error = self._cancellation or error
            record.outcome = error.outcome
            record.error = type(error).__name__
            record.error_code = error.kind.code
            record.error_field = public_path(error.param)
            record.retry_after = error.retry_after
            if isinstance(error, OverloadedError) and error.waiting is not None:
                record.waiting = error.waiting

    def cut(self, error: QuireError) -> None:
        """Record that the client did not read a complete answer."""
        self.record.outcome = ""
        self.fail(error)

    def note_first_token(self, moment: float) -> None:
        if self.record.first_token_time is None:
            self.record.first_token_time = moment
            self._telemetry.first_token(self.record)

    def finish(self) -> None:
        """End the exchange. Without an outcome so far, it was cancelled or the client has left."""
        if self._exchanges is not None:
            self._exchanges.remove(self)
        record, generation = self.record, self.generation
        if self._cancellation is not None:
            self.fail(self._cancellation)
        record.outcome = record.outcome or "client_gone"
        record.ended_time = time.monotonic()
        record.ignored = self.ignored.summary() or None
        record.update = None  # it would keep this exchange alive
        if generation is not None:
            generation.close()
            record.finish_reasons = [
                choice.finished.reason
                for choice in generation.choices
                if choice.finished is not None
            ]
            if generation.request.parse:
                record.reasoning_tokens = generation.reasoning_tokens
            record.miss_place = generation.miss_place
        if self.pooled is not None:
            self.pooled.close()
        self._note_progress()
        self._telemetry.request_finished(record)
        if self._use is not None and self._metering is not None:
            use, self._use = self._use, None
            self._metering.settle(use, record)

    def _note_progress(self) -> None:
        """Bring the record up to date with what the engine has done."""
        record = self.record
        if self.generation is not None:
            note_generation(record, self.generation)
        if self.pooled is not None:
            record.prompt_tokens = self.pooled.prompt_tokens
            record.cached_tokens = self.pooled.cached_tokens
            together = self.pooled.record()
            record.sequences = [] if together is None else [together]


def note_generation(record: RequestRecord, generation: Generation) -> None:
    """Note how far a generation has come, in constant time for each choice."""
    sequences = [choice.sequence for choice in generation.choices]
    record.prompt_tokens = generation.prompt_tokens
    record.cached_tokens = generation.cached_tokens
    record.prefix_miss = generation.prefix_miss
    record.output_tokens = generation.generated_tokens
    record.sequences = generation.records()
    record.is_generated = generation.done
    times = [one.last_token_time for one in sequences if one.last_token_time is not None]
    record.last_token_time = max(times, default=None)
    record.prompt_tokens_computed = sequences[0].prompt_tokens_computed
    record.itl_max = max((one.longest_gap for one in sequences), default=0.0) or None
    record.choices_happenings = [
        (index, one) for index, sequence in enumerate(sequences) for one in sequence.happenings
    ]
    record.longest_steps = [step for one in sequences for step in one.longest_steps]


class OpenExchanges:
    """The counted requests that have not ended, by id."""

    def __init__(self) -> None:
        self._by_id: dict[str, Exchange] = {}

    def __len__(self) -> int:
        return len(self._by_id)

    def add(self, exchange: Exchange) -> None:
        self._by_id[exchange.record.request_id] = exchange

    def remove(self, exchange: Exchange) -> None:
        self._by_id.pop(exchange.record.request_id, None)

    def find(self, request_id: str) -> Exchange | None:
        """Return the open request of this id, else of this trace id."""
        found = self._by_id.get(request_id)
        if found is not None:
            return found
        for exchange in self._by_id.values():
            if exchange.record.trace_id == request_id:
                return exchange
        return None
