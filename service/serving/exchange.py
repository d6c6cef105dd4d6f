"""One request from first byte to last: its caller, its record, its end."""

from __future__ import annotations

import contextlib
import time
import uuid
from collections.abc import Callable

from service.admission.drain import Drain
from service.errors import QuireError
from service.generation.request import Generation
from service.pooling.request import PooledTexts
from service.telemetry.observer import Telemetry
from service.telemetry.record import RequestRecord
from service.tenants.caller import ANYBODY
from service.tenants.upload_room import FREE_BYTES, UploadRoom
from service.wire.decode import Ignored


class Exchange:
    """The state of one counted request. ``patience``: seconds that its client may block a write;
    ``receive_timeout``: seconds that it may pause while sending a body; ``keep_alive``: seconds of
    silence after which its stream gets a comment. ``ignored``: parts of the request that have no
    effect here; a header and the log line name them. ``upload_room`` limits the arriving body,
    ``answer_room`` what is kept for its answer."""

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
    ) -> None:
        self.record = record
        self.caller = ANYBODY
        self.ignored = Ignored(refuse=refuse_unknown)
        self.patience = patience
        self.keep_alive = keep_alive
        self.receive_timeout = receive_timeout
        self.generation: Generation | None = None
        self.detached = False
        self.pooled: PooledTexts | None = None
        self.drain = drain
        self.upload_room = upload_room
        self.held = 0  # bytes beyond the free allowance
        self._answer_room = answer_room
        self._holds = contextlib.ExitStack()
        self._telemetry = telemetry

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
        return headers

    def began(self, generation: Generation) -> None:
        """Record that the engine now works on this exchange."""
        self.generation = generation
        request, record = generation.request, self.record
        self._report_priority(request.priority)
        record.choices = len(generation.choices)
        record.max_tokens = request.params.max_tokens
        record.temperature = request.params.temperature
        record.top_p = request.params.top_p

    def began_pooling(self, pooled: PooledTexts) -> None:
        """Record that the engine now computes vectors for this exchange."""
        self.pooled = pooled
        self._report_priority(pooled.request.priority)
        self.record.generates = False

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
        kept."""
        if not self.record.outcome:
            self.record.outcome = error.outcome
            self.record.error = type(error).__name__

    def cut(self, error: QuireError) -> None:
        """Record that the client did not read a complete answer."""
        self.record.outcome = ""
        self.fail(error)

    def note_first_token(self, moment: float) -> None:
        if self.record.first_token_time is None:
            self.record.first_token_time = moment
            self._telemetry.first_token(self.record)

    def finish(self) -> None:
        """End the exchange. Without an outcome so far, the client must have left."""
        record, generation = self.record, self.generation
        record.outcome = record.outcome or "client_gone"
        record.ended_time = time.monotonic()
        record.ignored = self.ignored.summary() or None
        if generation is not None:
            generation.close()
            record.prompt_tokens = generation.prompt_tokens
            record.cached_tokens = generation.cached_tokens
            record.output_tokens = generation.output_tokens
            record.sequences = generation.records()
            record.finish_reasons = [
                choice.finished.reason
                for choice in generation.choices
                if choice.finished is not None
            ]
            times = [choice.sequence.last_token_time for choice in generation.choices]
            record.last_token_time = max((t for t in times if t is not None), default=None)
        if self.pooled is not None:
            self.pooled.close()
            record.prompt_tokens = self.pooled.prompt_tokens
            record.cached_tokens = self.pooled.cached_tokens
            together = self.pooled.record()
            record.sequences = [] if together is None else [together]
        self._telemetry.request_finished(record)


def new_request_id() -> str:
    return f"req_{uuid.uuid4().hex}"
