"""The sequences that have not ended, updated from the engine's reports.

Only this module changes a sequence's state.
"""

from __future__ import annotations

import collections
import time
from collections.abc import Iterable, Iterator

from engine.messages import FinishReason, StepOutputs
from service.engine.sequence import EngineSequence, SequenceState
from service.errors import QuireError
from service.tenants.waiting_places import WaitingPlaces

ADMISSION_WINDOW_SECONDS = 30.0


class OpenSequences:
    """Open sequences by handle. Handles are assigned in increasing order, so iteration is in order
    of arrival."""

    def __init__(self) -> None:
        self._by_handle: dict[int, EngineSequence] = {}
        self._waiting = WaitingPlaces()  # of sequences that are unsent or queued
        self._admissions: collections.deque[float] = collections.deque(maxlen=4096)

    def __len__(self) -> int:
        return len(self._by_handle)

    def __iter__(self) -> Iterator[EngineSequence]:
        return iter(list(self._by_handle.values()))

    def handles(self) -> frozenset[int]:
        return frozenset(self._by_handle)

    def in_state(self, state: SequenceState) -> list[EngineSequence]:
        return [sequence for sequence in self._by_handle.values() if sequence.state is state]

    @property
    def waiting(self) -> WaitingPlaces:
        """Counts the sequences that no engine has started to run."""
        return self._waiting

    def admissions_per_second(self) -> float | None:
        """Return how fast sequences recently left the queue; None if none did."""
        now = time.monotonic()
        admissions = self._admissions
        while admissions and admissions[0] < now - ADMISSION_WINDOW_SECONDS:
            admissions.popleft()
        if len(admissions) < 2:
            return None
        return len(admissions) / max(now - admissions[0], 1e-3)

    def predicted_wait(self, waiting: int) -> float | None:
        """Return the seconds until as many waiting sequences have started, at the recent pace; None
        if none started recently."""
        if not waiting:
            return 0.0
        pace = self.admissions_per_second()
        return None if pace is None else waiting / pace

    def oldest_wait(self, now: float) -> float:
        """Return how long the sequence that has waited longest for an engine to run it has done so;
        0 if none waits."""
        waiting = (SequenceState.UNSENT, SequenceState.QUEUED)
        return max(
            (now - one.waiting_since for one in self._by_handle.values() if one.state in waiting),
            default=0.0,
        )

    def longest_gap(self, now: float) -> float:
        """Return the longest time since the last token of a sequence that has begun to generate,
        as its reader sees it: running, preempted, or waiting for the next engine; 0 if none has."""
        last_tokens = (one.last_token_time for one in self._by_handle.values())
        return max((now - moment for moment in last_tokens if moment is not None), default=0.0)

    # --- state changes ----------------------------------------------------------------------------

    def add(self, sequence: EngineSequence) -> None:
        """Add a new sequence, unsent or queued."""
        sequence.waiting_since = time.monotonic()
        self._by_handle[sequence.handle] = sequence
        self._waiting.add(sequence.owner)

    def mark_sent(self, sequence: EngineSequence, moment: float) -> None:
        """Record that the current engine has the sequence in its queue since ``moment``, perhaps
        after another one died."""
        sequence.state = SequenceState.QUEUED
        if sequence.queued_time is None:
            sequence.queued_time = moment
        sequence.resumed_at = len(sequence.generated)
        sequence.handovers += sequence.deaths > 0

    def take_back(self) -> None:
        """Return all sequences to the waiting state, because the engine is gone."""
        now = time.monotonic()
        for sequence in self._by_handle.values():
            if sequence.state is SequenceState.RUNNING:
                self._waiting.add(sequence.owner)
                sequence.waiting_since = now
            sequence.state = SequenceState.UNSENT

    def remove(self, sequence: EngineSequence) -> bool:
        """Remove a sequence; False if it has ended already."""
        if self._by_handle.pop(sequence.handle, None) is None:
            return False
        if sequence.state is not SequenceState.RUNNING:
            self._waiting.remove(sequence.owner)
        sequence.state = SequenceState.ENDED
        return True

    def fail(self, sequences: Iterable[EngineSequence], why: QuireError) -> None:
        for sequence in sequences:
            self.remove(sequence)
            sequence.failure = why
            sequence.waker.wake()

    # --- engine output ----------------------------------------------------------------------------

    def apply(self, step: StepOutputs, *, keep_aborted: bool) -> None:
        """Update sequences from a step. ``keep_aborted``: another engine can continue what this one
        stopped on its own."""
        sequences = self._by_handle
        now = step.time
        if step.admitted:
            self._admit(step)
        if step.prompt_logprobs or step.embedded:
            self._apply_prompts(step)
        handles = memoryview(step.handles).cast("q")
        for handle, token in zip(handles, memoryview(step.token_ids).cast("i"), strict=True):
            sequence = sequences.get(handle)
            if sequence is not None:
                sequence.tokens.append(token)
                sequence.generated.append(token)
                if sequence.first_token_time is None:
                    sequence.first_token_time = now
                sequence.last_token_time = now
                sequence.waker.wake()
        for entry in sorted(step.logprobs):
            sequence = sequences.get(handles[entry])
            if sequence is not None:
                sequence.logprobs.append(step.logprobs[entry])
        for finished in step.finished:
            if finished.reason is FinishReason.ABORT and keep_aborted:
                continue  # not by its client: the engine is shutting down
            sequence = sequences.get(finished.handle)
            if sequence is not None:
                self.remove(sequence)
                sequence.end(finished)
                sequence.waker.wake()

    def _admit(self, step: StepOutputs) -> None:
        for admitted in step.admitted:
            sequence = self._by_handle.get(admitted.handle)
            if sequence is None:
                continue
            if sequence.state is not SequenceState.RUNNING:
                self._waiting.remove(sequence.owner)
            sequence.state = SequenceState.RUNNING
            sequence.admit(admitted)
            self._admissions.append(time.monotonic())

    def _apply_prompts(self, step: StepOutputs) -> None:
        """Store the results computed from prompts: logprobs and vectors."""
        for prompt in step.prompt_logprobs:
            sequence = self._by_handle.get(prompt.handle)
            if sequence is not None:
                sequence.add_prompt_logprobs(prompt)
        for embedded in step.embedded:
            sequence = self._by_handle.get(embedded.handle)
            if sequence is not None:
                sequence.vector = embedded.vector
