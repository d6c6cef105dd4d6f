"""The sequences that have not ended, updated from the engine's reports.

Only this module changes a sequence's state.
"""

from __future__ import annotations

import asyncio
import heapq
import operator
import time
from collections.abc import Iterable, Iterator

from engine.messages import FinishReason, StepOutputs
from engine.queueing import Prefilled
from engine.schedule.pace import DrainPace
from observability.admin_api import EventKind, Prefill
from service.engine.happenings import Happening, note
from service.engine.rounds import WakeUp, round_of
from service.engine.sequence import EngineSequence, SequenceState
from service.engine.step_history import LONGEST_STEPS, StepHistory
from service.errors import QuireError

_MOST_PREFILLS = 8  # named of one step
_handle = operator.attrgetter("handle")


class OpenSequences:
    """Open sequences of one engine by handle. Handles are assigned in increasing order, so that
    iteration is in order of arrival but for sequences that another engine left."""

    def __init__(self) -> None:
        self._by_handle: dict[int, EngineSequence] = {}
        self.num_waiting = 0  # that no engine has started to run
        self._pace = DrainPace()
        self._history = StepHistory()
        self._token_steps = 0  # steps with tokens
        self._returned = 0  # sequences of this step that had no token in the one before
        # By number of a step: handles of sequences that reach a power of two of tokens in it if
        # they are left out of no step before, and that power.
        self._due: dict[int, list[tuple[int, int]]] = {}

    def __len__(self) -> int:
        return len(self._by_handle)

    def __iter__(self) -> Iterator[EngineSequence]:
        return iter(list(self._by_handle.values()))

    def __contains__(self, sequence: EngineSequence) -> bool:
        return self._by_handle.get(sequence.handle) is sequence

    def handles(self) -> frozenset[int]:
        return frozenset(self._by_handle)

    def in_state(self, state: SequenceState) -> list[EngineSequence]:
        """Return them in order of arrival."""
        found = [sequence for sequence in self._by_handle.values() if sequence.state is state]
        found.sort(key=_handle)
        return found

    def admissions_per_second(self) -> float | None:
        """Return how fast sequences that had had to wait have recently left the queue; None if
        fewer than two have."""
        pace = self._pace.per_second(time.monotonic(), waits=self.num_waiting > 0)
        return None if pace is None else pace[0]

    def predicted_wait(self, waiting: int) -> float | None:
        """Return the seconds until as many waiting sequences have started, at the recent pace; None
        if none started recently."""
        if not waiting:
            return 0.0
        pace = self.admissions_per_second()
        return None if pace is None else waiting / pace

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
        self._wait(sequence.waiting_since)

    def _wait(self, now: float) -> None:
        """Count one more that waits."""
        if not self.num_waiting:
            self._pace.began(now)
        self.num_waiting += 1

    def mark_sent(self, sequence: EngineSequence, moment: float) -> None:
        """Record that the current engine has the sequence in its queue since ``moment``, perhaps
        after another one died."""
        sequence.state = SequenceState.QUEUED
        if sequence.queued_time is None:
            sequence.queued_time = moment
        sequence.resumed_at = len(sequence.generated)
        if sequence.deaths > 0:
            sequence.handovers += 1
            note(sequence.happenings, Happening(EventKind.HANDED_OVER, moment))

    def take_back(self) -> None:
        """Return all sequences to the waiting state, because the engine is gone."""
        now = time.monotonic()
        for sequence in self._by_handle.values():
            if sequence.state is SequenceState.RUNNING:
                self._wait(now)
                sequence.waiting_since = now
            elif sequence.is_unanswered:
                sequence.waker.wake()  # its request waits for the answer
            sequence.state = SequenceState.UNSENT

    def remove(self, sequence: EngineSequence) -> bool:
        """Remove a sequence; False if it has ended already."""
        if self._by_handle.pop(sequence.handle, None) is None:
            return False
        if sequence.state is not SequenceState.RUNNING:
            self.num_waiting -= 1
        sequence.state = SequenceState.ENDED
        if sequence.first_scheduled_time is not None:
            self._sum_up(sequence)
        return True

    def give_away(self, sequence: EngineSequence) -> None:
        """Remove a sequence that waits, to be added to those of another engine with ``adopt``."""
        del self._by_handle[sequence.handle]
        self.num_waiting -= 1
        if sequence.first_scheduled_time is not None:
            self._sum_up(sequence)

    def adopt(self, sequence: EngineSequence) -> None:
        """Add a sequence that waited for another engine. One that is running here may have a
        greater handle, so the order of arrival is that of handles, not of this dictionary."""
        sequence.adopted_at = time.monotonic()
        self._by_handle[sequence.handle] = sequence
        self._wait(sequence.adopted_at)
        tokens = len(sequence.generated)
        if tokens:
            power = 1 << tokens.bit_length()
            due = self._due.setdefault(self._token_steps + power - tokens, [])
            due.append((sequence.handle, power))

    def _sum_up(self, sequence: EngineSequence) -> None:
        """Note what this engine's steps say about a sequence that has ended or leaves for another
        engine."""
        begin, first = sequence.first_scheduled_time, sequence.first_token_time
        joined = sequence.adopted_at
        if begin is not None:
            steps = self._history.longest_steps(max(begin, joined)) + sequence.longest_steps
            steps.sort(key=lambda step: step.seconds, reverse=True)
            sequence.longest_steps = steps[:LONGEST_STEPS]
        if first is not None:
            longest = self._history.longest_gap(max(first, joined))
            sequence.longest_gap = max(sequence.longest_gap, longest)

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
        self._note_step(step)
        handles = memoryview(step.handles).cast("q").tolist()
        if handles:
            self._add_tokens(step, handles)
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

    def _add_tokens(self, step: StepOutputs, handles: list[int]) -> None:
        """Add the step's tokens to their sequences, and have them read."""
        sequences = self._by_handle
        now, before = step.time, self._history.token_time
        if now - before > self._history.long_gap:
            self._note_gaps(handles, before, now)
        followers: list[WakeUp] = []
        token_ids = memoryview(step.token_ids).cast("i").tolist()
        for handle, token in zip(handles, token_ids, strict=True):
            sequence = sequences.get(handle)
            if sequence is None:
                continue
            sequence.generated.append(token)
            if sequence.last_token_time != before:
                self._return(sequence, now)
            sequence.last_token_time = now
            follower = sequence.follower
            if follower is None:
                sequence.waker.wake()
            elif not followers or followers[-1] is not follower:
                followers.append(follower)
        self._end_of_tokens(now, len(handles))
        if followers:
            round_of(asyncio.get_running_loop()).add(*followers)

    def _note_step(self, step: StepOutputs) -> None:
        """Note what a step reports besides tokens and ends."""
        if step.admitted:
            self._admit(step)
        for handle in step.queued:
            queued = self._by_handle.get(handle)
            if queued is not None:
                if queued.has_place or not queued.has_grammar:
                    queued.had_to_wait = True
                self._place(queued)
        if step.prompt_logprobs or step.embedded:
            self._apply_prompts(step)
        if step.preempted or step.resumed:
            self._move(step)
        prefills = self._prefilled(step.prefilled) if step.prefilled else ()
        if step.phase is not None:
            self._history.add_step(
                step.time, step.step_seconds, step.step_tokens, step.step_sequences, prefills
            )

    def _return(self, sequence: EngineSequence, now: float) -> None:
        """Note the first token of a sequence, or its first after a step that it was left out of."""
        self._returned += 1
        last = sequence.last_token_time
        if last is None:
            sequence.first_token_time = now
            note(sequence.happenings, Happening(EventKind.OUTPUT, now, 1))
            self._due.setdefault(self._token_steps + 2, []).append((sequence.handle, 2))
            return
        sequence.longest_gap = max(sequence.longest_gap, now - last)
        if now - last > self._history.long_gap:
            note(sequence.happenings, Happening(EventKind.GAP, now, now - last))

    def _note_gaps(self, handles: Iterable[int], before: float, now: float) -> None:
        """Note a long gap of all sequences that had a token in the step before."""
        for sequence in map(self._by_handle.get, handles):
            if sequence is not None and sequence.last_token_time == before:
                note(sequence.happenings, Happening(EventKind.GAP, now, now - before))

    def _end_of_tokens(self, now: float, count: int) -> None:
        self._history.add_tokens(now, after_others=self._returned < count)
        self._returned = 0
        self._token_steps = number = self._token_steps + 1
        due = self._due.pop(number, None)
        if due is not None:
            self._note_powers(due, number, now)

    def _note_powers(self, due: list[tuple[int, int]], number: int, now: float) -> None:
        """Note which of these sequences have reached a power of two of tokens in this step."""
        for handle, power in due:
            sequence = self._by_handle.get(handle)
            if sequence is None:
                continue
            tokens = len(sequence.generated)
            while tokens >= power:
                note(sequence.happenings, Happening(EventKind.OUTPUT, now, power))
                power *= 2
            self._due.setdefault(number + power - tokens, []).append((handle, power))

    def _move(self, step: StepOutputs) -> None:
        for kind, moves in (
            (EventKind.PREEMPTED, step.preempted),
            (EventKind.RESUMED, step.resumed),
        ):
            for handle, moment in moves:
                sequence = self._by_handle.get(handle)
                if sequence is not None:
                    note(sequence.happenings, Happening(kind, moment))

    def _prefilled(self, prefilled: list[Prefilled]) -> tuple[Prefill, ...]:
        """Add to what is computed of prompts. Return the longest parts, with their requests."""
        for handle, tokens in prefilled:
            sequence = self._by_handle.get(handle)
            if sequence is not None:
                sequence.prompt_tokens_computed += tokens
        longest = heapq.nlargest(_MOST_PREFILLS, prefilled, key=operator.itemgetter(1))
        sequences = [(self._by_handle.get(handle), tokens) for handle, tokens in longest]
        return tuple(
            Prefill(one.message.request_id, tokens)
            for one, tokens in sequences
            if one is not None and one.message is not None
        )

    def _admit(self, step: StepOutputs) -> None:
        for admitted in step.admitted:
            sequence = self._by_handle.get(admitted.handle)
            if sequence is None:
                continue
            if sequence.state is not SequenceState.RUNNING:
                self.num_waiting -= 1
            if sequence.had_to_wait:
                self._pace.note(admitted.time, 0)
            self._place(sequence)
            sequence.state = SequenceState.RUNNING
            sequence.admit(admitted)

    def _place(self, sequence: EngineSequence) -> None:
        """Note that the engine has a place for a sequence; its request may be waiting for that."""
        if sequence.is_unanswered:
            sequence.waker.wake()
        sequence.has_place = True

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
