"""What workers know about their supervisor and each other: whether it is alive, which workers and
engines run, which worker leads, and how often each engine died."""

from __future__ import annotations

import math
import os
import time
from pathlib import Path

from engine.beats import SharedNumbers
from service.hub.units import in_units
from service.supervision.restarts import FAILING_DEATHS, HOPELESS_DEATHS

# Without a beat. A dead supervisor restarts no child and kills none that hangs.
SUPERVISOR_TIMEOUT_SECONDS = 60.0

# The page's numbers: four of the server, then one for each worker and three for each engine.
_BEATS, _LEAD, _DOWNLOADED, _DOWNLOAD_TOTAL, _FIRST = range(5)
_RUNS, _DEATHS, _NEXT_START, _ENGINE_NUMBERS = range(4)


class SupervisorPage:
    """Numbers in shared memory that the supervisor writes and workers read, see
    ``engine.beats.SharedNumbers``."""

    def __init__(
        self,
        path: Path | None = None,
        *,
        workers: int = 1,
        engines: int = 1,
        create: bool = False,
    ) -> None:
        self.workers = workers
        self.engines = engines
        count = _FIRST + workers + _ENGINE_NUMBERS * engines
        self._numbers = SharedNumbers(count, path, create=create)

    @property
    def beat_at(self) -> float:
        """When the supervisor last ran, in monotonic seconds."""
        return self._numbers[_BEATS]

    def beat(self, now: float) -> None:
        self._numbers[_BEATS] = now

    @property
    def lead(self) -> int:
        """The index of the worker that does what only one may do."""
        return int(self._numbers[_LEAD])

    @lead.setter
    def lead(self, index: int) -> None:
        self._numbers[_LEAD] = index

    @property
    def download(self) -> tuple[int, int] | None:
        """The bytes of the model that are there and those of all, while it is downloaded; 0 of 0
        until they are known. None: there is no download."""
        total = self._numbers[_DOWNLOAD_TOTAL]
        if total == 0:
            return None
        return int(self._numbers[_DOWNLOADED]), max(int(total), 0)

    @download.setter
    def download(self, bytes_of_total: tuple[int, int] | None) -> None:
        done, total = bytes_of_total or (0, 0)
        self._numbers[_DOWNLOADED] = done
        self._numbers[_DOWNLOAD_TOTAL] = 0 if bytes_of_total is None else (total or -1)

    # --- workers and engines, by index ----------------------------------------------------------

    def worker_pid(self, index: int) -> int:
        """Return the process id, of one that may still be starting; 0: there is none."""
        return int(self._numbers[_FIRST + index])

    def set_worker(self, index: int, pid: int | None) -> None:
        self._numbers[_FIRST + index] = pid or 0

    def _engine(self, index: int) -> int:
        return _FIRST + self.workers + _ENGINE_NUMBERS * index

    def engine_runs(self, index: int) -> bool:
        return self._numbers[self._engine(index) + _RUNS] > 0

    def fruitless_deaths(self, index: int) -> int:
        """How often the engine died in a row, each time without progress."""
        return int(self._numbers[self._engine(index) + _DEATHS])

    def next_start_at(self, index: int) -> float:
        """When a dead engine is started, in monotonic seconds; 0: it is running."""
        return self._numbers[self._engine(index) + _NEXT_START]

    def set_engine(
        self, index: int, *, runs: bool = True, deaths: int = 0, next_start_at: float = 0.0
    ) -> None:
        first = self._engine(index)
        self._numbers[first + _RUNS] = runs
        self._numbers[first + _DEATHS] = deaths
        self._numbers[first + _NEXT_START] = next_start_at


class Supervision:
    """``page`` is the supervisor's; None: this worker has no supervisor. ``index``: of this worker.
    ``signing_key``: with which all workers sign what clients return, if the settings have none.
    ``store_memory``: the descriptor of the memory in which they note which file the store is."""

    def __init__(
        self,
        page: SupervisorPage | None,
        index: int = 0,
        signing_key: str | None = None,
        store_memory: int | None = None,
    ) -> None:
        self._page = page
        self.index = index
        self.signing_key = signing_key
        self.store_memory = store_memory

    @property
    def restarts_engines(self) -> bool:
        """True if there is a supervisor, which replaces engines that die or hang."""
        return self._page is not None

    @property
    def lead(self) -> int:
        """The index of the worker that does what only one may do. Another one leads only once that
        one is dead."""
        return self.index if self._page is None else self._page.lead

    @property
    def leads(self) -> bool:
        """True if this worker does what only one may do."""
        return self.lead == self.index

    @property
    def workers(self) -> int:
        """The number of workers that the server has when all run."""
        return 1 if self._page is None else self._page.workers

    def running_workers(self) -> dict[int, int]:
        """Return the process ids of the workers that run, with this one, by index."""
        found = {}
        if self._page is not None:
            found = {n: self._page.worker_pid(n) for n in range(self._page.workers)}
        found[self.index] = os.getpid()
        return {index: pid for index, pid in sorted(found.items()) if pid}

    @property
    def download(self) -> tuple[int, int] | None:
        """See ``SupervisorPage.download``."""
        return None if self._page is None else self._page.download

    def engine_detail(self, reported: str) -> str:
        """Return what an engine is doing, for people: what it ``reported``, or how much of its
        model has arrived."""
        if self.download is None:
            return reported
        done, total = self.download
        if not total:
            return "downloading the model"
        share = f"{100 * done // total} %"
        return f"downloading the model: {in_units(done)} of {in_units(total)} ({share})"

    def engine_runs(self, index: int) -> bool:
        """True if the engine has a process, as far as is known."""
        return self._page is None or self._page.engine_runs(index)

    def fruitless_deaths(self, index: int) -> int:
        """Return how often the engine died in a row, each time without progress."""
        return 0 if self._page is None else self._page.fruitless_deaths(index)

    @property
    def problem(self) -> str | None:
        """The reason why requests should not wait for the next engine; None if they may."""
        page = self._page
        if page is None:
            return None
        failing = self._dying(FAILING_DEATHS)
        if len(failing) < page.engines:
            return None
        first = min(failing, key=page.next_start_at)
        who = "the engine" if page.engines == 1 else "each engine"
        deaths = min(map(page.fruitless_deaths, failing))
        problem = f"{who} died {deaths} times in a row without progress; see the log"
        seconds = math.ceil(page.next_start_at(first) - time.monotonic())
        return f"{problem}; next start in {seconds} s" if seconds > 0 else problem

    def _dying(self, deaths: int) -> list[int]:
        """Return the engines that died at least ``deaths`` times in a row without progress."""
        page = self._page
        if page is None:
            return []
        return [n for n in range(page.engines) if page.fruitless_deaths(n) >= deaths]

    def is_hopeless(self, *, engine_is_lost: bool) -> bool:
        """True if only a restart of the whole server can help. A live supervisor restarts a dead
        engine and kills one that hangs; without a supervisor, a lost engine stays lost."""
        page = self._page
        if page is None:
            return engine_is_lost
        if time.monotonic() - page.beat_at > SUPERVISOR_TIMEOUT_SECONDS:
            return True
        return engine_is_lost and len(self._dying(HOPELESS_DEATHS)) == page.engines
