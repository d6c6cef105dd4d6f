"""What API workers cost the engine: CPU time of its loop per step, by how many workers are idle.

    python -m bench.idle_workers

One worker has sequences, as many as run at once; it and the others are connected through sockets,
as real ones are, and read what they are sent. Rows alternate, so that other load on the machine
affects them equally; the figures are medians over rounds.
"""

from __future__ import annotations

import argparse
import socket
import statistics
import tempfile
import threading
import time
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path

from bench.report import write_result
from engine.config import EngineConfig
from engine.loop.connections import ConnectionEvent, ConnectionServer, Opened
from engine.loop.core import EngineCore
from engine.messages import Generate, SamplingParams, Submit, encode_frame
from engine.simulation.runner import SimulatedRunner
from pocket import MODEL_DIR

STEPS = 1500
BATCH = 32


@dataclass
class Row:
    idle: int
    every_step: bool
    cpu_us: float  # per step

    def line(self) -> str:
        steps = "every step" if self.every_step else "some steps"
        return f"{self.idle:13} {steps:12} {self.cpu_us:14.1f}"


class Engine:
    """A core and its socket. ``idle`` workers without sequences are connected."""

    def __init__(self, folder: Path, idle: int, *, every_step: bool, ends: ExitStack) -> None:
        config = EngineConfig(model=f"simulated:instant,tokenizer={MODEL_DIR}", max_num_seqs=BATCH)
        runner = SimulatedRunner(config, lambda phase, done, total: None)
        self.core = EngineCore(runner, max_num_seqs=BATCH, max_num_batched_tokens=2048)
        opened = threading.Semaphore(0)

        def on_event(event: ConnectionEvent) -> None:
            if isinstance(event, Opened):
                opened.release()

        path = folder / f"{idle}-{every_step}.sock"
        self.server = ConnectionServer(path, on_event)
        ends.callback(self.server.close)
        for connection in range(1, idle + 2):
            client = ends.enter_context(socket.socket(socket.AF_UNIX))
            client.connect(str(path))
            opened.acquire()
            threading.Thread(target=_read, args=(client,), daemon=True).start()
            self.core.connect(connection)
            if connection > 1 and not every_step:
                self.core.watch(connection, every_step=False)
        self.handles = 0

    def cpu_per_step(self) -> float:
        """Return the CPU seconds that this thread uses for a step with a full batch."""
        for _ in range(BATCH):
            self.handles += 1
            params = SamplingParams(max_tokens=STEPS + 50, ignore_eos=True)
            submit = Submit(
                handle=self.handles,
                request_id="r",
                prompt_token_ids=[1, 2, 3],
                task=Generate(params),
                arrival_time=time.monotonic(),
            )
            self.core.add(1, submit)
        for _ in range(20):
            self._step()
        begin = time.thread_time()
        for _ in range(STEPS):
            self._step()
        seconds = time.thread_time() - begin
        self.core.abort_all()
        self._step()
        return seconds / STEPS

    def _step(self) -> None:
        frames: dict[int, bytes] = {}
        for connection, message in self.core.step().items():
            frame = frames.get(id(message)) or encode_frame(message)
            frames[id(message)] = frame
            self.server.send(connection, frame)


def _read(client: socket.socket) -> None:
    while client.recv(1 << 16):
        pass


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--idle", type=int, nargs="+", default=[0, 1, 7])
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    cases = [(0, False)]
    cases += [(idle, every) for idle in options.idle if idle for every in (True, False)]
    times: dict[tuple[int, bool], list[float]] = {case: [] for case in cases}
    with tempfile.TemporaryDirectory() as folder, ExitStack() as ends:
        engines = {
            case: Engine(Path(folder), case[0], every_step=case[1], ends=ends) for case in cases
        }
        for _ in range(options.rounds):
            for case, engine in engines.items():
                times[case].append(engine.cpu_per_step())
    rows = [Row(*case, statistics.median(found) * 1e6) for case, found in times.items()]
    print(f"{'idle workers':>13} {'told of':12} {'CPU us a step':>14}")
    for row in rows:
        print(row.line())
    write_result("idle_workers", [asdict(row) for row in rows])


if __name__ == "__main__":
    main()
