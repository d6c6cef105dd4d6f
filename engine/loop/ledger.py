"""The live sequences, whose they are, and what their connections have not been told yet."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

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
from engine.step.sequence import Sequence
from engine.step.step import PooledVector, SampledToken

Connection = int


@dataclass(slots=True)
class Entry:
    """A sequence and who it belongs to."""

    connection: Connection
    handle: int
    sequence: Sequence


class Ledger:
    """Sequences belong to connections, which the caller numbers, and are named by handles within
    them. What is reported for a connection gathers until ``collect``."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._entries: dict[int, Entry] = {}  # by uid
        self._connections: dict[Connection, dict[int, Entry]] = {}  # the same, by handle
        self._outboxes: dict[Connection, Outbox] = {}
        self.num_ended = 0  # sequences whose end was reported

    # --- who lives here ----------------------------------------------------------------------

    def open(self, connection: Connection) -> None:
        """From now on ``collect`` returns outputs for this connection."""
        self._connections.setdefault(connection, {})
        self._outboxes.setdefault(connection, Outbox())

    def close(self, connection: Connection) -> None:
        """Nothing more is reported to this connection, whose sequences have left."""
        self._connections.pop(connection, None)
        self._outboxes.pop(connection, None)

    def require_unused(self, connection: Connection, handle: int) -> None:
        """Raises ProtocolError when the handle is in use on this connection."""
        if handle in self._connections[connection]:
            raise ProtocolError(f"handle {handle} is already in use")

    def enter(self, entry: Entry) -> None:
        self._entries[entry.sequence.uid] = entry
        self._connections[entry.connection][entry.handle] = entry

    def leave(self, entry: Entry) -> None:
        del self._entries[entry.sequence.uid]
        del self._connections[entry.connection][entry.handle]

    def __contains__(self, uid: object) -> bool:
        return uid in self._entries

    def __getitem__(self, uid: int) -> Entry:
        return self._entries[uid]

    def entries(self) -> list[Entry]:
        return list(self._entries.values())

    def entries_of(self, connection: Connection) -> list[Entry]:
        return list(self._connections.get(connection, {}).values())

    def named(self, connection: Connection, handles: list[int]) -> list[Entry]:
        """The live ones among these."""
        live = self._connections[connection]
        return [live[handle] for handle in dict.fromkeys(handles) if handle in live]

    # --- what is reported --------------------------------------------------------------------

    def admit(self, sequence: Sequence, now: float) -> None:
        """It begins to run."""
        entry = self._entries[sequence.uid]
        self._outboxes[entry.connection].admitted.append(
            Admitted(entry.handle, now, sequence.num_cached_tokens)
        )

    def token(self, entry: Entry, sampled: SampledToken) -> None:
        box = self._outboxes[entry.connection]
        if sampled.logprobs is not None:
            box.logprobs[len(box.handles)] = sampled.logprobs
        box.handles.append(entry.handle)
        box.token_ids.append(sampled.token_id)

    def vector(self, entry: Entry, vector: PooledVector) -> None:
        self._outboxes[entry.connection].embedded.append(Embedded(entry.handle, vector.data))

    def prompt_logprobs(self, entry: Entry, start: int, logprobs: list[TokenLogprobs]) -> None:
        """Those of a chunk; the first belongs to token ``start + 1``. After a preemption some come
        again."""
        sequence = entry.sequence
        known = sequence.num_prompt_logprobs
        fresh = logprobs[known - start :] if start <= known else []
        if fresh:
            sequence.num_prompt_logprobs += len(fresh)
            self._outboxes[entry.connection].prompt_logprobs.append(
                PromptLogprobs(entry.handle, known, fresh)
            )

    def end(
        self,
        entry: Entry,
        reason: FinishReason,
        *,
        stop_token_id: int | None = None,
        error: str | None = None,
        is_refusal: bool = False,
    ) -> None:
        """Report the record of a sequence that has left, or never entered."""
        sequence = entry.sequence
        self.num_ended += 1
        self._outboxes[entry.connection].finished.append(
            Finished(
                handle=entry.handle,
                reason=reason,
                stop_token_id=stop_token_id,
                error=error,
                is_refusal=is_refusal,
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
    ) -> None:
        """Finish a handle that never became a sequence. ``is_refusal`` as in ``Finished``.

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

    # --- what goes out -----------------------------------------------------------------------

    @property
    def is_silent(self) -> bool:
        """Whether there is nothing to report."""
        return all(box.is_empty for box in self._outboxes.values())

    def collect_admitted(self, stats: EngineStats) -> Iterator[tuple[Connection, StepOutputs]]:
        """Who begins to run, for each connection that has such."""
        for connection, box in self._outboxes.items():
            if box.admitted:
                admitted, box.admitted = box.admitted, []
                yield connection, step_outputs(Outbox(admitted=admitted), StepFigures(), stats)

    def collect(self, figures: StepFigures, stats: EngineStats) -> dict[Connection, StepOutputs]:
        """What each connection is to be told. Those with nothing of their own share a message."""
        idle: StepOutputs | None = None
        outputs: dict[Connection, StepOutputs] = {}
        for connection, box in self._outboxes.items():
            if box.is_empty:
                idle = idle or step_outputs(Outbox(), figures, stats)
                outputs[connection] = idle
            else:
                outputs[connection] = step_outputs(box, figures, stats)
                self._outboxes[connection] = Outbox()
        return outputs
