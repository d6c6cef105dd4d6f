"""Submissions at a full queue, and deadlines: what the engine answers, and when."""

from __future__ import annotations

from msgspec.structs import replace

from engine.loop.core import EngineCore
from engine.messages import Finished, FinishReason, Generate, SamplingParams, StepOutputs
from engine.queueing import Following, QueueBounds, Refusal, RefusalReason
from tests.engine.checking_runner import CheckingRunner
from tests.engine.loop.listening import ALICE, BOB, submit

BOUNDS = QueueBounds(2, 1000)


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def engine(
    clock: Clock,
    told: list[StepOutputs] | None = None,
    *,
    max_num_seqs: int = 1,
    num_kv_blocks: int = 64,
) -> EngineCore:
    core = EngineCore(
        CheckingRunner(vocab_size=1000, num_kv_blocks=num_kv_blocks),
        max_num_seqs=max_num_seqs,
        max_num_batched_tokens=64,
        clock=clock,
        on_admitted=None if told is None else lambda _, outputs: told.append(outputs),
    )
    core.connect(ALICE)
    core.connect(BOB)
    return core


def test_a_submission_is_answered_within_a_step_with_a_run_a_place_or_a_refusal() -> None:
    told: list[StepOutputs] = []
    core = engine(Clock(), told)
    for handle in range(1, 4):
        core.add(ALICE, replace(submit(handle), bounds=BOUNDS))
    core.add(BOB, replace(submit(4), bounds=BOUNDS))
    [finished] = core.step()[BOB].finished
    assert finished.refusal == Refusal(RefusalReason.QUEUE_REQUESTS, None, 3)
    assert (finished.reason, finished.handle) == (FinishReason.ERROR, 4)
    [first] = told  # before the step
    assert [admitted.handle for admitted in first.admitted] == [1]
    assert first.queued == [2, 3]
    told.clear()
    core.step()
    assert told == []  # each is reported once


def test_a_free_slot_counts_only_with_the_blocks_to_fill_it() -> None:
    """Many slots; the KV cache holds four new sequences, or three that have grown."""
    for arriving_at_once, first_refused in ((True, 7), (False, 6)):
        core = engine(Clock(), max_num_seqs=64, num_kv_blocks=8)
        finished: list[Finished] = []
        for handle in range(1, 12):
            core.add(ALICE, replace(submit(handle, max_tokens=40), bounds=BOUNDS))
            if not arriving_at_once:
                finished += core.step()[ALICE].finished
        finished += core.step()[ALICE].finished
        assert [each.handle for each in finished if each.refusal] == [*range(first_refused, 12)]


def test_what_an_engine_had_accepted_before_is_not_refused() -> None:
    core = engine(Clock())
    for handle in range(1, 4):
        core.add(ALICE, replace(submit(handle), bounds=BOUNDS))
    core.add(ALICE, replace(submit(4), bounds=BOUNDS, keeps_place=True))
    assert core.step()[ALICE].finished == []
    assert core.stats().waiting == 3


def ended(core: EngineCore) -> list[Finished]:
    return core.step()[ALICE].finished


def test_a_sequence_whose_deadline_passes_while_it_waits_ends_and_leaves_its_place() -> None:
    clock = Clock()
    core = engine(clock)
    core.add(ALICE, submit(1, max_tokens=500))
    core.add(ALICE, replace(submit(2), bounds=QueueBounds(1, 1000), deadline=5.0))
    assert ended(core) == []
    clock.now = 5.0
    [finished] = ended(core)
    assert (finished.handle, finished.refusal) == (2, Refusal(RefusalReason.DEADLINE_PASSED))
    assert finished.first_scheduled_time is None
    core.add(ALICE, replace(submit(3), bounds=QueueBounds(1, 1000)))
    assert ended(core) == []


def test_a_sequence_that_has_begun_to_generate_has_met_its_deadline() -> None:
    clock = Clock()
    core = engine(clock)
    core.add(ALICE, replace(submit(1, max_tokens=50), deadline=5.0))
    core.step()
    clock.now = 10.0
    assert ended(core) == []
    assert core.stats().running == 1


def test_a_deadline_that_has_passed_already_is_refused_without_a_step() -> None:
    core = engine(Clock())
    core.add(ALICE, replace(submit(1), deadline=-1.0))
    [finished] = core.flush()[ALICE].finished
    assert finished.refusal == Refusal(RefusalReason.DEADLINE_PASSED)
    assert not core.scheduler.has_work


def test_a_deadline_that_the_queue_cannot_make_is_refused_before_its_prefill() -> None:
    clock = Clock()
    core = engine(clock)
    for handle in range(1, 12):
        core.add(ALICE, submit(handle, max_tokens=4))
    while core.scheduler.num_waiting > 6:  # each takes four seconds
        core.step()
        clock.now += 1.0
    core.add(ALICE, replace(submit(20), deadline=clock.now + 3.0))
    core.add(ALICE, replace(submit(21), deadline=clock.now + 60.0))
    [refused] = [one for one in ended(core) if one.refusal is not None]
    assert refused.handle == 20
    assert refused.refusal == Refusal(RefusalReason.DEADLINE_UNREACHABLE)


def test_an_aborted_sequence_leaves_its_place() -> None:
    core = engine(Clock())
    for handle in range(1, 4):
        core.add(ALICE, replace(submit(handle), bounds=BOUNDS))
    core.abort(ALICE, [2])
    core.add(ALICE, replace(submit(4), bounds=BOUNDS))
    core.step()
    core.disconnect(ALICE)
    for handle in range(1, 4):
        task = Generate(SamplingParams(max_tokens=3))
        core.add(BOB, replace(submit(handle), bounds=BOUNDS, task=task))
    assert all(one.refusal is None for one in core.step()[BOB].finished)


def test_a_request_that_is_aborted_before_its_other_prompts_came_leaves_their_places() -> None:
    core = engine(Clock())
    core.add(ALICE, replace(submit(1), bounds=BOUNDS))
    for handle in range(2, 5):
        many = replace(submit(handle), request_id=f"many-{handle}", bounds=BOUNDS)
        core.add(ALICE, replace(many, following=Following(1, 3)))
        core.abort(ALICE, [handle])
    core.add(ALICE, replace(submit(5), bounds=BOUNDS))
    assert all(one.refusal is None for one in core.step()[ALICE].finished)


def test_deadlines_of_ended_sequences_are_forgotten() -> None:
    core = engine(Clock())
    for handle in range(1, 2000):
        core.add(ALICE, replace(submit(handle), deadline=80_000.0))
        core.abort(ALICE, [handle])
    assert len(core._entrance._deadlines) < 200
    assert not core._entrance._timed
