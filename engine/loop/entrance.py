"""How submissions come in: which get a place in the queue, and which of them wait too long."""

from __future__ import annotations

import heapq

from engine.loop.ledger import Ending
from engine.loop.outbox import StepFigures
from engine.messages import StepPhase, Submit
from engine.queueing import Refusal, RefusalReason
from engine.schedule.gate import Gate, reserve_of
from engine.schedule.scheduling import Scheduling
from engine.step.sequence import Sequence

_PASSED = Refusal(RefusalReason.DEADLINE_PASSED)
EXPIRED: Ending = {"error": _PASSED.reason, "refusal": _PASSED}


class Entrance:
    """The gate, the deadlines, and the sequences that have not been through a step."""

    def __init__(self, scheduler: Scheduling) -> None:
        self._scheduler = scheduler
        self._gate = Gate()
        self._timed: dict[int, Sequence] = {}  # that have a deadline, by uid
        self._deadlines: list[tuple[float, int]] = []  # of these, with uids, and of ended ones
        self._new: dict[int, Sequence] = {}  # by uid

    def judge(self, submit: Submit, first: Sequence | None, now: float) -> Refusal | None:
        """Return why a submission gets no place; None if it does. ``first``: its first sequence,
        which is not entered; needed if there is a deadline."""
        refusal = self._refusal(submit, first, now)
        if refusal is None:
            self._gate.accepted(submit, now)
        return refusal

    def _refusal(self, submit: Submit, first: Sequence | None, now: float) -> Refusal | None:
        gate = self._gate
        free_slots = self._scheduler.free_slots(gate.mean_prompt(submit))
        refusal = gate.judge(submit, now, free_slots)
        if refusal is not None or submit.deadline is None or submit.keeps_place:
            return refusal
        if submit.deadline <= now:
            return _PASSED
        cached = 0 if first is None else self._scheduler.num_cached(first)
        if gate.misses_deadline(submit, now, free_slots, cached):
            return Refusal(RefusalReason.DEADLINE_UNREACHABLE)
        return None

    def enter(self, sequence: Sequence, submit: Submit, now: float) -> None:
        """Count a sequence that has got a place."""
        self._gate.enter(sequence, reserve_of(submit), now)
        if submit.deadline is not None:
            self._timed[sequence.uid] = sequence
            heapq.heappush(self._deadlines, (submit.deadline, sequence.uid))
        if sequence.params.constraint is None:
            self.ready(sequence)

    def ready(self, sequence: Sequence) -> None:
        """Note that the next step may run a sequence: one with a grammar, once that is ready."""
        self._new[sequence.uid] = sequence

    def planned(self, admitted: tuple[Sequence, ...], now: float) -> list[Sequence]:
        """Note which sequences a step is the first to run. Return those that became ready since the
        last step and have to wait."""
        for sequence in admitted:
            self._new.pop(sequence.uid, None)
            self._gate.admitted(sequence, now)
        if not self._new:
            return []
        waiting = list(self._new.values())
        self._new.clear()
        for sequence in waiting:
            self._gate.queued(sequence)
        return waiting

    def expired(self, now: float) -> list[int]:
        """Return the uids of sequences that have no token by their deadline."""
        uids = []
        while self._deadlines and self._deadlines[0][0] <= now:
            uid = heapq.heappop(self._deadlines)[1]
            sequence = self._timed.pop(uid, None)
            if sequence is not None and not sequence.num_output_tokens:
                uids.append(uid)
        return uids

    def cancelled(self, request_id: str) -> None:
        """Note that a request's client has left."""
        self._gate.cancelled(request_id)

    def left(self, sequence: Sequence) -> None:
        """Note the end of a sequence."""
        self._new.pop(sequence.uid, None)
        self._gate.left(sequence)
        if self._timed.pop(sequence.uid, None) is not None:
            self._forget_ended()

    def _forget_ended(self) -> None:
        """Remove the deadlines of ended sequences once they are the majority."""
        if len(self._deadlines) > 2 * len(self._timed) + 64:
            self._deadlines = [each for each in self._deadlines if each[1] in self._timed]
            heapq.heapify(self._deadlines)

    def computed(self, figures: StepFigures | None) -> None:
        """Note how fast a step was, if there was one."""
        if figures is not None and figures.phase is not StepPhase.DECODE and figures.tokens:
            self._gate.prefill_pace.note(figures.tokens, figures.seconds)
