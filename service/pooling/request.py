"""A request for vectors, from submission to its result."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

from engine.messages import Embed, Finished, FinishReason
from engine.queueing import Following
from service.engine.engines import Engines
from service.engine.sequence import EngineSequence, Waker
from service.engine.submission import Submission
from service.errors import (
    EngineUnavailableError,
    InternalError,
    InvalidRequestError,
    QuireError,
)
from service.pooling.inputs import Input
from service.tenants.caller import Caller


@dataclass(frozen=True, slots=True)
class PoolingRequest:
    """``most_open``: how many inputs may be in the engine at once, and ``most_open_tokens``: how
    many tokens they may have together (a single input may have more), so that a long list neither
    fills the queue nor delays other requests by more than a few steps. The rest as in
    ``engine.messages.Embed``."""

    request_id: str
    inputs: Sequence[Input]
    arrival_time: float
    most_open: int
    most_open_tokens: int
    dimensions: int | None = None
    activate: bool | None = None
    priority: int = 0
    cache_salt: str = ""
    deadline: float | None = None


class PooledTexts:
    """Await ``vectors``, then always call ``close``."""

    def __init__(self, link: Engines, request: PoolingRequest, caller: Caller) -> None:
        self.request = request
        self._caller = caller
        self._link = link
        self._waker = Waker()
        self._submitted: list[EngineSequence] = []
        self._open: dict[int, EngineSequence] = {}  # by the input's index
        self._open_tokens = 0

    async def vectors(self) -> list[bytes]:
        """Return a vector for each input, in order, as little-endian float32. Raises QuireError
        when one of them failed; the others are then discarded."""
        inputs = self.request.inputs
        found: list[bytes] = [b""] * len(inputs)
        while True:
            while len(self._submitted) < len(inputs) and self._has_room(len(self._submitted)):
                self._submit(len(self._submitted))
            if not self._open:
                return found
            await self._waker.wait()
            for index, sequence in list(self._open.items()):
                if sequence.error is not None:
                    raise sequence.error
                if sequence.finished is not None:
                    del self._open[index]
                    self._open_tokens -= sequence.prompt_tokens
                    found[index] = _vector(sequence)

    def _has_room(self, index: int) -> bool:
        """True if this input may be submitted in addition to the open ones."""
        if not self._open:
            return True
        if not self._submitted[0].has_place:
            return False  # the engine has not said yet whether it takes the request
        tokens = self._open_tokens + len(self.request.inputs[index].token_ids)
        return len(self._open) < self.request.most_open and tokens <= self.request.most_open_tokens

    def _submit(self, index: int) -> None:
        request, one = self.request, self.request.inputs[index]
        submission = Submission(
            request_id=request.request_id,
            prompt_token_ids=list(one.token_ids),
            task=Embed(
                second_text=one.second_text,
                dimensions=request.dimensions,
                activate=request.activate,
            ),
            caller=self._caller,
            arrival_time=request.arrival_time,
            priority=request.priority,
            cache_salt=request.cache_salt,
            deadline=request.deadline,
            keeps_place=bool(self._submitted),
            following=None if self._submitted else self._following(),
        )
        try:
            [sequence] = self._link.submit(submission, self._waker)
        except ConnectionError as error:
            raise EngineUnavailableError(f"The engine does not respond: {error}.") from error
        except ValueError as error:
            raise InvalidRequestError(str(error)) from error
        self._submitted.append(sequence)
        self._open[index] = sequence
        self._open_tokens += sequence.prompt_tokens

    def _following(self) -> Following | None:
        """Return what may be in the engine at once besides the first text, if anything."""
        request = self.request
        others = request.inputs[1 : request.most_open]
        if not others:
            return None
        tokens = sum(len(one.token_ids) for one in others)
        return Following(len(others), min(tokens, request.most_open_tokens))

    def fail(self, error: QuireError) -> None:
        """Make ``vectors`` raise this error, and free what the engine has of it now."""
        running = list(self._open.values())
        self._link.abort(running)
        for sequence in running:
            sequence.failure = error
        self._waker.wake()

    def close(self) -> None:
        """Abort everything still running. Safe to call twice."""
        self._link.abort(list(self._open.values()))
        self._open = {}

    @property
    def prompt_tokens(self) -> int:
        """Tokens of the inputs that reached the engine, so of all once ``vectors`` has returned."""
        return sum(sequence.prompt_tokens for sequence in self._submitted)

    @property
    def cached_tokens(self) -> int:
        return sum(sequence.cached_tokens for sequence in self._submitted)

    def record(self) -> Finished | None:
        """Return the usage of all inputs together, as of one sequence; None if none reached the
        engine."""
        if not self._submitted:
            return None
        now = time.monotonic()
        records = [sequence.record(0, now) for sequence in self._submitted]
        scheduled = [r.first_scheduled_time for r in records if r.first_scheduled_time is not None]
        queued = [r.queued_time for r in records if r.queued_time is not None]
        worst = next((r for r in records if r.reason is not FinishReason.STOP), records[0])
        return Finished(
            handle=records[0].handle,
            reason=worst.reason,
            error=worst.error,
            prompt_tokens=self.prompt_tokens,
            cached_tokens=self.cached_tokens,
            output_tokens=0,
            preemptions=sum(r.preemptions for r in records),
            handovers=sum(r.handovers for r in records),
            arrival_time=self.request.arrival_time,
            queued_time=min(queued, default=None),
            first_scheduled_time=min(scheduled, default=None),
            first_token_time=None,
            last_token_time=None,
            finished_time=max(r.finished_time for r in records),
        )


def _vector(sequence: EngineSequence) -> bytes:
    if sequence.vector is None:
        raise InternalError("The engine finished a text without its vector.")
    return sequence.vector
