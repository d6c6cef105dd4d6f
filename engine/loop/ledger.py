"""The live sequences, the connections they belong to, and the outputs not sent to these yet."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from typing import TypedDict, Unpack

from engine.loop.errors import ProtocolError
from engine.loop.outbox import Outbox, StepFigures, step_outputs
from engine.loop.submission import output_of
from engine.messages import (
    Admitted,
    Embedded,
    EngineStats,
    Finished,
    FinishReason,
    PromptLogprobs,
    StepOutputs,
    Submit,
    TokenLogprobs,
)
from engine.queueing import EngineLoad, Moved, Prefilled, Refusal
from engine.step.sequence import Sequence
from engine.step.step import PooledVector, SampledToken, StepPlan

Connection = int

# Between two messages to a connection that has no sequences and does not watch every step.
QUIET_SECONDS = 0.1


@dataclass(slots=True)
class Entry:
    """A sequence and its connection and handle."""

    connection: Connection
    handle: int
    sequence: Sequence


class Ending(TypedDict, total=False):
    """What ``Finished`` says of an end besides its reason."""

    stop_token_id: int | None
    error: str | None
    is_refusal: bool
    refusal: Refusal | None


class Ledger:
    """Sequences belong to connections, which the caller numbers, and are identified by handles
    within them. A connection's outputs accumulate until ``collect``."""

    def __init__(self, clock: Callable[[], float], *, reports_load: bool = False) -> None:
        self._clock = clock
        self._reports_load = reports_load
        self.taken_until = clock()  # what arrived until then has entered
        self._entries: dict[int, Entry] = {}  # by uid
        self._connections: dict[Connection, dict[int, Entry]] = {}  # the same, by handle
        self._outboxes: dict[Connection, Outbox] = {}
        self._quiet: dict[Connection, float] = {}  # when each is due for a message
        self.num_ended = 0  # sequences whose end was reported
        self._prompt_tokens = 0  # of live sequences

    # --- sequences --------------------------------------------------------------------------------

    def open(self, connection: Connection) -> None:
        """Make ``collect`` return outputs for this connection from now on."""
        self._connections.setdefault(connection, {})
        self._outboxes.setdefault(connection, Outbox())

    def close(self, connection: Connection) -> None:
        """Stop reporting to this connection, whose sequences have been removed."""
        self._connections.pop(connection, None)
        self._outboxes.pop(connection, None)
        self._quiet.pop(connection, None)

    def watch(self, connection: Connection, *, every_step: bool) -> None:
        """Make ``collect`` return outputs for this connection at each step, or while it has no
        sequences only every ``QUIET_SECONDS``."""
        if every_step:
            self._quiet.pop(connection, None)
        else:
            self._quiet.setdefault(connection, 0.0)

    def require_unused(self, connection: Connection, handle: int) -> None:
        """Raise ProtocolError when the handle is in use on this connection."""
        if handle in self._connections[connection]:
            raise ProtocolError(f"handle {handle} is already in use")

    def enter(self, entry: Entry) -> None:
        self._entries[entry.sequence.uid] = entry
        self._connections[entry.connection][entry.handle] = entry
        self._prompt_tokens += entry.sequence.num_prompt_tokens

    def leave(self, entry: Entry) -> None:
        del self._entries[entry.sequence.uid]
        del self._connections[entry.connection][entry.handle]
        self._prompt_tokens -= entry.sequence.num_prompt_tokens

    def __contains__(self, uid: object) -> bool:
        return uid in self._entries

    def __getitem__(self, uid: int) -> Entry:
        return self._entries[uid]

    def load(self, running: Collection[Sequence]) -> EngineLoad | None:
        """Return how much there is to do, for those that choose among several engines; None if
        there is only one engine. ``running``: those of the live sequences that run."""
        if not self._reports_load:
            return None
        generated = sum([one.num_output_tokens for one in running])
        until = self.taken_until if self._entries else self._clock()
        return EngineLoad(self._prompt_tokens + generated, until)

    def entries(self) -> list[Entry]:
        return list(self._entries.values())

    def entries_of(self, connection: Connection) -> list[Entry]:
        return list(self._connections.get(connection, {}).values())

    def named(self, connection: Connection, handles: list[int]) -> list[Entry]:
        """Return the live sequences among these handles."""
        live = self._connections[connection]
        return [live[handle] for handle in dict.fromkeys(handles) if handle in live]

    # --- outputs ----------------------------------------------------------------------------------

    def answer(self, admitted: tuple[Sequence, ...], queued: list[Sequence], now: float) -> None:
        """Report that sequences have started to run, and that others have a place in the queue."""
        for sequence in admitted:
            entry = self._entries[sequence.uid]
            self._outboxes[entry.connection].admitted.append(
                Admitted(entry.handle, now, sequence.num_cached_tokens, sequence.prefix_miss)
            )
        for sequence in queued:
            entry = self._entries[sequence.uid]
            self._outboxes[entry.connection].queued.append(entry.handle)

    def prefilled(self, plan: StepPlan) -> None:
        """Report which live sequences a step has computed several tokens of."""
        for item in plan.scheduled:
            if item.num_tokens > 1:
                entry = self._entries.get(item.sequence.uid)
                if entry is not None:
                    box = self._outboxes[entry.connection]
                    box.prefilled.append(Prefilled(entry.handle, item.num_tokens))

    def moved(self, plan: StepPlan, now: float) -> None:
        """Report which live sequences were preempted, and which run again."""
        for sequence in plan.preempted:
            entry = self._entries.get(sequence.uid)
            if entry is not None:
                self._outboxes[entry.connection].preempted.append(Moved(entry.handle, now))
        for sequence in plan.resumed:
            entry = self._entries[sequence.uid]
            self._outboxes[entry.connection].resumed.append(Moved(entry.handle, now))

    def token(self, entry: Entry, sampled: SampledToken) -> None:
        box = self._outboxes[entry.connection]
        if sampled.logprobs is not None:
            box.logprobs[len(box.handles)] = sampled.logprobs
        box.handles.append(entry.handle)
        box.token_ids.append(sampled.token_id)

    def vector(self, entry: Entry, vector: PooledVector) -> None:
        self._outboxes[entry.connection].embedded.append(Embedded(entry.handle, vector.data))

    def prompt_logprobs(self, entry: Entry, start: int, logprobs: list[TokenLogprobs]) -> None:
        """Report the logprobs of a chunk; the first belongs to token ``start + 1``. Those computed
        again after a preemption are skipped."""
        sequence = entry.sequence
        known = sequence.num_prompt_logprobs
        fresh = logprobs[known - start :] if start <= known else []
        if fresh:
            sequence.num_prompt_logprobs += len(fresh)
            self._outboxes[entry.connection].prompt_logprobs.append(
                PromptLogprobs(entry.handle, known, fresh)
            )

    def end(self, entry: Entry, reason: FinishReason, **how: Unpack[Ending]) -> None:
        """Report the end of a sequence that was removed or never entered."""
        sequence = entry.sequence
        self.num_ended += 1
        self._outboxes[entry.connection].finished.append(
            Finished(
                handle=entry.handle,
                reason=reason,
                **how,
                prompt_tokens=sequence.num_prompt_tokens,
                cached_tokens=sequence.num_cached_tokens,
                output_tokens=sequence.num_output_tokens,
                preemptions=sequence.num_preemptions,
                arrival_time=sequence.arrival_time,
                first_scheduled_time=sequence.first_scheduled_time,
                first_token_time=sequence.first_token_time,
                last_token_time=sequence.last_token_time,
                finished_time=self._clock(),
            )
        )

    def reject(
        self,
        connection: Connection,
        handle: int,
        error: str,
        *,
        submit: Submit | None = None,
        is_refusal: bool = False,
        refused: Refusal | None = None,
    ) -> None:
        """Finish a handle that never became a sequence. ``is_refusal`` and ``refused`` as in
        ``Finished``.

        Raises ProtocolError when the handle is in use on this connection.
        """
        self.require_unused(connection, handle)
        now = self._clock()
        self._outboxes[connection].finished.append(
            Finished(
                handle=handle,
                reason=FinishReason.ERROR,
                error=error,
                is_refusal=is_refusal,
                refusal=refused,
                prompt_tokens=len(submit.prompt_token_ids) if submit else 0,
                cached_tokens=0,
                output_tokens=len(output_of(submit)) if submit else 0,
                preemptions=0,
                arrival_time=submit.arrival_time if submit else now,
                first_scheduled_time=None,
                first_token_time=None,
                last_token_time=None,
                finished_time=now,
            )
        )

    # --- collecting -------------------------------------------------------------------------------

    @property
    def is_silent(self) -> bool:
        """True if there is nothing to report."""
        return all(box.is_empty for box in self._outboxes.values())

    def collect_admitted(self, stats: EngineStats) -> Iterator[tuple[Connection, StepOutputs]]:
        """Yield the sequences that start to run or have a place in the queue, for each connection
        that has any."""
        for connection, box in self._outboxes.items():
            if box.admitted or box.queued:
                ahead = Outbox(admitted=box.admitted, queued=box.queued)
                box.admitted, box.queued = [], []
                yield connection, step_outputs(ahead, StepFigures(), stats)

    def collect(self, figures: StepFigures, stats: EngineStats) -> dict[Connection, StepOutputs]:
        """Return the outputs for each connection, except for those that need not receive this
        step. Connections without outputs share a message."""
        idle: StepOutputs | None = None
        outputs: dict[Connection, StepOutputs] = {}
        for connection, box in self._outboxes.items():
            if box.is_empty and self._may_skip(connection, stats.time):
                continue
            if box.is_empty:
                idle = idle or step_outputs(Outbox(), figures, stats)
                outputs[connection] = idle
            else:
                outputs[connection] = step_outputs(box, figures, stats)
                self._outboxes[connection] = Outbox()
        return outputs

    def _may_skip(self, connection: Connection, now: float) -> bool:
        due = self._quiet.get(connection)
        if due is None or self._connections[connection]:
            return False
        if now < due:
            return True
        self._quiet[connection] = now + QUIET_SECONDS
        return False
