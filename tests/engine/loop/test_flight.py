"""Steps that fail, whom they cost a token or an end, and steps that run ahead."""

from __future__ import annotations

import pytest

from engine.errors import UNTOLD
from engine.loop.core import EngineCore
from engine.loop.errors import EngineDeadError
from engine.loop.flight import Flight
from engine.messages import FinishReason
from engine.schedule.pacing import PrefillPacer
from engine.step.step import DeviceLostError, ScheduledSequence, StepPlan, StepResult
from tests.engine.checking_runner import CheckedStep, CheckingRunner, continue_alone
from tests.engine.loop.listening import ALICE, BOB, Listener, engine, submit
from tests.engine.run.plans import sequence


def test_a_step_that_fails_once_loses_no_tokens() -> None:
    runner = CheckingRunner(vocab_size=1000)
    core = engine(runner)
    core.add(ALICE, submit(1))
    core.add(ALICE, submit(2, [9] * 10))
    core.step()
    runner.fail_steps = 1
    heard = Listener(core)
    assert {f.reason for f in heard.finished.values()} == {FinishReason.LENGTH}
    assert core.stats().kv_blocks_active == 0
    names = {item.sequence.request_id for plan in runner.plans for item in plan.scheduled}
    assert names == {"r1", "r2"}  # the model has shown that it runs: it is not probed


def test_a_sequence_that_fails_every_step_it_is_in_ends_alone() -> None:
    core = engine(CheckingRunner(vocab_size=1000, poison_step={"bad"}))
    core.add(ALICE, submit(1))
    core.add(ALICE, submit(2, request_id="bad"))
    core.add(ALICE, submit(3, [4, 5]))
    heard = Listener(core)
    assert heard.finished[ALICE, 2].error == UNTOLD
    assert heard.tokens[ALICE, 1] == continue_alone([1, 2, 3], 4, 1000)
    assert heard.tokens[ALICE, 3] == continue_alone([4, 5], 4, 1000)


def test_a_poisonous_sequence_alone_in_the_engine_does_not_end_the_engine() -> None:
    core = engine(CheckingRunner(vocab_size=1000, poison_step={"bad"}))
    for handle in range(5):
        core.add(ALICE, submit(handle, request_id="bad"))
        assert Listener(core).finished[ALICE, handle].reason is FinishReason.ERROR
    core.add(ALICE, submit(9))
    assert Listener(core).finished[ALICE, 9].reason is FinishReason.LENGTH
    assert core.stats().kv_blocks_active == 0


def test_a_model_that_runs_nothing_any_more_ends_the_engine() -> None:
    runner = CheckingRunner(vocab_size=1000)
    core = engine(runner)
    core.add(ALICE, submit(1))
    core.step()
    runner.broken = True
    with pytest.raises(EngineDeadError, match="the step failed"):
        core.step()


class ReadyToServe:
    """An engine whose time is that of its prompts, in milliseconds a token."""

    def __init__(self, **settings: object) -> None:
        self.runner = CheckingRunner(vocab_size=1000, max_model_len=600, **settings)  # type: ignore[arg-type]
        self.core = EngineCore(
            self.runner,
            max_num_seqs=8,
            max_num_batched_tokens=256,
            max_decode_slowdown=1.6,
            clock=self._clock,
        )

    def _clock(self) -> float:
        return sum(plan.num_tokens for plan in self.runner.plans) / 1000


def test_prompts_of_several_sizes_are_timed_before_the_first_request() -> None:
    engine = ReadyToServe(num_kv_blocks=100)
    engine.core.flights.calibrate(256)
    # Twice each: the first may set things up.
    sizes = [plan.num_tokens for plan in engine.runner.plans]
    assert sizes == [64, 64, 128, 128, 256, 256]
    assert engine.core.stats().kv_blocks_free == 100
    assert len(set(engine.runner.forgotten)) == 3
    pacer = engine.core.flights._pacer
    assert pacer is not None
    pacer.observe(8, 0, 0.020)
    assert pacer.budget(8) == 12  # of 1 ms each: 1.6 times 20 ms


def test_prompt_tokens_with_logprobs_are_timed_as_what_they_cost() -> None:
    """Else prompts without would be computed in smaller parts after such a step."""
    engine = ReadyToServe(num_kv_blocks=100)
    seen: list[tuple[int, int]] = []

    class Watching(PrefillPacer):
        def observe(self, decodes: int, prompt_tokens: int, seconds: float) -> None:
            seen.append((decodes, prompt_tokens))

    flights = engine.core.flights
    flights._pacer = Watching(1.6)
    items = (
        ScheduledSequence(sequence(1, [1, 2], []), 1, 1, completes=True),
        ScheduledSequence(sequence(2, [1] * 20, []), 0, 10, completes=False),
    )
    flights.figures(Flight(StepPlan(items, extra_work=25), 0.0))
    assert seen == [(1, 35)]


def test_a_step_launched_early_is_timed_from_the_end_of_the_one_before() -> None:
    now = [1.0]
    core = EngineCore(
        CheckingRunner(vocab_size=1000),
        max_num_seqs=8,
        max_num_batched_tokens=256,
        clock=lambda: now[0],
    )
    plan = StepPlan((ScheduledSequence(sequence(1, [1, 2], []), 0, 2, completes=True),))
    assert core.flights.figures(Flight(plan, 0.0)).seconds == 1.0
    now[0] = 1.5
    assert core.flights.figures(Flight(plan, 0.25)).seconds == 0.5


def test_prompts_that_cannot_be_timed_keep_nobody_from_being_served() -> None:
    for settings in ({"num_kv_blocks": 20}, {"num_kv_blocks": 100, "fail_steps": 1}):
        engine = ReadyToServe(**settings)
        engine.core.flights.calibrate(256)
        assert len(engine.runner.plans) == (2 if "fail_steps" not in settings else 1)
        assert engine.core.stats().kv_blocks_free == settings["num_kv_blocks"]
        engine.core.connect(ALICE)
        engine.core.add(ALICE, submit(1))
        assert Listener(engine.core).finished[ALICE, 1].reason is FinishReason.LENGTH


def test_a_lost_device_ends_the_engine_at_once() -> None:
    class Lost(CheckingRunner):
        def execute(self, plan: StepPlan) -> StepResult:
            raise DeviceLostError("gone")

    core = engine(Lost())
    core.add(ALICE, submit(1))
    with pytest.raises(EngineDeadError, match="gone"):
        core.step()


def test_a_runner_that_answers_too_few_sequences_is_not_believed() -> None:
    class Short(CheckingRunner):
        def execute(self, plan: StepPlan) -> StepResult:
            result = super().execute(plan)
            return StepResult(result.sampled[:1], result.prompt_logprobs)

    core = engine(Short(vocab_size=1000))
    core.add(ALICE, submit(1))
    core.add(ALICE, submit(2, [4, 5]))
    heard = Listener(core)
    assert heard.tokens[ALICE, 2] == continue_alone([4, 5], 4, 1000)


# --- one step ahead -----------------------------------------------------------------------------


class Watched(CheckingRunner):
    """Notes what it is asked to do, and in which order."""

    def __init__(self) -> None:
        super().__init__(vocab_size=1000, ahead=True)
        self.asked: list[str] = []

    def _launch(self, plan: StepPlan) -> CheckedStep:
        step = super()._launch(plan)
        number = len(self.plans)
        self.asked.append(f"launch {number}")
        self._note(step, "sample", number)
        self._note(step, "result", number)
        return step

    def _note(self, step: CheckedStep, name: str, number: int) -> None:
        method = getattr(step, name)

        def noted(*arguments: object) -> object:
            self.asked.append(f"{name} {number}")
            return method(*arguments)

        setattr(step, name, noted)


def test_a_step_is_launched_before_the_tokens_of_the_last_one_are_waited_for() -> None:
    runner = Watched()
    core = engine(runner)
    core.add(ALICE, submit(1, max_tokens=3))
    heard = Listener(core)
    assert heard.tokens[ALICE, 1] == continue_alone([1, 2, 3], 3, 1000)
    assert runner.asked == [
        *("launch 1", "sample 1"),
        *("launch 2", "result 1", "sample 2"),
        *("launch 3", "result 2", "sample 3"),
        "result 3",  # the third token is the last allowed, so there is no step ahead of it
    ]


def test_the_extra_step_of_a_stopped_sequence_is_not_reported() -> None:
    expected = continue_alone([1, 2, 3], 4, 1000)
    runner = CheckingRunner(vocab_size=1000, ahead=True)
    core = engine(runner)
    core.add(ALICE, submit(1, max_tokens=50, stop_token_ids=frozenset((expected[1],))))
    core.add(BOB, submit(1, [4, 5], max_tokens=4))
    heard = Listener(core)
    assert heard.tokens[ALICE, 1] == expected[:2]
    assert heard.tokens[BOB, 1] == continue_alone([4, 5], 4, 1000)
    assert [len(plan.scheduled) for plan in runner.plans] == [2, 2, 2, 1]
    assert core.stats().tokens_generated == 6
    assert core.stats().kv_blocks_active == 0
