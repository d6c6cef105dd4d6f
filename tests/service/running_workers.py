"""Several API workers on one engine, each on its own port, so that a test chooses on which
worker a connection lands."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pocket import MODEL_DIR
from tests.service.running import Process, RunningService, until

# A token each 20 ms: long enough to be looked at while it runs.
SLOW = "simulated:fast,step=20ms"


class OneWorker(RunningService):
    """Of several: the engine is the first one's."""

    def __init__(self, folder: Path, socket: Path, arguments: tuple[str, ...]) -> None:
        super().__init__(MODEL_DIR, folder, worker_args=arguments)
        self.engine_socket = socket


class RunningWorkers:
    """``with RunningWorkers(2, folder) as workers``: ``workers[0].get(…)``."""

    def __init__(
        self,
        count: int,
        folder: Path,
        *,
        model: str = SLOW,
        worker_args: tuple[str, ...] = (),
        args_of: Callable[[int], tuple[str, ...]] = lambda _: (),
    ) -> None:
        """``args_of``: more arguments of one worker, by its number."""
        self._folder = folder
        self._model = model
        self._ends = contextlib.ExitStack()
        # A unix socket's path must be short.
        self.peer_dir = Path(self._ends.enter_context(tempfile.TemporaryDirectory(prefix="q-")))
        # As the supervisor writes it.
        (self.peer_dir / "signing.key").write_text("the key of a test's workers")
        self._workers = [
            OneWorker(
                self._made(folder / f"worker-{number}"),
                self.peer_dir / "engine.sock",
                (
                    *(f"--worker-index={number}", f"--api-workers={count}"),
                    f"--peer-dir={self.peer_dir}",
                    f"--store-url=sqlite:///{folder}/store.sqlite3",
                    "--drain-timeout=1",
                    *worker_args,
                    *args_of(number),
                ),
            )
            for number in range(count)
        ]

    @staticmethod
    def _made(folder: Path) -> Path:
        folder.mkdir(parents=True)
        return folder

    def __getitem__(self, number: int) -> OneWorker:
        return self._workers[number]

    def __len__(self) -> int:
        return len(self._workers)

    def __iter__(self) -> Any:
        return iter(self._workers)

    def __enter__(self) -> RunningWorkers:
        try:
            self.engine = Process(
                self._folder / "engine.log",
                *("-m", "engine", "--model", f"{self._model},tokenizer={MODEL_DIR}"),
                *("--socket", str(self.peer_dir / "engine.sock")),
            )
            self._ends.callback(self.engine.end)
            for worker in self._workers:
                worker.start_worker()
                self._ends.callback(worker.__exit__)
            for worker in self._workers:
                worker.wait_ready(180)
            for number, worker in enumerate(self._workers):
                socket = self.peer_dir / f"api-{number}.sock"
                until(socket.exists, 10, f"{socket}, of {worker.url}")
        except BaseException:
            self._ends.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._ends.close()

    def forwarded_to(self, number: int) -> int:
        """How many connections from other workers a worker has."""
        entries = Path("/proc/net/unix").read_text().splitlines()
        path = f"{self.peer_dir}/api-{number}.sock"
        return sum(path in entry for entry in entries) - 1  # the listener

    def descriptors(self, number: int) -> int:
        """How many descriptors a worker has open."""
        return len(os.listdir(f"/proc/{self._workers[number].worker.popen.pid}/fd"))
