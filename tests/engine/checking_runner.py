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
from dataclasses import dataclass, field

from engine.messages import TokenLogprobs
from engine.sequence import Sequence
from engine.step import ModelInfo, SampledToken, ScheduledSequence, StepPlan, StepResult

EOS = 0


def _value(before: int, token_id: int) -> int:
    return zlib.crc32(b"%d" % token_id, before)


def _next_token(values: list[int], vocab_size: int) -> int:
    return zlib.crc32(array("Q", values).tobytes()) % vocab_size


def _logprobs(value: int, token_id: int) -> TokenLogprobs:
    return TokenLogprobs(-((value % 1000) + token_id / 1000), 1, [])


def values_alone(token_ids: list[int]) -> list[int]:
    values: list[int] = []
    for token_id in token_ids:
        values.append(_value(values[-1] if values else 0, token_id))
    return values


def continue_alone(prompt: list[int], num_tokens: int, vocab_size: int) -> list[int]:
    """The first ``num_tokens`` that this model generates behind a prompt, stops ignored."""
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

    ``fail_steps``: that many coming calls raise. ``poison``: request ids whose sampling fails.
    ``broken``: every call raises.
    """

    num_kv_blocks: int = 16
    block_size: int = 4
    max_model_len: int = 64
    vocab_size: int = 5
    max_num_batched_tokens: int = 1 << 30
    max_num_seqs: int = 1 << 30
    fail_steps: int = 0
    broken: bool = False
    poison: set[str] = field(default_factory=set)
    poison_step: set[str] = field(default_factory=set)
    plans: list[StepPlan] = field(default_factory=list)
    forgotten: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._slots: list[int | None] = [None] * (self.num_kv_blocks * self.block_size)
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
        self.plans.append(plan)
        assert plan.scheduled, "an empty plan"
        assert plan.num_tokens <= self.max_num_batched_tokens
        assert len(plan.scheduled) <= self.max_num_seqs
        self._check_writes(plan)
        for item in plan.scheduled:
            self._write(item)
        # A step fails after it wrote, which is when a retry is hardest.
        names = {item.sequence.request_id for item in plan.scheduled}
        if self.broken or self.fail_steps or names & self.poison_step:
            self.fail_steps = max(0, self.fail_steps - 1)
            raise RuntimeError("the step failed")
        sampled = [self._sample(item) for item in plan.scheduled]
        prompt_logprobs = {
            index: self._prompt_logprobs(item)
            for index, item in enumerate(plan.scheduled)
            if item.sequence.params.prompt_logprobs is not None
        }
        return StepResult(sampled, prompt_logprobs)

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
            assert item.samples == (end == item.sequence.num_tokens)
            for position in range(item.start, end):
                slot = self._slot(item.sequence, position)
                assert slot not in writers, "two tokens in one slot"
                writers[slot] = item.sequence.uid
        for item in plan.scheduled:
            for position in range(item.start):
                slot = self._slot(item.sequence, position)
                assert slot not in writers, "a slot in use is written"

    def _write(self, item: ScheduledSequence) -> None:
        sequence = item.sequence
        for position in range(item.start, item.start + item.num_tokens):
            before = self._read(sequence, position - 1) if position else 0
            self._slots[self._slot(sequence, position)] = _value(
                before, sequence.token_ids[position]
            )

    def _read(self, sequence: Sequence, position: int) -> int:
        value = self._slots[self._slot(sequence, position)]
        assert value is not None, "a slot is read that nobody wrote"
        return value

    def _sample(self, item: ScheduledSequence) -> SampledToken | Exception | None:
        if not item.samples:
            return None
        if item.sequence.request_id in self.poison:
            return ValueError("not a number")
        values = [self._read(item.sequence, p) for p in range(item.sequence.num_tokens)]
        return SampledToken(_next_token(values, self.vocab_size))

    def _prompt_logprobs(self, item: ScheduledSequence) -> list[TokenLogprobs]:
        sequence = item.sequence
        last = min(item.start + item.num_tokens, sequence.num_prompt_tokens - 1)
        return [
            _logprobs(self._read(sequence, position), sequence.token_ids[position + 1])
            for position in range(item.start, last)
        ]
