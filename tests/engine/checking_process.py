"""``python -m tests.engine.checking_process SOCKET``: the engine's process with the checking model.

Everything is real but the forward pass: the socket, the loop, the scheduler and the blocks.
"""

from __future__ import annotations

import argparse
import logging
import os
import signal
import sys
import time
from pathlib import Path

from engine.architecture.errors import WeightsError
from engine.config import EngineConfig, OnProgress
from engine.loop.process import EngineProcess
from engine.step.runner import Runner
from engine.step.step import StepPlan, StepResult
from tests.engine.checking_runner import CheckingRunner


class PacedRunner(CheckingRunner):
    """Takes a given time for each step, as a model would; breaks or dies when asked to."""

    step_seconds = 0.0

    def execute(self, plan: StepPlan) -> StepResult:
        self.plans.clear()
        time.sleep(self.step_seconds)
        asked = {item.sequence.request_id for item in plan.scheduled}
        if "kill" in asked:
            os.kill(os.getpid(), signal.SIGKILL)
        self.broken = self.broken or "break" in asked
        return super().execute(plan)


def load_for(seconds: float) -> None:
    """In many small parts, as a model loads: a signal that arrives just before one long
    ``time.sleep`` is handled only after it."""
    deadline = time.monotonic() + seconds
    while (left := deadline - time.monotonic()) > 0:
        time.sleep(min(left, 0.05))


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("socket", type=Path)
    parser.add_argument("--step-seconds", type=float, default=0.0)
    parser.add_argument("--wait-seconds", type=float, default=0.0, help="for others, before")
    parser.add_argument("--load-seconds", type=float, default=0.0)
    parser.add_argument("--cleanup-seconds", type=float, default=0.0)
    parser.add_argument("--fail-to-load", action="store_true")
    options = parser.parse_args(argv)
    logging.basicConfig(level=logging.INFO, stream=sys.stderr)

    def load(_config: EngineConfig, progress: OnProgress) -> Runner:
        if options.wait_seconds:
            time.sleep(options.wait_seconds)
            process.begin_to_load()
        try:
            progress("weights", 1, 2)
            load_for(options.load_seconds)
        finally:
            time.sleep(options.cleanup_seconds)
        if options.fail_to_load:
            raise WeightsError("no weights here")
        runner = PacedRunner(num_kv_blocks=2048, block_size=8, max_model_len=4096, vocab_size=1000)
        runner.step_seconds = options.step_seconds
        return runner

    config = EngineConfig(model="checking", max_num_seqs=8, max_num_batched_tokens=256)
    process = EngineProcess(config, options.socket, load)
    return process.run()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
