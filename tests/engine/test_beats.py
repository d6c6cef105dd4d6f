"""What an engine says of itself in shared memory, and what its loop makes of it."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from engine.beats import STEP_MARGIN, EngineBeats, Page, Sign
from engine.loop.core import EngineCore
from engine.messages import SamplingParams, Submit
from tests.engine.checking_runner import CheckingRunner


def test_what_one_maps_the_other_reads(tmp_path: Path) -> None:
    path = tmp_path / "page"
    mine = Page(path, create=True)
    assert path.stat().st_mode & 0o777 == 0o600
    theirs = Page(path)
    theirs[Sign.BEATS] = 3.0
    theirs[Sign.ALLOWED_SECONDS] = math.inf
    assert (mine[Sign.BEATS], mine[Sign.ALLOWED_SECONDS]) == (3.0, math.inf)
    mine.clear()
    assert [theirs[sign] for sign in Sign] == [0.0] * len(Sign)
    with pytest.raises(FileExistsError):
        Page(path, create=True)


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def run_step(beats: EngineBeats, clock: Clock, tokens: int, seconds: float, progress: int) -> None:
    beats.planned(tokens)
    clock.now += seconds
    beats.turned(progress, is_idle=False)


def test_a_turn_that_gets_nowhere_is_no_beat() -> None:
    page = Page()
    beats = EngineBeats(page)
    beats.turned(0, is_idle=True)
    beats.turned(7, is_idle=False)
    assert (page[Sign.BEATS], page[Sign.PROGRESS]) == (2, 7)
    for _ in range(100):
        beats.turned(7, is_idle=False)
    assert page[Sign.BEATS] == 2


def test_how_long_a_step_may_take_is_learnt_from_those_before() -> None:
    page, clock = Page(), Clock()
    beats = EngineBeats(page, clock)
    beats.ready(measures_steps=True)
    assert page[Sign.READY_AT] == 100.0
    beats.planned(8)
    assert page[Sign.ALLOWED_SECONDS] == math.inf  # nothing is known of the first
    clock.now += 4.0
    beats.turned(8, is_idle=False)
    assert page[Sign.ALLOWED_SECONDS] == 0.0
    beats.planned(1)  # a small step may take as long as a large one took
    assert page[Sign.ALLOWED_SECONDS] == pytest.approx(STEP_MARGIN * 4.0)
    clock.now += 1.0
    beats.turned(9, is_idle=False)
    beats.planned(2048)  # and a large one as many times as long as a small one as it has tokens
    assert page[Sign.ALLOWED_SECONDS] == pytest.approx(STEP_MARGIN * 2048 * 1.0)


def test_one_step_that_was_held_up_is_forgotten() -> None:
    page, clock = Page(), Clock()
    beats = EngineBeats(page, clock)
    beats.ready(measures_steps=True)
    run_step(beats, clock, 1, 100.0, 1)
    for count in range(2, 2000):
        run_step(beats, clock, 1, 0.01, count)
    beats.planned(1)
    assert page[Sign.ALLOWED_SECONDS] == pytest.approx(STEP_MARGIN * 0.01)


def test_where_steps_are_short_nothing_is_measured() -> None:
    page, clock = Page(), Clock()
    beats = EngineBeats(page, clock)
    beats.ready(measures_steps=False)
    run_step(beats, clock, 1, 100.0, 1)
    beats.planned(2048)
    assert page[Sign.ALLOWED_SECONDS] == 0.0


@pytest.mark.parametrize("ahead", [False, True])
def test_the_core_counts_what_it_gets_done_and_tells_of_each_step_before(ahead: bool) -> None:
    planned: list[int] = []
    runner = CheckingRunner(ahead=ahead)
    core = EngineCore(runner, max_num_seqs=4, max_num_batched_tokens=8, on_planned=planned.append)
    core.connect(1)
    params = SamplingParams(max_tokens=3, ignore_eos=True)
    core.add(
        1,
        Submit(
            handle=1,
            request_id="r",
            prompt_token_ids=[1] * 10,
            output_token_ids=[1] * 2,  # those of an engine that died are computed too
            params=params,
            arrival_time=0.0,
        ),
    )
    before = []
    while core.has_work:
        before.append(core.progress)
        core.step()
    assert planned[:2] == [8, 4]
    assert core.progress == 12 + 1  # its tokens, and its end
    assert before == sorted(before)
