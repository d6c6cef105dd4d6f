"""The constrained sequences of an engine: which wait, begin or end."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from engine.constraint.constraints import Advance, Constraints
from engine.messages import EngineCounters, FinishReason, Generate, Task
from engine.step.grammar_state import GrammarState, Phase
from engine.step.sequence import Sequence

_TOO_SLOW = "constraint: the grammar takes too long"


@dataclass(frozen=True, slots=True)
class Decided:
    """``ends`` None: the sequence's grammar is ready, and it may be scheduled. Otherwise the reason
    why it ends."""

    sequence: Sequence
    ends: FinishReason | None = None
    error: str | None = None


class ConstrainedSequences:
    """Costs nothing while empty; otherwise each call visits each sequence once."""

    def __init__(self, constraints: Constraints | None) -> None:
        self._constraints = constraints
        self._members: dict[int, tuple[Sequence, GrammarState]] = {}  # by uid
        self._preparing: set[int] = set()  # uids of sequences that cannot be scheduled yet
        self._advances: list[Advance] = []
        self.counters = EngineCounters() if constraints is None else constraints.counters

    def __bool__(self) -> bool:
        return bool(self._members)

    def can_take(self, task: Task) -> bool:
        """True if the task has no constraint, or one can be applied."""
        has_constraint = isinstance(task, Generate) and task.params.constraint is not None
        return self._constraints is not None or not has_constraint

    @property
    def num_preparing(self) -> int:
        return len(self._preparing)

    def add(self, sequence: Sequence) -> None:
        """Start preparing its grammar; ``decide`` reports when it may be scheduled."""
        assert self._constraints is not None
        grammar_state = self._constraints.begin(sequence.params, sequence.output_token_ids)
        sequence.grammar_state = grammar_state
        self._members[sequence.uid] = (sequence, grammar_state)
        self._preparing.add(sequence.uid)

    def remove(self, uid: int) -> bool:
        """Remove a sequence that has ended, if it is known. True if it was never scheduled."""
        if uid in self._members:
            _, grammar_state = self._members.pop(uid)
            grammar_state.abandon()
        was_preparing = uid in self._preparing
        self._preparing.discard(uid)
        return was_preparing

    def follow(self, sequence: Sequence, token_id: int) -> None:
        """Record a sequence's next token; ``advance`` starts the work."""
        grammar_state, constraint = sequence.grammar_state, sequence.params.constraint
        if grammar_state is not None and constraint is not None:
            self._advances.append(Advance(grammar_state, constraint, token_id))

    def advance(self) -> None:
        """Start the work on all tokens passed to ``follow``. Call it before anything else."""
        if self._advances and self._constraints is not None:
            self._constraints.advance(self._advances)
            self._advances = []

    def sitting_out(self) -> set[int]:
        """Return the uids of sequences that steps leave out: their masks are slow, and not ready
        yet. They will wake the engine, which may be idle."""
        sitting_out = set()
        for uid, (_, grammar_state) in self._members.items():
            if grammar_state.is_slow and grammar_state.is_working and uid not in self._preparing:
                grammar_state.awaited = True  # before checking again, so that no end is missed
                if grammar_state.is_working:
                    sitting_out.add(uid)
        return sitting_out

    @property
    def has_decided(self) -> bool:
        """True if ``decide`` would return any. The others will wake the engine."""
        for uid in self._preparing:
            self._members[uid][1].awaited = True  # before checking, so that no end is missed
        return next(self._decided(), None) is not None

    def decide(self) -> list[Decided]:
        """Return the sequences that may be scheduled from now on, and those that end without a
        step."""
        decided = list(self._decided())
        self._preparing.difference_update(d.sequence.uid for d in decided if d.ends is None)
        return decided

    def _decided(self) -> Iterator[Decided]:
        for uid, (sequence, grammar_state) in self._members.items():
            if grammar_state.phase is Phase.COMPLETE:
                yield Decided(sequence, FinishReason.STOP)
            elif grammar_state.phase is Phase.FAILED:
                yield Decided(sequence, FinishReason.ERROR, grammar_state.error)
            elif grammar_state.is_overdue:
                yield Decided(sequence, FinishReason.ERROR, _TOO_SLOW)
            elif uid in self._preparing and grammar_state.phase is Phase.READY:
                yield Decided(sequence)
