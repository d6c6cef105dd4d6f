"""Ranks fail together and say why; what is one request's fault stays with it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch

import engine.ranks.ranks
import engine.run.assembly
from engine.architecture.errors import ConfigError
from engine.errors import UNTOLD
from engine.loop.errors import EngineDeadError
from engine.messages import (
    Fatal,
    FinishReason,
    Heartbeat,
    Loading,
    Ready,
    SamplingParams,
    StepOutputs,
)
from engine.ranks.ranks import RankFailedError, Ranks
from engine.ranks.watch import RankLimits
from engine.step.step import StepPlan
from tests.e2e.quire_server import until
from tests.engine.driving import Engine
from tests.engine.engine_client import EngineClient, running_engine
from tests.engine.loop.test_process import FOREVER, ROOT
from tests.engine.ranks import flawed_rank
from tests.engine.ranks.flawed_rank import AFTERWARDS, BEFORE, HANGS, MIDWAY, FlawedRunner
from tests.engine.ranks.processes import PATIENT, open_descriptors, parallel, ranks_of, wait_gone
from tests.engine.tiny_models import VARIANTS, save_model

GREEDY = SamplingParams(max_tokens=12, temperature=0.0)
FLAWED = flawed_rank.__name__


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.set_num_threads(1)
    directory = tmp_path_factory.mktemp("model")
    save_model(VARIANTS["qwen3"], directory)
    return directory


def run_on_ranks(model: Path, prompt_ids: list[int], **options: Any) -> list[int]:
    """Generate without end. Returns the other ranks' process ids if that ends after all."""
    params = SamplingParams(max_tokens=FOREVER, temperature=0.0)
    with parallel(model, 2, **options) as (runner, ranks):
        STARTED[:] = ranks.pids
        Engine(model, runner=runner).generate([prompt_ids], params)
    return STARTED


STARTED: list[int] = []  # the other ranks' process ids in ``run_on_ranks``


def load_on_ranks(model: Path, size: int, **options: Any) -> None:
    with parallel(model, size, **options):
        pass


_OF_RANK_0 = 105  # it goes wrong when the step is over, and no other rank does


class RankZero(FlawedRunner):
    """Rank 0 with all the failures of the others, and one that only it has."""

    @contextmanager
    def _troubled(self, plan: StepPlan) -> Iterator[None]:
        with super()._troubled(plan):
            yield
        if any(item.sequence.token_ids[0] == _OF_RANK_0 for item in plan.scheduled):
            raise ValueError("flawed sampling")


# --- in a step ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("trouble", "said"),
    [
        pytest.param(BEFORE, "before the step", marks=pytest.mark.slow),
        (MIDWAY, "midway"),
        pytest.param(AFTERWARDS, "after the step", marks=pytest.mark.slow),
    ],
)
def test_a_rank_that_fails_alone_ends_all_and_is_named(
    model: Path, trouble: int, said: str, caplog: pytest.LogCaptureFixture
) -> None:
    cause = f"rank 1 failed: ValueError: flawed {said}"
    with pytest.raises(EngineDeadError, match=cause):
        run_on_ranks(model, [trouble, 1, 2], module=FLAWED)
    wait_gone(*STARTED)
    errors = [r.message for r in caplog.records if r.levelname == "ERROR"]
    assert errors == [f"{cause}; all ranks end"]


@pytest.mark.parametrize("ahead", [False, True], ids=["", "one step ahead"])
def test_requests_at_which_all_ranks_fail_alike_fail_alone(
    model: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    ahead: bool,
) -> None:
    """Before the step's exchanges, between them and after them; and what only rank 0 does after
    them, such as sampling."""
    monkeypatch.setattr(engine.run.assembly, "ModelRunner", RankZero)
    prompts = [[1, 2, 3], [BEFORE, 1], [MIDWAY, 1], [AFTERWARDS, 1], [_OF_RANK_0, 1], [4] * 20]
    expected = Engine(model, cpu_path="torch").generate(prompts, GREEDY)
    with parallel(model, 2, module=FLAWED, async_scheduling=ahead) as (runner, _):
        driver = Engine(model, runner=runner)
        outputs = driver.generate(prompts, GREEDY)
        later = driver.generate(prompts[-1:], GREEDY)
    for output in outputs[1:-1]:
        assert output.finished is not None
        assert output.finished.reason is FinishReason.ERROR
        assert output.finished.error == UNTOLD
    assert "flawed" in caplog.text  # the log has what clients must not see
    assert [outputs[i].token_ids for i in (0, -1)] == [expected[i].token_ids for i in (0, -1)]
    assert later[0].token_ids == expected[-1].token_ids


def test_an_error_of_rank_0_while_the_others_compute_ends_all(
    model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine.run.assembly, "ModelRunner", FlawedRunner)
    limits = RankLimits(settle=2.0, exit=60.0)
    said = "rank 0 failed in a step, and the others did not: ValueError: flawed midway"
    with pytest.raises(EngineDeadError, match=said):
        run_on_ranks(model, [MIDWAY, 1, 2], limits=limits)
    wait_gone(*STARTED)


def test_a_rank_that_hangs_in_a_step_is_named(model: Path) -> None:
    limits = RankLimits(silence=120.0, stall=4.0, exit=60.0)
    with pytest.raises(EngineDeadError, match=r"rank 1 hangs in step 1, for \d s"):
        run_on_ranks(model, [HANGS, 1, 2], module=FLAWED, limits=limits)
    wait_gone(*STARTED)


def test_a_hanging_rank_is_noticed_even_when_there_is_nothing_to_do(
    model: Path,
) -> None:
    with parallel(model, 2, limits=RankLimits(silence=5.0, stall=120.0, exit=60.0)) as (
        runner,
        ranks,
    ):
        assert len(Engine(model, runner=runner).generate([[1, 2]], GREEDY)[0].token_ids) == 12
        os.kill(ranks.pids[0], signal.SIGSTOP)
        with pytest.raises(RankFailedError, match=r"no sign of life from rank 1 for \d s"):
            check_for(ranks, seconds=30)
    wait_gone(*ranks.pids)


def check_for(ranks: Ranks, seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        ranks.check()
        time.sleep(0.05)


def test_ranks_that_are_closed_as_they_fail_leave_this_process_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The thread that noticed the failure is still at it when rank 0 has given up."""
    ranks = Ranks(2, limits=PATIENT)
    entered = threading.Event()

    def tell_when_closing(*_: object) -> None:
        entered.set()
        until(lambda: ranks._is_closing, 30, "rank 0 to give up")

    monkeypatch.setattr(engine.ranks.ranks._log, "error", tell_when_closing)
    os.kill(ranks.pids[0], signal.SIGKILL)
    assert entered.wait(30)
    with pytest.raises(RankFailedError):
        ranks.check()
    ranks.close()
    timers = [thread for thread in threading.enumerate() if isinstance(thread, threading.Timer)]
    until(lambda: not any(timer.is_alive() for timer in timers), 5, "no way to end it hard")


def test_ranks_that_are_closed_leave_nothing(model: Path) -> None:
    before = open_descriptors()
    with parallel(model, 2) as (_, ranks):
        directory = ranks.store.parent
        assert directory.exists()
    assert not directory.exists()
    wait_gone(*ranks.pids, seconds=0.1)
    assert open_descriptors() <= before  # what else was open may have been closed meanwhile


# --- while loading ------------------------------------------------------------------------------


def test_sizes_that_cannot_be_divided_are_reported_by_rank_0(
    model: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(ConfigError, match="its 4 attention heads cannot be shared evenly"):
        load_on_ranks(model, 3)
    assert not [record for record in caplog.records if record.levelname == "ERROR"]


def test_a_rank_that_dies_before_it_has_begun_is_named(model: Path) -> None:
    with pytest.raises(RankFailedError, match="rank 1 ended with status 1"):
        load_on_ranks(model, 2, module="engine.no_such_module")


@pytest.mark.parametrize("sees", [0, 1])
def test_more_ranks_than_gpus_are_refused_at_the_start(
    sees: int, monkeypatch: pytest.MonkeyPatch, model: Path
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: sees > 0)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: sees)
    said = "no CUDA device" if not sees else "--tensor-parallel-size 2: torch sees 1 CUDA device "
    with pytest.raises(ValueError, match=said), parallel(model, 2, device="cuda"):
        pass


# --- as a process -------------------------------------------------------------------------------


def engine_argv(model: Path, path: Path, *options: str) -> list[str]:
    return [sys.executable, "-m", "engine", "--model", str(model), "--socket", str(path),
            "--device", "cpu", "--threads", "1", "--tensor-parallel-size", "2",
            "--log-format", "json", *options]  # fmt: skip


@contextmanager
def engine_process(
    model: Path, path: Path
) -> Iterator[tuple[subprocess.Popen[bytes], EngineClient, list[int]]]:
    with running_engine(engine_argv(model, path), path) as process:
        client = EngineClient(path)
        ready = client.wait(Ready)
        assert ready.tensor_parallel_size == 2
        ranks = ranks_of(process.pid)
        assert len(ranks) == 1
        yield process, client, ranks


@pytest.mark.parametrize("busy", [True, False], ids=["in mid-stream", "idle"])
def test_a_killed_rank_ends_the_engine_soon_and_its_clients_get_the_reason(
    model: Path, tmp_path: Path, busy: bool, capfd: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "engine.sock"
    with engine_process(model, path) as (process, client, ranks):
        if busy:
            client.submit(1, [1, 2, 3], FOREVER)
            client.wait(StepOutputs, lambda step: bool(step.handles))
        else:
            client.wait(Heartbeat)
        os.kill(ranks[0], signal.SIGKILL)
        fatal = client.wait(Fatal)
        assert fatal.error == "EngineDeadError: rank 1 was killed by SIGKILL"
        assert process.wait(10) == 1
        wait_gone(*ranks)
    lines = [json.loads(line) for line in capfd.readouterr().err.splitlines() if line[:1] == "{"]
    told = [line["event"] for line in lines if "rank 1" in line["event"] and "ts" in line]
    assert told[-1] == "rank 1 was killed by SIGKILL; all ranks end"
    assert not path.exists()


def test_sigterm_ends_engine_and_ranks_with_status_0(model: Path, tmp_path: Path) -> None:
    with engine_process(model, tmp_path / "engine.sock") as (process, client, ranks):
        client.submit(1, [1, 2, 3], FOREVER)
        client.wait(StepOutputs, lambda step: bool(step.handles))
        # As the supervisor and a terminal do, which signal the whole group.
        for pid in (*ranks, process.pid):
            os.kill(pid, signal.SIGTERM)
        client.wait_closed()
        assert client.finished[1].reason is FinishReason.ABORT
        assert process.wait(10) == 0
        wait_gone(*ranks)


def test_sigterm_while_loading_leaves_no_rank(model: Path, tmp_path: Path) -> None:
    path = tmp_path / "engine.sock"
    with running_engine(engine_argv(model, path), path) as process:
        EngineClient(path).wait(Loading)
        ranks = ranks_of(process.pid)
        process.terminate()
        assert process.wait(30) == 0
        wait_gone(*ranks)


def test_no_rank_outlives_a_killed_engine(model: Path, tmp_path: Path) -> None:
    with engine_process(model, tmp_path / "engine.sock") as (process, client, ranks):
        client.submit(1, [1, 2, 3], FOREVER)
        client.wait(StepOutputs, lambda step: bool(step.handles))
        # Not even one that can do nothing about it itself.
        os.kill(ranks[0], signal.SIGSTOP)
        process.kill()
        process.wait()
        wait_gone(*ranks, seconds=5)


@pytest.mark.slow
def test_a_model_that_cannot_be_divided_is_reported_by_the_process(
    model: Path, tmp_path: Path
) -> None:
    argv = engine_argv(model, tmp_path / "engine.sock", "--tensor-parallel-size", "3")
    run = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    assert run.returncode == 1
    assert "--tensor-parallel-size 3 does not divide this model" in run.stderr
    assert "is process" not in run.stderr  # no rank was started
    assert "all ranks end" not in run.stderr


def test_ranks_are_a_context_that_ends_what_never_began() -> None:
    with Ranks(3) as ranks:
        pids = ranks.pids
        assert len(pids) == 2
    wait_gone(*pids, seconds=0.1)
