"""A model small enough to be exact: it checks the scheduler by living off its block tables.

Its "KV cache" is a list of slots. The value of a token is a hash of the token and of the value
before it, written to and read from the slots that the sequence's block table names, as attention
would. The next token is a hash of every value so read. So a block that is shared wrongly, freed
too early, written twice or left out changes the output, or is found empty.

``continue_alone`` gives the same continuation without any block: the oracle.
"""

from __future__ import annotations

import zlib
from array import array
from collections.abc import Set
from dataclasses import dataclass, field

from engine.errors import RefusedError
from engine.messages import TokenLogprobs
from engine.step.sequence import Sequence
from engine.step.step import (
    PENDING,
    ModelInfo,
    Sampled,
    SampledToken,
    ScheduledSequence,
    StepPlan,
    StepResult,
    Withheld,
)

EOS = 0


def _value(before: int, token_id: int) -> int:
    return zlib.crc32(b"%d" % token_id, before)


def _next_token(values: list[int], vocab_size: int) -> int:
    return zlib.crc32(array("Q", values).tobytes()) % vocab_size


def _logprobs(value: int, token_id: int) -> TokenLogprobs:
    return TokenLogprobs(-((value % 1000) + token_id / 1000), 1)


def values_alone(token_ids: list[int]) -> list[int]:
    values: list[int] = []
    for token_id in token_ids:
        values.append(_value(values[-1] if values else 0, token_id))
    return values


def continue_alone(prompt: list[int], num_tokens: int, vocab_size: int) -> list[int]:
    """Return the first ``num_tokens`` that this model generates after a prompt, ignoring stops."""
    token_ids = list(prompt)
    for _ in range(num_tokens):
        token_ids.append(_next_token(values_alone(token_ids), vocab_size))
    return token_ids[len(prompt) :]


def prompt_logprobs_alone(prompt: list[int]) -> list[TokenLogprobs]:
    values = values_alone(prompt)
    return [_logprobs(value, token_id) for value, token_id in zip(values, prompt[1:], strict=False)]


@dataclass
class CheckingRunner:
    """Runs plans over slots and asserts what a real runner must be able to rely on.

    ``fail_steps``: that many coming calls raise, a launched step's where ``fail_in`` says.
    ``poison``: request ids whose sampling fails; ``refuse``: those refused then. ``broken``: every
    call raises. ``ahead``: it can ``launch``. ``withheld``: request ids that get no token this
    time, once.
    """

    num_kv_blocks: int = 16
    block_size: int = 4
    max_model_len: int = 64
    vocab_size: int = 5
    max_num_batched_tokens: int = 1 << 30
    max_num_seqs: int = 1 << 30
    ahead: bool = False
    fail_steps: int = 0
    fail_in: str = "launch"  # or sample, or result
    withheld: set[str] = field(default_factory=set)
    broken: bool = False
    poison: set[str] = field(default_factory=set)
    refuse: set[str] = field(default_factory=set)
    poison_step: set[str] = field(default_factory=set)
    plans: list[StepPlan] = field(default_factory=list)
    forgotten: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._slots: list[int | None] = [None] * (self.num_kv_blocks * self.block_size)
        self.launch = self._launch if self.ahead else None
        self._last_launched: CheckedStep | None = None
        self.info = ModelInfo(
            model="checking",
            architecture="checking",
            dtype="none",
            device="cpu",
            num_parameters=0,
            vocab_size=self.vocab_size,
            max_model_len=self.max_model_len,
            block_size=self.block_size,
            num_kv_blocks=self.num_kv_blocks,
            kv_cache_bytes=0,
            eos_token_ids=frozenset({EOS}),
        )

    def execute(self, plan: StepPlan) -> StepResult:
        step = CheckedStep(self, plan, None)
        # A step fails after it wrote, which is when a retry is hardest.
        self.fail_if_asked(plan, "launch", "sample", "result")
        step.sample(frozenset())
        return step.result()

    def _launch(self, plan: StepPlan) -> CheckedStep:
        step = CheckedStep(self, plan, self._last_launched)
        self.fail_if_asked(plan, "launch")
        self._last_launched = step
        return step

    def fail_if_asked(self, plan: StepPlan, *stages: str) -> None:
        names = {item.sequence.request_id for item in plan.scheduled}
        if self.fail_in in stages and (self.broken or self.fail_steps or names & self.poison_step):
            self.fail_steps = max(0, self.fail_steps - 1)
            raise RuntimeError("the step failed")

    def forward(self, plan: StepPlan, tokens: dict[int, list[int]]) -> dict[int, int]:
        """Write the values of all planned tokens; return the next token of each sequence that
        samples. ``tokens``: by uid, those of ``token_ids`` without anything pending."""
        self.plans.append(plan)
        assert plan.scheduled, "an empty plan"
        assert plan.num_tokens <= self.max_num_batched_tokens
        assert len(plan.scheduled) <= self.max_num_seqs
        self._check_writes(plan)
        for item in plan.scheduled:
            self._write(item, tokens[item.sequence.uid])
        return {
            item.sequence.uid: _next_token(
                [self._read(item.sequence, p) for p in range(item.end)], self.vocab_size
            )
            for item in plan.scheduled
            if item.completes
        }

    def forget(self, uid: int) -> None:
        self.forgotten.append(uid)

    def _slot(self, sequence: Sequence, position: int) -> int:
        block = sequence.block_table[position // self.block_size]
        return block * self.block_size + position % self.block_size

    def _check_writes(self, plan: StepPlan) -> None:
        """No slot is written twice, and none that another sequence reads is written."""
        writers: dict[int, int] = {}
        for item in plan.scheduled:
            assert item.num_tokens > 0
            assert item.start == item.sequence.num_computed_tokens
            end = item.start + item.num_tokens
            assert item.completes == (end == item.sequence.num_tokens)
            for position in range(item.start, end):
                slot = self._slot(item.sequence, position)
                assert slot not in writers, "two tokens in one slot"
                writers[slot] = item.sequence.uid
        for item in plan.scheduled:
            for position in range(item.start):
                slot = self._slot(item.sequence, position)
                assert slot not in writers, "a slot in use is written"

    def _write(self, item: ScheduledSequence, token_ids: list[int]) -> None:
        sequence = item.sequence
        for position in range(item.start, item.end):
            before = self._read(sequence, position - 1) if position else 0
            self._slots[self._slot(sequence, position)] = _value(before, token_ids[position])

    def _read(self, sequence: Sequence, position: int) -> int:
        value = self._slots[self._slot(sequence, position)]
        assert value is not None, "a slot is read that nobody wrote"
        return value

    def prompt_logprobs(self, item: ScheduledSequence) -> list[TokenLogprobs]:
        sequence = item.sequence
        last = min(item.start + item.num_tokens, sequence.num_prompt_tokens - 1)
        return [
            _logprobs(self._read(sequence, position), sequence.token_ids[position + 1])
            for position in range(item.start, last)
        ]


class CheckedStep:
    """A step of ``CheckingRunner``, which asserts that it computed from the right tokens."""

    def __init__(self, runner: CheckingRunner, plan: StepPlan, before: CheckedStep | None) -> None:
        self._runner = runner
        self._plan = plan
        self.tokens: dict[int, int] = {}  # chosen, by uid
        self._skipped: Set[int] = frozenset()
        self._assumed = {
            item.sequence.uid: list(item.sequence.token_ids) for item in plan.scheduled
        }
        for uid, token_ids in self._assumed.items():
            assert PENDING not in token_ids[:-1]
            if token_ids[-1] == PENDING:
                assert before is not None, "a token is pending that no step under way samples"
                token_ids[-1] = before.tokens[uid]
        self._next = runner.forward(plan, self._assumed)
        self._prompt_logprobs = {
            index: runner.prompt_logprobs(item)
            for index, item in enumerate(plan.scheduled)
            if item.sequence.params.prompt_logprobs is not None
        }

    def sample(self, skipped: Set[int]) -> None:
        self._runner.fail_if_asked(self._plan, "sample")
        self._skipped = skipped
        for item in self._plan.scheduled:
            uid = item.sequence.uid
            if uid in skipped:
                continue
            assert item.sequence.token_ids == self._assumed[uid], "computed of other tokens"
            if item.completes:
                self.tokens[uid] = self._next[uid]

    def result(self) -> StepResult:
        self._runner.fail_if_asked(self._plan, "result")
        return StepResult(
            [self._sampled(item) for item in self._plan.scheduled], self._prompt_logprobs
        )

    def _sampled(self, item: ScheduledSequence) -> Sampled:
        name = item.sequence.request_id
        if not item.completes or item.sequence.uid in self._skipped:
            return None
        if name in self._runner.poison:
            return ValueError("not a number")
        if name in self._runner.refuse:
            return RefusedError("nothing is left to choose from")
        if name in self._runner.withheld:
            self._runner.withheld.discard(name)
            return Withheld.LATER
        return SampledToken(self.tokens[item.sequence.uid])
