"""What the engine's core makes of faults in its runner."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from engine.errors import UNTOLD
from engine.faults.page import FaultPage
from engine.faults.table import parse_fault
from engine.injection.runner import with_faults
from engine.loop.core import EngineCore
from engine.messages import FinishReason
from tests.engine.checking_runner import CheckingRunner, continue_alone
from tests.engine.loop.listening import ALICE, BOB, Listener, submit


def core_with(folder: Path, *faults: str, ahead: bool = False) -> tuple[EngineCore, FaultPage]:
    page = FaultPage.create(folder / "faults", [parse_fault(text) for text in faults])
    runner = with_faults(CheckingRunner(vocab_size=1000, ahead=ahead), page)
    core = EngineCore(runner, max_num_seqs=8, max_num_batched_tokens=64)
    core.connect(ALICE)
    core.connect(BOB)
    return core, page


def test_a_runner_without_engine_faults_is_left_as_it_is(tmp_path: Path) -> None:
    page = FaultPage.create(tmp_path / "faults", [parse_fault("store_down")])
    runner = CheckingRunner()
    assert with_faults(runner, page) is runner


@pytest.mark.parametrize("ahead", [False, True])
def test_only_the_sequence_that_has_no_memory_fails(tmp_path: Path, ahead: bool) -> None:
    core, page = core_with(tmp_path, "step_oom:max_tokens=9:output=2", ahead=ahead)
    core.add(ALICE, submit(1, [1, 2, 3], max_tokens=6))
    core.add(BOB, submit(1, [4, 5], max_tokens=9))
    heard = Listener(core)
    assert heard.tokens[ALICE, 1] == continue_alone([1, 2, 3], 6, 1000)
    assert heard.finished[ALICE, 1].reason is FinishReason.LENGTH
    assert heard.finished[BOB, 1].reason is FinishReason.ERROR
    assert heard.finished[BOB, 1].error == UNTOLD
    assert page.counts("step_oom").injected == 1
    core.add(BOB, submit(2, [4, 5], max_tokens=9))
    assert Listener(core).tokens[BOB, 2] == continue_alone([4, 5], 9, 1000)
    assert core.stats().kv_blocks_active == 0


def test_a_slow_step_takes_longer_and_changes_nothing(tmp_path: Path) -> None:
    core, page = core_with(tmp_path, "slow_step:after=1:times=2:seconds=0.05")
    core.add(ALICE, submit(1, [1, 2, 3], max_tokens=6))
    begin = time.monotonic()
    heard = Listener(core)
    assert time.monotonic() - begin >= 0.1
    assert heard.tokens[ALICE, 1] == continue_alone([1, 2, 3], 6, 1000)
    assert page.counts("slow_step").injected == 2


def test_steps_without_a_sequence_that_it_may_hit_do_not_count(tmp_path: Path) -> None:
    core, page = core_with(tmp_path, "step_oom:max_tokens=9")
    core.add(ALICE, submit(1, [1, 2, 3], max_tokens=6))
    page.ask("step_oom")
    assert Listener(core).finished[ALICE, 1].reason is FinishReason.LENGTH
    assert page.counts("step_oom").injected == 0
