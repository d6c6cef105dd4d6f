"""Rank 0's runner: like ``ModelRunner``, with all other ranks running the same steps."""

from __future__ import annotations

from collections.abc import Iterator, Set
from contextlib import ExitStack, contextmanager

import msgspec
import torch

from engine.config import DeviceError, EngineConfig, OnProgress
from engine.device.device import choose_device
from engine.ranks.messages import Sample
from engine.ranks.network import listen
from engine.ranks.progress import LoadingProgress
from engine.ranks.ranks import Ranks
from engine.ranks.steps import StepWriter
from engine.run.assembly import load_model_runner
from engine.run.model_runner import ModelRunner
from engine.sharding.collectives import CollectiveError, Group, Meeting
from engine.sharding.shard import Shard
from engine.step.step import DeviceLostError, ModelInfo, StepPlan, StepResult, StepUnderWay


class ParallelRunner:
    """Replaces ``ModelRunner`` (see ``engine.step.runner.Runner``). Before each step the other
    ranks receive its plan; then every rank, including this one, runs it on its own part.

    After a step that raised, another may follow only if all ranks are in the same position: either
    all raised there, or rank 0 raised after the joint part was finished. Otherwise RankFailedError,
    a DeviceLostError, is raised.
    """

    def __init__(self, runner: ModelRunner, ranks: Ranks) -> None:
        self._runner = runner
        self._ranks = ranks
        self._writer = StepWriter()
        self.launch = None if runner.launch is None else self._launch

    @property
    def info(self) -> ModelInfo:
        return self._runner.info

    def execute(self, plan: StepPlan) -> StepResult:
        """Compute the planned tokens and sample where the plan says so."""
        self._tell(plan, ahead=False)
        with self._together():
            return self._runner.execute(plan)

    def forget(self, uid: int) -> None:
        """Drop the state of a finished sequence."""
        self._runner.forget(uid)
        self._writer.forget(uid)

    def _launch(self, plan: StepPlan) -> StepUnderWay:
        assert self._runner.launch is not None
        number = self._tell(plan, ahead=True)
        with self._together():
            return _ParallelStep(self, number, self._runner.launch(plan))

    def _sample(self, number: int, step: StepUnderWay, skipped: Set[int]) -> None:
        self._ranks.sample(Sample(number, sorted(skipped)))
        with self._together():
            step.sample(skipped)

    def _result(self, step: StepUnderWay) -> StepResult:
        """Return a step's result, which only rank 0 reads."""
        self._ranks.work()
        with self._together():
            return step.result()

    def _tell(self, plan: StepPlan, *, ahead: bool) -> int:
        """Send the plan to the other ranks and return the step's number."""
        step = self._writer.write(plan, ahead=ahead, clears_blocks=self._runner.clears_blocks)
        self._ranks.step(step)
        return step.number

    @contextmanager
    def _together(self) -> Iterator[None]:
        """Wrap an operation that all ranks run."""
        try:
            yield
        except CollectiveError as error:
            raise self._ranks.lost(error) from error
        except DeviceLostError:
            raise
        except Exception as error:
            self._ranks.settle(error)
            raise
        self._ranks.rest()


class _ParallelStep:
    """See ``engine.step.step.StepUnderWay``."""

    def __init__(self, runner: ParallelRunner, number: int, step: StepUnderWay) -> None:
        self._runner = runner
        self._number = number
        self._step = step

    def sample(self, skipped: Set[int]) -> None:
        self._runner._sample(self._number, self._step, skipped)

    def result(self) -> StepResult:
        return self._runner._result(self._step)


@contextmanager
def parallel_runner(
    config: EngineConfig, on_progress: OnProgress, ranks: Ranks
) -> Iterator[ParallelRunner]:
    """Load the model on all ranks; ``ranks`` are closed at the end.

    Raises ModelError, DeviceError or RankFailedError when it cannot be served.
    """
    device = choose_device(config.device)
    if device.type == "cuda":
        device = _first_gpu(config)
    config = msgspec.structs.replace(
        config,
        device=device.type,
        ranks_secret=None,  # of no use to a rank, and sent to other hosts
        symmetric_memory=config.symmetric_memory and ranks.hosts is None,
    )
    common = LoadingProgress(ranks.size, on_progress)

    def own_progress(phase: str, done: int, total: int) -> None:
        ranks.check()
        common.update(0, phase, done, total)

    with ExitStack() as stack:
        stack.enter_context(ranks)
        stack.callback(common.finish)
        try:
            meeting = _meeting(config, ranks)
            ranks.begin(config, common.update, store_port=meeting.port)
            group = Group(
                Shard(0, ranks.size),
                device,
                meeting,
                symmetric_memory=config.symmetric_memory,
            )
            stack.callback(group.close)
            ranks.count_calls_by(lambda: group.calls)
            runner = load_model_runner(config, own_progress, group)
            ranks.await_loaded()
        except CollectiveError as error:
            raise ranks.lost(error) from error
        common.finish()
        yield ParallelRunner(runner, ranks)


def _meeting(config: EngineConfig, ranks: Ranks) -> Meeting:
    hosts = ranks.hosts
    if hosts is None:
        return Meeting.on_one_host(ranks.store)
    listener = listen(config.ranks_host, 0)
    return Meeting.led_here(listener, hosts.address, hosts.interface)


def _first_gpu(config: EngineConfig) -> torch.device:
    size, visible = config.ranks_per_host, torch.cuda.device_count()
    if visible < size:
        hosts = config.tensor_parallel_hosts
        of_hosts = "" if hosts == 1 else f" on {hosts} hosts"
        raise DeviceError(
            f"--tensor-parallel-size {config.tensor_parallel_size}{of_hosts}: torch sees {visible} "
            f"CUDA device{'' if visible == 1 else 's'} here; give each rank one, or lower the size"
        )
    torch.cuda.set_device(0)
    return torch.device("cuda", 0)
