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
import functools
import itertools
import json
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import grpc
from websockets.sync.client import connect

from pocket import MODEL_DIR
from service.grpc.status import STATUS_CODES
from tests.service.running import Process, RunningService, free_port

# Before the path of a request that is a WebSocket message.
WEBSOCKET = "ws:"
# Before the path of a gRPC method.
GRPC = "grpc:"
_ENDS = ("error", "response.completed", "response.incomplete", "response.failed")
_UNBOUNDED = [("grpc.max_receive_message_length", -1), ("grpc.use_local_subchannel_pool", 1)]
_ENDLESS = "/grpc.health.v1.Health/Watch"
_STATUSES = {code: status for status, code in reversed(STATUS_CODES.items())} | {
    grpc.StatusCode.UNKNOWN: 500,
}
_AT_ONCE = 4
# Some request more tokens than a test can wait for.
_PATIENCE_SECONDS = 10
_TOGETHER = 24
_TIMES = 4
MOST_HELD_SECONDS = 0.05
MOST_GROWTH_MIB = 256
_NUMBERS = re.compile(r"[0-9a-f]{16,}|[0-9]+")
T = TypeVar("T")
_HOLDS = "quire_event_loop_hold_seconds_bucket{le="
# Longer contexts leave more work undone before a prompt is refused.
SIMULATION = f"simulated:instant,context=131072,output=8,tokenizer={MODEL_DIR}"


@dataclass(frozen=True)
class Ask:
    """A request: a body to be sent as JSON, or bytes as they are; ``path`` may begin with WEBSOCKET
    or GRPC."""

    path: str
    body: Any = b""
    method: str = "POST"

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

    @property
    def is_lawful(self) -> bool:
        try:
            self.check()
        except AssertionError:
            return False
        return True

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
    """A worker with the tokenizer and template of ``model``, in front of a simulated one or, where
    ``simulation`` is None, of this one as it is."""

    def __init__(
        self,
        folder: Path,
        *worker_args: str,
        simulation: str | None = SIMULATION,
        model: Path = MODEL_DIR,
    ) -> None:
        store = f"sqlite:///{folder}/store.sqlite3"
        self._grpc_port = free_port()
        ports = ("--grpc-port", str(self._grpc_port))
        super().__init__(model, folder, worker_args=("--store-url", store, *ports, *worker_args))
        self._simulation = simulation

    def start_engine(self) -> Process:
        if self._simulation is None:
            return super().start_engine()
        self.engine = Process(
            self.folder / "engine.log",
            *("-m", "engine", "--model", self._simulation, "--socket", str(self.engine_socket)),
        )
        self._started.append(self.engine)
        return self.engine

    def cost_of(self, asks: list[Ask], *, at_once: int | None = None) -> Cost:
        """Of these requests, sent all at once or so many at a time."""
        bodies = [(ask.method, ask.path, ask.data) for ask in asks]

        def send() -> list[str]:
            with concurrent.futures.ThreadPoolExecutor(at_once or len(bodies)) as pool:
                return list(pool.map(lambda body: self._answer(*body), bodies))

        return self.cost_while(send)

    def lawful_cost_of(self, asks: list[Ask]) -> Cost:
        """The same, measured again where it was too high, and checked: CPU seconds grow when others
        use the caches, and when the machine gives memory slowly. What is slow stays slow."""
        for _ in range(_TIMES):
            cost = self.cost_of(asks)
            if cost.is_lawful:
                break
        cost.check()
        return cost

    def cost_while(self, work: Callable[[], list[str]]) -> Cost:
        """Of what ``work`` does, which returns ``Cost.answers``."""
        before, memory = self._holds(), self._memory("VmRSS")
        self._forget_peak()
        answers = work()
        after = self._holds()
        held = max((le for le in after if after[le] > before.get(le, 0)), default=0.0)
        return Cost(
            answers,
            held,
            self._memory("VmHWM") - memory,
            self._memory("VmRSS") - memory,
        )

    def hold_to_the_law(
        self, named: Iterable[tuple[str, Ask]], *, at_once: int = _AT_ONCE
    ) -> dict[str, str]:
        """How each of many requests was answered, none of which may cost too much; where several
        together do, each is sent alone. Prints the worst of them; ``pytest -rP`` shows it.

        Raises AssertionError.
        """
        broken: dict[str, Cost] = {}
        answers: dict[str, str] = {}
        worst = Cost([], 0, 0, 0)
        for batch in batched(named, _TOGETHER):
            cost = self.cost_of([ask for _, ask in batch], at_once=at_once)
            answers |= zip((name for name, _ in batch), cost.answers, strict=True)
            if not cost.is_lawful:
                alone = {name: self.cost_of([ask]) for name, ask in batch}
                broken |= {name: cost for name, cost in alone.items() if not cost.is_lawful}
                cost = functools.reduce(Cost.worse, alone.values())
            worst = worst.worse(cost)
        print(f"{len(answers)} requests, at most {worst.figures()}")
        assert not broken
        return answers

    def _answer(self, method: str, path: str, data: bytes) -> str:
        if path.startswith(WEBSOCKET):
            return self._told(path.removeprefix(WEBSOCKET), data)
        if path.startswith(GRPC):
            return self._called(path.removeprefix(GRPC), data)
        try:
            status, _, reply = self.exchange(method, path, data or None, timeout=_PATIENCE_SECONDS)
        except TimeoutError:  # this client leaves; what its request cost until then is measured
            return answer(200, b"")
        return answer(status, reply)

    def _told(self, path: str, data: bytes) -> str:
        with connect(f"ws://127.0.0.1:{self.port}{path}", max_size=None) as connection:
            connection.send(data, text=True)
            while True:
                told = connection.recv(timeout=60)
                event = json.loads(told)
                if event["type"] in _ENDS:
                    return answer(int(event.get("status", 200)), str(told).encode())

    def _called(self, path: str, data: bytes) -> str:
        with grpc.insecure_channel(f"127.0.0.1:{self._grpc_port}", options=_UNBOUNDED) as channel:
            call = channel.stream_stream(path)(iter([data]), timeout=60)
            try:
                for _ in call:
                    if path == _ENDLESS:
                        call.cancel()
            except grpc.RpcError as error:
                if path == _ENDLESS and error.code() is grpc.StatusCode.CANCELLED:
                    return answer(200, b"")
                return answer(_STATUSES[error.code()], (error.details() or "").encode())
        return answer(200, b"")

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
