"""Sequences that decode together, as the scheduler would plan them; their prompts are never
computed."""

from __future__ import annotations

import random
import time
from collections.abc import Sequence as Items
from dataclasses import dataclass

import numpy as np

from bench.gpu.model import Subject
from engine.messages import SamplingParams
from engine.step.grammar_state import GrammarState
from engine.step.sequence import Sequence
from engine.step.step import PENDING, SampledToken, ScheduledSequence, StepPlan, StepResult

PLAIN = SamplingParams(max_tokens=100_000, temperature=0.6, seed=1, ignore_eos=True)


def spread(batch: int, context: int, block_size: int) -> list[int]:
    """Return contexts of about one length that do not all need a new block in the same step."""
    return [max(1, context - number % block_size) for number in range(batch)]


@dataclass(frozen=True)
class Chunk:
    """A part of a prompt in every step, always the same: ``tokens``, after ``behind`` others."""

    tokens: int
    behind: int = 0


def guided(vocabulary: int) -> GrammarState:
    """Return a grammar state that always allows half of the tokens. The work of the grammar itself,
    which runs on threads, is left out."""
    state = GrammarState("", frozenset())
    state.mask = np.full(-(-vocabulary // 32), 0x55555555, dtype=np.uint32)
    return state


class Company:
    """Block tables grow by single blocks, from anywhere in the cache, as they do while serving."""

    def __init__(
        self,
        subject: Subject,
        contexts: Items[int],
        params: Items[SamplingParams] = (),
        *,
        chunk: Chunk | None = None,
        guides: Items[int] = (),
    ) -> None:
        """``params``: of the first sequences; the others are plain. ``guides``: indices of those
        with a grammar."""
        self._subject = subject
        blocks = subject.runner.info.num_kv_blocks
        self._free = random.Random(0).sample(range(blocks), blocks)
        self._sequences = []
        for number, context in enumerate(contexts):
            sequence = self._sequence(1000 + number, context + 1)
            sequence.params = params[number] if number < len(params) else PLAIN
            if number in guides:
                sequence.grammar_state = guided(subject.vocab_size)
            self._sequences.append(sequence)
        self._starts = list(contexts)  # the position that the next step computes
        self._known = [context + 1 for context in contexts]  # tokens
        self._chunk: ScheduledSequence | None = None
        if chunk is not None:
            prompt = self._sequence(900, chunk.behind + chunk.tokens + 1)
            self._chunk = ScheduledSequence(prompt, chunk.behind, chunk.tokens, completes=False)

    def _sequence(self, uid: int, tokens: int) -> Sequence:
        sequence = Sequence(
            uid=uid,
            request_id="bench",
            token_ids=[7] * tokens,
            num_prompt_tokens=1,
            params=PLAIN,
        )
        self._add_blocks(sequence, tokens)
        return sequence

    def _add_blocks(self, sequence: Sequence, tokens: int) -> None:
        while len(sequence.block_table) * self._subject.block_size < tokens:
            if not self._free:
                raise ValueError("these contexts do not fit into the KV cache")
            sequence.block_table.append(self._free.pop())

    def plan(self) -> StepPlan:
        items = []
        for number, sequence in enumerate(self._sequences):
            start = self._starts[number]
            if sequence.num_tokens == start:
                sequence.token_ids.append(PENDING)
            self._add_blocks(sequence, start + 1)
            items.append(ScheduledSequence(sequence, start, 1, completes=True))
            self._starts[number] = start + 1
        if self._chunk is not None:
            items.append(self._chunk)
        return StepPlan(tuple(items))

    def take(self, result: StepResult) -> None:
        for number, sequence in enumerate(self._sequences):
            sampled = result.sampled[number]
            if not isinstance(sampled, SampledToken):
                raise RuntimeError(f"a sequence got no token: {sampled}")
            sequence.token_ids[self._known[number] : self._known[number] + 1] = [sampled.token_id]
            self._known[number] += 1

    def waiting(self, steps: int) -> list[float]:
        """Measure the seconds of steps whose tokens the host waits for."""
        times = []
        for _ in range(steps):
            begin = time.perf_counter()
            self.take(self._subject.runner.execute(self.plan()))
            times.append(time.perf_counter() - begin)
        return times

    def ahead(self, steps: int) -> list[float]:
        """Measure the seconds of steps that are launched before the previous step's tokens are
        read, as the engine core does."""
        launch = self._subject.runner.launch
        assert launch is not None
        times = []
        step = launch(self.plan())
        step.sample(frozenset())
        for _ in range(steps):
            begin = time.perf_counter()
            following = launch(self.plan())
            self.take(step.result())
            following.sample(frozenset())
            step = following
            times.append(time.perf_counter() - begin)
        self.take(step.result())
        return times

    def leave(self) -> None:
        """Make the runner forget the sequences, so that others may have their numbers."""
        for sequence in self._sequences:
            self._subject.runner.forget(sequence.uid)
