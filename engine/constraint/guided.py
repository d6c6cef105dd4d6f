"""The constrained sequences among those an engine runs: who must wait, begin or end."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from engine.constraint.constraints import Advance, Constraints
from engine.messages import EngineCounters, FinishReason
from engine.step.grammar_state import GrammarState, Phase
from engine.step.sequence import Sequence

_TOO_SLOW = "constraint: the grammar takes too long"


@dataclass(frozen=True, slots=True)
class Settled:
    """``ends`` None: the sequence's grammar is ready, it may be scheduled. Else how it ends."""

    sequence: Sequence
    ends: FinishReason | None = None
    error: str | None = None


class GuidedSequences:
    """Costs nothing while it is empty; else each call looks at each sequence once."""

    def __init__(self, constraints: Constraints | None) -> None:
        self._constraints = constraints
        self._members: dict[int, tuple[Sequence, GrammarState]] = {}  # by uid
        self._preparing: set[int] = set()  # uids of those that cannot be scheduled yet
        self._advances: list[Advance] = []
        self.counters = EngineCounters() if constraints is None else constraints.counters

    def __bool__(self) -> bool:
        return bool(self._members)

    @property
    def can_constrain(self) -> bool:
        return self._constraints is not None

    @property
    def num_preparing(self) -> int:
        return len(self._preparing)

    def add(self, sequence: Sequence) -> None:
        """Start on its grammar; ``settle`` tells when it may be scheduled."""
        assert self._constraints is not None
        grammar_state = self._constraints.begin(sequence.params, sequence.output_token_ids)
        sequence.grammar_state = grammar_state
        self._members[sequence.uid] = (sequence, grammar_state)
        self._preparing.add(sequence.uid)

    def remove(self, uid: int) -> bool:
        """Forget a sequence, if it is known. Whether it was never to be scheduled."""
        self._members.pop(uid, None)
        was_preparing = uid in self._preparing
        self._preparing.discard(uid)
        return was_preparing

    def follow(self, sequence: Sequence, token_id: int) -> None:
        """The sequence goes on by this token; ``advance`` begins the work."""
        grammar_state, constraint = sequence.grammar_state, sequence.params.constraint
        if grammar_state is not None and constraint is not None:
            self._advances.append(Advance(grammar_state, constraint, token_id))

    def advance(self) -> None:
        """Work on all tokens that ``follow`` was told of. Call it before anything else is asked."""
        if self._advances and self._constraints is not None:
            self._constraints.advance(self._advances)
            self._advances = []

    def held(self) -> set[int]:
        """Uids of those that steps leave out: their masks are slow, and not there yet. They will
        wake the engine, which may have nothing else to do."""
        held = set()
        for uid, (_, grammar_state) in self._members.items():
            if grammar_state.is_slow and grammar_state.is_working and uid not in self._preparing:
                grammar_state.awaited = True  # before looking again, so that no end is missed
                if grammar_state.is_working:
                    held.add(uid)
        return held

    @property
    def has_settled(self) -> bool:
        """Whether ``settle`` would tell of one. Those it would not tell of wake the engine."""
        for uid in self._preparing:
            self._members[uid][1].awaited = True  # before looking, so that no end is missed
        return next(self._settled(), None) is not None

    def settle(self) -> list[Settled]:
        """Those that may be scheduled from now on, and those that end without a step."""
        settled = list(self._settled())
        self._preparing.difference_update(s.sequence.uid for s in settled if s.ends is None)
        return settled

    def _settled(self) -> Iterator[Settled]:
        for uid, (sequence, grammar_state) in self._members.items():
            if grammar_state.phase is Phase.COMPLETE:
                yield Settled(sequence, FinishReason.STOP)
            elif grammar_state.phase is Phase.FAILED:
                yield Settled(sequence, FinishReason.ERROR, grammar_state.error)
            elif grammar_state.is_overdue:
                yield Settled(sequence, FinishReason.ERROR, _TOO_SLOW)
            elif uid in self._preparing and grammar_state.phase is Phase.READY:
                yield Settled(sequence)
