"""One server, and what requests cost it: how long its event loop is held, and how much its worker
grows.

    with LawServer(folder) as server:
        cost = server.cost_of([Ask("/v1/chat/completions", {...})] * 6)
        cost.check()

The loop's holds are CPU seconds of the loop's own thread, as the worker measures them itself
(``quire_event_loop_hold_seconds``): no clock on a busy machine comes into it.
"""

from __future__ import annotations

import concurrent.futures
import itertools
import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from websockets.sync.client import connect

from pocket import MODEL_DIR
from tests.service.running import Process, RunningService

# Before the path of a request that is a WebSocket message.
WEBSOCKET = "ws:"
_ENDS = ("error", "response.completed", "response.incomplete", "response.failed")
MOST_HELD_SECONDS = 0.05
MOST_GROWTH_MIB = 256
_NUMBERS = re.compile(r"[0-9a-f]{16,}|[0-9]+")
T = TypeVar("T")
_HOLDS = "quire_event_loop_hold_seconds_bucket{le="
# Longer contexts leave more work undone before a prompt is refused.
SIMULATION = f"simulated:instant,context=131072,output=8,tokenizer={MODEL_DIR}"


@dataclass(frozen=True)
class Ask:
    """A request: a body to be sent as JSON, or bytes as they are."""

    path: str
    body: Any

    @property
    def data(self) -> bytes:
        if isinstance(self.body, bytes):
            return self.body
        return json.dumps(self.body, separators=(",", ":")).encode()


@dataclass(frozen=True)
class Cost:
    """``answers``: the statuses, with what was said of each error; ``held``: an upper bound of the
    loop's longest hold, in CPU seconds; ``growth``: of the worker at its largest, and ``kept``
    afterwards, in MiB."""

    answers: list[str]
    held: float
    growth: float
    kept: float

    @property
    def statuses(self) -> list[int]:
        return [int(answer[:3]) for answer in self.answers]

    def check(self) -> None:
        assert all(status < 500 for status in self.statuses), self
        assert self.held <= MOST_HELD_SECONDS, self
        assert self.growth <= MOST_GROWTH_MIB, self
        assert self.kept <= MOST_GROWTH_MIB / 2, self

    def worse(self, other: Cost) -> Cost:
        """The larger of each figure."""
        return Cost(
            self.answers + other.answers,
            max(self.held, other.held),
            max(self.growth, other.growth),
            max(self.kept, other.kept),
        )

    def figures(self) -> str:
        return (
            f"held {1000 * self.held:g} ms, grew {self.growth:.0f} MiB, kept {self.kept:.0f} MiB, "
            f"answered {sorted(set(self.statuses))}"
        )


def answer(status: int, reply: bytes) -> str:
    """What ``Cost.answers`` says of one reply: the same for the same error."""
    if status < 400:
        return f"{status}"
    return f"{status} {_NUMBERS.sub('#', reply[:400].decode(errors='replace'))}"


def batched(many: Iterable[T], size: int) -> Iterator[tuple[T, ...]]:
    """As Python 3.12's."""
    rest = iter(many)
    while batch := tuple(itertools.islice(rest, size)):
        yield batch


class LawServer(RunningService):
    """A worker in front of a simulated model with pocket's tokenizer and template."""

    def __init__(self, folder: Path, *worker_args: str, simulation: str = SIMULATION) -> None:
        store = f"sqlite:///{folder}/store.sqlite3"
        super().__init__(MODEL_DIR, folder, worker_args=("--store-url", store, *worker_args))
        self._simulation = simulation

    def start_engine(self) -> Process:
        self.engine = Process(
            self.folder / "engine.log",
            *("-m", "engine", "--model", self._simulation, "--socket", str(self.engine_socket)),
        )
        self._started.append(self.engine)
        return self.engine

    def cost_of(self, asks: list[Ask], *, at_once: int | None = None) -> Cost:
        """Of these requests, sent all at once or so many at a time."""
        bodies = [(ask.path, ask.data) for ask in asks]
        before, memory = self._holds(), self._memory("VmRSS")
        self._forget_peak()
        with concurrent.futures.ThreadPoolExecutor(at_once or len(bodies)) as pool:
            answers = list(pool.map(lambda ask: self._answer(*ask), bodies))
        after = self._holds()
        held = max((le for le in after if after[le] > before.get(le, 0)), default=0.0)
        return Cost(
            answers,
            held,
            self._memory("VmHWM") - memory,
            self._memory("VmRSS") - memory,
        )

    def _answer(self, path: str, data: bytes) -> str:
        if not path.startswith(WEBSOCKET):
            status, _, reply = self.exchange("POST", path, data)
            return answer(status, reply)
        url = f"ws://127.0.0.1:{self.port}{path.removeprefix(WEBSOCKET)}"
        with connect(url, max_size=None) as connection:
            connection.send(data, text=True)
            while True:
                told = connection.recv(timeout=60)
                event = json.loads(told)
                if event["type"] in _ENDS:
                    return answer(int(event.get("status", 200)), str(told).encode())

    def _holds(self) -> dict[float, float]:
        """How many holds ended in each bucket, by its upper bound in seconds."""
        found: dict[float, float] = {}
        below = 0.0
        for line in self.get("/metrics")[1].decode().splitlines():
            if line.startswith(_HOLDS):
                bound, count = line.removeprefix(_HOLDS).split("} ")
                found[float(bound.strip('"'))] = float(count) - below
                below = float(count)
        assert found, "the worker measures no holds"
        return found

    def _memory(self, field: str) -> float:
        for line in Path(f"/proc/{self.worker.popen.pid}/status").read_text().splitlines():
            if line.startswith(f"{field}:"):
                return int(line.split()[1]) / 1024
        raise LookupError(field)

    def _forget_peak(self) -> None:
        Path(f"/proc/{self.worker.popen.pid}/clear_refs").write_text("5")
