"""Hybrids continue from kept states with transformers' own tokens and logprobs, in any schedule."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from transformers import PreTrainedModel

from engine.messages import SamplingParams
from engine.run.model_runner import ModelRunner
from engine.schedule.scheduler import Scheduler
from engine.schedule.snapshots import Snapshots
from tests.engine.driving import Engine, load_runner
from tests.engine.plugin.families import HYBRIDS, prompt, require_release_with, save_family
from tests.engine.plugin.mixing import Repeating, assert_same
from tests.examples import examples

pytestmark = pytest.mark.integration

BLOCK_SIZE = 4
KINDS = [*HYBRIDS[:2], *(pytest.param(kind, marks=pytest.mark.slow) for kind in HYBRIDS[2:])]


@dataclass(frozen=True)
class Served:
    oracle: PreTrainedModel
    runner: ModelRunner


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Served]:
    known: dict[str, Served] = {}

    def serve(kind: str) -> Served:
        require_release_with(kind)
        torch.set_num_threads(1)
        if kind not in known:
            directory = tmp_path_factory.mktemp(kind)
            oracle = save_family(kind, directory, positions=4096)
            limits = {"max_num_batched_tokens": 2048, "num_kv_blocks": 600}
            runner = load_runner(
                directory, model_impl="transformers", block_size=BLOCK_SIZE, **limits
            )
            known[kind] = Served(oracle, runner)
        return known[kind]

    return serve


def scheduler_of(engine: Engine) -> Scheduler:
    assert isinstance(engine.core.scheduler, Scheduler)
    return engine.core.scheduler


def snapshots_of(engine: Engine) -> Snapshots:
    found = scheduler_of(engine).prefix.snapshots
    assert found is not None
    return found


@dataclass(frozen=True)
class Schedule:
    """``prompts``: whose tokens are shared, how many of these, and how many own follow."""

    blocks: int
    slots: int
    interval: int  # in blocks
    budget: int
    at_once: int
    prompts: list[tuple[int, int, int]]
    preempts: int  # every so many steps
    seed: int


SCHEDULES = st.builds(
    Schedule,
    blocks=st.integers(20, 60),
    slots=st.integers(1, 8),
    interval=st.integers(1, 8),
    budget=st.integers(3, 40),
    at_once=st.integers(1, 4),
    prompts=st.lists(
        st.tuples(st.integers(0, 1), st.integers(0, 40), st.integers(1, 12)), min_size=3, max_size=8
    ),
    preempts=st.integers(3, 20),
    seed=st.integers(0, 1 << 16),
)


class Preempting(Engine):
    """Preempts a running sequence now and then."""

    def preempt_at(self, steps: int, choose: random.Random) -> None:
        scheduler, plan, count = scheduler_of(self), self.core.scheduler.schedule, 0

        def schedule(now: float, sitting_out: set[int]) -> object:
            nonlocal count
            count += 1
            if count % steps == 0 and scheduler.running:
                scheduler.preempt(choose.choice(scheduler.running))
            return plan(now, sitting_out)

        scheduler.schedule = schedule


@pytest.mark.parametrize("kind", KINDS)
@given(schedule=SCHEDULES)
@settings(
    max_examples=examples(8),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
def test_any_schedule_equals_transformers(
    kind: str, schedule: Schedule, served: Callable[[str], Served]
) -> None:
    model = served(kind)
    repeating = Repeating(model.runner, num_kv_blocks=schedule.blocks, num_snapshots=schedule.slots)
    engine = Preempting(
        Path(),
        runner=repeating,
        max_num_seqs=schedule.at_once,
        max_num_batched_tokens=schedule.budget,
    )
    snapshots_of(engine).interval = schedule.interval * BLOCK_SIZE
    engine.preempt_at(schedule.preempts, random.Random(schedule.seed))
    params = SamplingParams(max_tokens=9, temperature=0.0, logprobs=3, ignore_eos=True)
    common = [prompt(40, seed=1), prompt(40, seed=2)]
    prompts = [
        common[which][:count] + prompt(own, seed=place)
        for place, (which, count, own) in enumerate(schedule.prompts)
    ]
    for batch in (prompts[:-2], prompts[-2:]):  # the last ones find what the others left
        outputs = engine.generate(batch, params)
        for prompt_ids, output in zip(batch, outputs, strict=True):
            assert len(output.token_ids) == 9
            assert_same(model.oracle, prompt_ids, output)
    assert len(snapshots_of(engine)) <= schedule.slots


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("first_tail", [9, 64])
def test_a_common_prefix_is_hardly_computed_again(
    kind: str, first_tail: int, served: Callable[[str], Served]
) -> None:
    model = served(kind)
    engine = Engine(Path(), runner=Repeating(model.runner), max_num_batched_tokens=2048)
    counters = engine.core.scheduler.counters
    common = prompt(2000, seed=3)
    params = SamplingParams(max_tokens=2, temperature=0.0, logprobs=3, ignore_eos=True)
    computed, cached = [], []
    for tail in (prompt(first_tail, seed=4), prompt(12, seed=5), prompt(150, seed=6)):
        before = counters.prompt_tokens_computed
        [output] = engine.generate([common + tail], params)
        assert_same(model.oracle, common + tail, output)
        assert output.finished is not None
        computed.append(counters.prompt_tokens_computed - before)
        cached.append(output.finished.cached_tokens)
    assert (cached[0], computed[0]) == (0, 2000 + first_tail)
    assert computed[1] <= 0.1 * 2012
    assert cached[1] >= 2000 - 128
    assert 2000 - 64 < cached[2] <= 2000
    assert computed[2] <= 0.1 * 2150


def test_kept_states_are_bounded_however_many_prompts_come(
    served: Callable[[str], Served],
) -> None:
    model = served("lfm2")
    states = model.runner._parts.states
    assert states is not None
    engine = Engine(Path(), runner=Repeating(model.runner, num_snapshots=3))
    snapshots_of(engine).interval = 8
    most = max(3, len(states._slots))  # with those of earlier tests
    params = SamplingParams(max_tokens=1, temperature=0.0)
    for seed in range(20):
        engine.generate([prompt(40, seed=seed)], params)
        assert len(states._slots) <= most
        assert len(snapshots_of(engine)) <= 3
