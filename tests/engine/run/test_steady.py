"""Steady decode steps sample what whole steps sample as sequences come and go, also when launched
before the host knows the previous step's tokens."""

from __future__ import annotations

import math
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

pytest.importorskip("triton")

from engine.gpu.edits import RowEditor
from engine.gpu.graphs import padded_sizes
from engine.gpu.llama import KernelLlama
from engine.messages import Embed, SamplingParams, token_mask
from engine.run.launched import LaunchedStep
from engine.run.model_runner import ModelRunner
from engine.run.steady import SteadyDecode, SteadyStep
from engine.sampling.sampler import SamplingError
from engine.step.grammar_state import GrammarState
from engine.step.mask import Allowed, TokenMask
from engine.step.sequence import Sequence
from engine.step.step import (
    PENDING,
    Sampled,
    SampledToken,
    ScheduledSequence,
    StepPlan,
    Withheld,
)
from tests.engine.driving import Engine, load_runner
from tests.engine.tiny_models import VOCABULARY

BLOCK_SIZE = 8
PARAMS = [
    SamplingParams(max_tokens=99, temperature=0.0),
    SamplingParams(max_tokens=99, seed=3, temperature=1.3),
    SamplingParams(max_tokens=99, seed=4, top_k=9, top_p=0.8),
]


@pytest.fixture(scope="module")
def runner(one_layer: Path, device: torch.device) -> ModelRunner:
    return load_runner(
        one_layer,
        device=device.type,
        gpu_path="triton",
        block_size=BLOCK_SIZE,
        num_kv_blocks=64,
        max_num_seqs=3,
        max_model_len=80,
    )


def steady_of(runner: ModelRunner) -> SteadyDecode:
    assert runner._steady is not None
    return runner._steady


class Stream:
    """A sequence whose state on the host may be older than on the device."""

    def __init__(self, runner: ModelRunner, uid: int, length: int, params: SamplingParams) -> None:
        first = 10 * (uid % 6)
        chance = random.Random(uid)
        self.free = [first + number for number in (7, 2, 9, 4, 0, 5)]
        self.sequence = Sequence(
            uid=uid,
            request_id=str(uid),
            token_ids=chance.choices(range(VOCABULARY), k=length),
            num_prompt_tokens=length,
            params=params,
        )
        self.computed = 0
        self.known = length
        self.take(*runner.execute(StepPlan((self.next(length),))).sampled)

    def next(self, count: int = 1) -> ScheduledSequence:
        """The next tokens; the last may be pending."""
        table = self.sequence.block_table
        while len(table) * BLOCK_SIZE < self.computed + count:
            table.append(self.free.pop(0))
        if self.computed == self.sequence.num_tokens:
            self.sequence.token_ids.append(PENDING)
        item = ScheduledSequence(self.sequence, self.computed, count, completes=True)
        self.computed += count
        return item

    def take(self, sampled: Sampled) -> None:
        """The first token that was not known is."""
        assert isinstance(sampled, SampledToken)
        self.sequence.token_ids[self.known : self.known + 1] = [sampled.token_id]
        self.known += 1

    @property
    def output(self) -> list[int]:
        return self.sequence.output_token_ids


def take_all(streams: list[Stream], step: SteadyStep | LaunchedStep) -> None:
    for stream, sampled in zip(streams, step.result().sampled, strict=True):
        stream.take(sampled)


@pytest.fixture(scope="module")
def reference(one_layer: Path) -> dict[int, list[int]]:
    """Output of streams 0 to 5, each alone, by torch on the CPU."""
    engine = Engine(one_layer, cpu_path="torch")
    outputs = {}
    for uid in range(6):
        prompt = random.Random(uid).choices(range(VOCABULARY), k=5 + uid)
        [output] = engine.generate([prompt], replace_tokens(PARAMS[uid % 3], 24))
        outputs[uid] = output.token_ids
    return outputs


def replace_tokens(params: SamplingParams, count: int) -> SamplingParams:
    return SamplingParams(
        max_tokens=count,
        temperature=params.temperature,
        seed=params.seed,
        top_k=params.top_k,
        top_p=params.top_p,
    )


def start(runner: ModelRunner, uids: range | list[int]) -> list[Stream]:
    return [Stream(runner, uid, 5 + uid, PARAMS[uid % 3]) for uid in uids]


def check(streams: list[Stream], reference: dict[int, list[int]]) -> None:
    for stream in streams:
        uid = stream.sequence.uid
        assert stream.output == reference[uid][: len(stream.output)], f"stream {uid}"


def test_steps_of_the_same_rows_cross_into_new_blocks(
    runner: ModelRunner, reference: dict[int, list[int]]
) -> None:
    steady = steady_of(runner)
    streams = start(runner, range(2))
    for _ in range(13):
        items = [stream.next() for stream in streams]
        assert steady.accepts(items)
        take_all(streams, steady.launch(items))
    assert all(len(stream.sequence.block_table) > 2 for stream in streams)
    check(streams, reference)


def test_steps_launched_ahead_of_the_host_build_on_the_device_s_tokens(
    runner: ModelRunner, reference: dict[int, list[int]]
) -> None:
    steady = steady_of(runner)
    streams = start(runner, range(3))
    for step in [steady.launch([stream.next() for stream in streams]) for _ in range(4)]:
        take_all(streams, step)
    assert [len(stream.output) for stream in streams] == [5, 5, 5]
    check(streams, reference)


def test_rows_that_come_go_and_move_keep_tokens_that_only_the_device_knows(
    runner: ModelRunner, reference: dict[int, list[int]]
) -> None:
    steady = steady_of(runner)
    a, b, c, d = streams = start(runner, [0, 1, 2, 4])
    launched: list[tuple[list[Stream], SteadyStep]] = []
    for company in ([a, b, c], [c, a], [c, a], [d, c, a], [a, d], [d]):
        newest = launched[-1][1].newest() if launched else None
        items = [stream.next() for stream in company]
        launched.append((company, steady.launch(items, newest)))
    for company, step in launched:
        take_all(company, step)
    check(streams, reference)
    assert [len(stream.output) for stream in streams] == [6, 2, 5, 4]


def test_a_step_run_again_gives_the_same(
    runner: ModelRunner, reference: dict[int, list[int]]
) -> None:
    steady = steady_of(runner)
    streams = start(runner, [0, 1])
    items = [stream.next() for stream in streams]
    first = steady.launch(items)
    assert steady.launch(items).result() == first.result()
    take_all(streams, first)
    check(streams, reference)


def test_whole_and_steady_steps_hand_each_other_tokens_that_the_host_does_not_know(
    runner: ModelRunner, reference: dict[int, list[int]]
) -> None:
    steady = steady_of(runner)
    a, b = streams = start(runner, [1, 2])
    steps: list[tuple[list[Stream], SteadyStep | LaunchedStep]] = []
    before = None
    for company in ([b, a], [a, b], [a]):
        plan = StepPlan(tuple(stream.next() for stream in company))
        with torch.inference_mode():
            if len(steps) == 1:
                steady.forget()
                before = runner._forward(plan, None if before is None else before.newest())
                before.sample(frozenset())
            else:
                before = runner._start(plan, before)
        steps.append((company, before))
    assert [type(step) for _, step in steps] == [SteadyStep, LaunchedStep, SteadyStep]
    for company, step in steps:
        take_all(company, step)
    check(streams, reference)


def test_a_pending_token_that_is_never_sampled_is_an_error(runner: ModelRunner) -> None:
    steady = steady_of(runner)
    [stream] = start(runner, [5])
    steady.launch([stream.next()])
    steady.forget()
    with pytest.raises(KeyError):
        steady.launch([stream.next()])


def test_a_row_that_broke_fails_alone(
    runner: ModelRunner, reference: dict[int, list[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    steady = steady_of(runner)
    streams = start(runner, [0, 1])
    items = [stream.next() for stream in streams]
    if steady._device.type == "cuda":
        pytest.skip("a recorded step does not call Python")
    whole = type(steady._decoder).narrow_logits

    def broken(decoder: KernelLlama, hidden: torch.Tensor, out: torch.Tensor) -> None:
        whole(decoder, hidden, out)
        out[0] = math.nan

    monkeypatch.setattr(type(steady._decoder), "narrow_logits", broken)
    failed, sampled = steady.launch(items).result().sampled
    assert isinstance(failed, SamplingError)
    streams[1].take(sampled)
    check(streams[1:], reference)


SPECIAL: dict[str, dict[str, Any]] = {
    "logprobs": {"logprobs": 2},
    "repetition_penalty": {"repetition_penalty": 1.6},
    "presence_penalty": {"presence_penalty": 1.5, "temperature": 0.0},
    "frequency_penalty": {"frequency_penalty": 1.1},
    "logit_bias": {"logit_bias": {3: 5.0, 9: -100.0}},
    "bad_words": {"bad_words_token_ids": ((3,), (9, 10))},
    "allowed_tokens": {"allowed_tokens": token_mask(range(3, 40))},
    "min_tokens": {"min_tokens": 5, "stop_token_ids": frozenset(range(0, VOCABULARY, 2))},
}


@pytest.mark.parametrize("kind", SPECIAL)
def test_a_row_that_asks_for_more_than_plain_sampling_leaves_the_others_on_recorded_steps(
    one_layer: Path, runner: ModelRunner, reference: dict[int, list[int]], kind: str
) -> None:
    """Each row's tokens are those it gets alone by torch, also when a step is launched while the
    host has only the tokens of the one before last."""
    steady = steady_of(runner)
    asked = SPECIAL[kind]
    params = SamplingParams(max_tokens=8, seed=5, ignore_eos=True, **asked)
    uid = 8 + 6 * list(SPECIAL).index(kind)  # another one each time, as in an engine
    prompt = random.Random(uid).choices(range(VOCABULARY), k=7)
    [expected] = Engine(one_layer, cpu_path="torch").generate([prompt], params)
    a, b = plain = start(runner, [0, 1])
    special = Stream(runner, uid, 7, params)
    logprobs = []
    before: tuple[list[Stream], SteadyStep] | None = None
    for company in ([a, special, b], [a, special, b], [special, b], [b, special], [special], []):
        step = None
        if company:
            items = [stream.next() for stream in company]
            assert steady.accepts(items)
            step = steady.launch(items, None if before is None else before[1].newest())
        if before is not None:
            result = before[1].result()
            for stream, sampled in zip(before[0], result.sampled, strict=True):
                stream.take(sampled)
                if stream is special and isinstance(sampled, SampledToken):
                    logprobs.append(sampled.logprobs)
        if step is not None:
            step.sample(frozenset())
            before = (company, step)
    assert special.output == expected.token_ids[:6]
    assert [len(stream.output) for stream in plain] == [3, 5]
    check(plain, reference)
    assert all((one is not None) == ("logprobs" in asked) for one in logprobs)
    for one, other in zip(logprobs, expected.logprobs[1:6], strict=False):
        assert one is not None
        assert one.logprob == pytest.approx(other.logprob, abs=1e-4)
        assert [top.token_id for top in one.top] == [top.token_id for top in other.top]
    runner.forget(uid)


def mask_of(*tokens: int) -> TokenMask:
    words = np.zeros(-(-VOCABULARY // 32), np.uint32)
    for token in tokens:
        words[token // 32] |= np.uint32(1 << token % 32)
    return words


def guided(stream: Stream, mask: TokenMask | None) -> Stream:
    """Let only the tokens in ``mask`` follow; None: nothing may."""
    state = GrammarState("", frozenset())
    state.begin_work()
    if mask is None:
        state.complete()
    else:
        state.allow(Allowed(mask, ends=False), mask)
    stream.sequence.grammar_state = state
    return stream


def test_a_grammar_s_mask_holds_for_its_row_alone_and_a_complete_text_gets_no_token(
    runner: ModelRunner, reference: dict[int, list[int]]
) -> None:
    steady = steady_of(runner)
    a, b, c = start(runner, range(3))
    guided(b, mask_of(17))
    guided(c, None)
    step = steady.launch([stream.next() for stream in (a, b, c)])
    assert step.newest() is None
    step.sample(frozenset())
    newest = step.newest()
    assert newest is not None
    # The next step takes the token that the mask left from the device.
    b.sequence.grammar_state = None
    after = steady.launch([a.next(), b.next()], newest)
    first, second, third = step.result().sampled
    a.take(first)
    b.take(second)
    assert third is Withheld.COMPLETE
    assert b.output[-1] == 17
    take_all([a, b], after)
    check([a], reference)
    whole = runner.execute(
        StepPlan((ScheduledSequence(b.sequence, 0, len(b.sequence.token_ids) - 1, True),))
    )
    [again] = whole.sampled
    assert isinstance(again, SampledToken)
    assert again.token_id == b.output[-1]


def test_a_special_row_that_is_skipped_is_not_edited(
    runner: ModelRunner, reference: dict[int, list[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    steady = steady_of(runner)
    a, b = start(runner, [0, 1])
    b.sequence.params = SamplingParams(max_tokens=9, repetition_penalty=2.0)
    step = steady.launch([a.next(), b.next()])
    monkeypatch.setattr(RowEditor, "edit", lambda *_: pytest.fail("edited"))
    step.sample({b.sequence.uid})
    a.take(step.result().sampled[0])
    check([a], reference)


def test_prompts_and_too_many_rows_are_not_accepted(runner: ModelRunner) -> None:
    def item(params: SamplingParams, count: int = 1, completes: bool = True) -> ScheduledSequence:
        sequence = Sequence(0, "", [1, 2, 3], 3, params, block_table=[0])
        return ScheduledSequence(sequence, 3 - count, count, completes)

    steady = steady_of(runner)
    plain = item(PARAMS[2])
    assert steady.accepts([plain] * 3)
    assert steady.accepts([plain, item(SamplingParams(max_tokens=9, logprobs=0))])
    pooled = item(PARAMS[2])
    pooled.sequence.embed = Embed()
    assert not steady.accepts([plain, pooled])
    assert not steady.accepts([plain, item(PARAMS[2], count=2)])
    assert not steady.accepts([item(PARAMS[2], completes=False)])
    assert not steady.accepts([])
    assert not steady.accepts([plain] * 4)


@pytest.mark.parametrize("ahead", [False, True], ids=["waiting", "ahead"])
def test_the_engine_goes_from_whole_steps_to_steady_ones_and_back(
    one_layer: Path, device: torch.device, monkeypatch: pytest.MonkeyPatch, ahead: bool
) -> None:
    """A third request comes when the shorter of the others has ended."""
    engine = Engine(
        one_layer,
        device=device.type,
        gpu_path="triton",
        async_scheduling=ahead,
        block_size=BLOCK_SIZE,
        num_kv_blocks=40,
        max_num_seqs=2,
        max_model_len=60,
    )
    launched: list[int] = []
    launch = SteadyDecode.launch

    def counted(self: SteadyDecode, items: Any, newest: Any = None) -> SteadyStep:
        launched.append(len(items))
        return launch(self, items, newest)

    monkeypatch.setattr(SteadyDecode, "launch", counted)
    prompts = [random.Random(uid).choices(range(VOCABULARY), k=5 + uid) for uid in (0, 1, 2)]
    params = [
        SamplingParams(max_tokens=9, temperature=0.0),
        SamplingParams(max_tokens=11, min_tokens=4, seed=3, temperature=1.3),
        SamplingParams(max_tokens=5, seed=4, top_k=9, top_p=0.8),
    ]
    outputs = engine.generate(prompts, params)
    assert launched.count(2) > 3
    assert launched.count(1) > 0
    plain = Engine(one_layer, cpu_path="torch").generate(prompts, params)
    assert [output.token_ids for output in outputs] == [output.token_ids for output in plain]


@pytest.mark.parametrize(
    ("largest", "sizes"),
    [
        (1, [1]),
        (3, [1, 2, 3]),
        (8, [1, 2, 4, 8]),
        (9, [1, 2, 4, 8, 16]),
        (40, [1, 2, 4, 8, 16, 32, 48]),
    ],
)
def test_padded_sizes_reach_the_largest_batch(largest: int, sizes: list[int]) -> None:
    assert padded_sizes(largest) == sizes
