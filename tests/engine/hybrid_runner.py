"""The checking model with a state of each sequence, as a hybrid's: the value of a token depends on
the state alone, while the next token still depends on every block."""

from __future__ import annotations

from dataclasses import dataclass, replace

from engine.plugin.states import StatePool
from engine.step.step import ScheduledSequence, StepPlan, StepResult
from tests.engine.checking_runner import CheckingRunner


@dataclass
class State:
    """``value``: of the last of ``num_tokens`` tokens."""

    num_tokens: int = 0
    value: int = 0


@dataclass
class HybridRunner(CheckingRunner):
    """Runs every third plan twice, as a retry would. States are those of a real pool."""

    num_slots: int | None = None  # None: a few

    def __post_init__(self) -> None:
        super().__post_init__()
        assert not self.ahead, "a state is read again only until the next step is launched"
        slots = 1 + self.num_kv_blocks // 4 if self.num_slots is None else self.num_slots
        self.info = replace(self.info, num_snapshots=slots)
        self.states = StatePool(State)
        self._begun: dict[int, State] = {}  # by uid
        self._num_steps = 0

    def execute(self, plan: StepPlan) -> StepResult:
        self._num_steps += 1
        if self._num_steps % 3 == 0 and not self.fail_steps:
            withheld = set(self.withheld)
            super().execute(plan)
            self.withheld = withheld
        return super().execute(plan)

    def forward(self, plan: StepPlan, tokens: dict[int, list[int]]) -> dict[int, int]:
        items = plan.scheduled[::-1]  # a batch has another order
        for item, state in zip(items, self.states.begin(items), strict=True):
            assert state.num_tokens == item.start, "a state of another length"
            self._begun[item.sequence.uid] = state
        return super().forward(plan, tokens)

    def forget(self, uid: int) -> None:
        super().forget(uid)
        self.states.forget(uid)

    def _write(self, item: ScheduledSequence, token_ids: list[int]) -> None:
        state = self._begun[item.sequence.uid]
        if item.start:
            assert state.value == self._read(item.sequence, item.start - 1), "a state of others"
        super()._write(item, token_ids)
        state.num_tokens, state.value = item.end, self._read(item.sequence, item.end - 1)
