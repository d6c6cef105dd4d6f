"""How far a download is, read off the files that grow: the same for every process that waits for
them as for the one that fetches them.

A thread looks twice a second and reports to those that listen: the supervisor's page, a terminal,
the log.
"""

from __future__ import annotations

import functools
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Self, TextIO

from observability.logging import get_logger
from service.hub.partial import partial_files
from service.hub.place import ModelPlace
from service.hub.units import in_units
from service.hub.wanted import HubFile

PROGRESS_SECONDS = 0.5
LOG_SECONDS = 10.0

_log = get_logger()

Report = Callable[[int, int], None]
"""Called with the bytes that are there, and those of all wanted files."""


def bytes_there(place: ModelPlace, commit: str, files: Sequence[HubFile]) -> int:
    """Return how many bytes of the files have arrived; of those of unknown size, how many are there
    at the end."""
    directory, partial = place.snapshot(commit), partial_files(place.blobs)
    done = 0
    for file in files:
        if (directory / file.name).exists():
            done += _size(directory / file.name) if file.size is None else file.size
        elif file.size is None:
            continue
        else:
            sizes = (_size(path) for path in partial.get(file.digest, ()))
            done += min(max(sizes, default=0), file.size)
    return done


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:  # renamed meanwhile
        return 0


class Progress:
    """``with Progress(place, commit, files, reports):`` reports until the end, and at the end."""

    def __init__(
        self, place: ModelPlace, commit: str, files: Sequence[HubFile], reports: Sequence[Report]
    ) -> None:
        self._look = functools.partial(bytes_there, place, commit, files)
        self._known = sum(file.size or 0 for file in files)
        self._reports = reports
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="download-progress", daemon=True)

    def __enter__(self) -> Self:
        self._report()
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._stop.set()
        self._thread.join()
        self._report()

    def _run(self) -> None:
        while not self._stop.wait(PROGRESS_SECONDS):
            self._report()

    def _report(self) -> None:
        done = self._look()
        for report in self._reports:
            report(done, max(done, self._known))


@dataclass(slots=True)
class _Pace:
    """Bytes a second, over the whole time so far."""

    begin: float | None = None
    first: int = 0

    def seconds_left(self, done: int, total: int, now: float) -> float | None:
        if self.begin is None:
            self.begin, self.first = now, done
        passed, fetched = now - self.begin, done - self.first
        return passed * (total - done) / fetched if fetched > 0 else None


@dataclass(slots=True)
class TerminalBar:
    """One line that is written again and again."""

    name: str
    stream: TextIO = field(default_factory=lambda: sys.stderr)
    _pace: _Pace = field(default_factory=_Pace)
    _shown: bool = False

    def __call__(self, done: int, total: int) -> None:
        left = self._pace.seconds_left(done, total, time.monotonic())
        share = done / total if total else 1.0
        bar = "#" * int(share * 20)
        when = "" if left is None else f", {left:.0f} s left"
        text = f"{self.name} [{bar:<20}] {in_units(done)} of {in_units(total)}{when}"
        self.stream.write(f"\r\x1b[K{text}")
        self.stream.flush()
        self._shown = True

    def end(self) -> None:
        """Go to the next line."""
        if self._shown:
            self.stream.write("\n")
            self.stream.flush()


@dataclass(slots=True)
class LogLines:
    """A line every ``LOG_SECONDS``, and one at once."""

    name: str
    _pace: _Pace = field(default_factory=_Pace)
    _logged_at: float = float("-inf")

    def __call__(self, done: int, total: int) -> None:
        now = time.monotonic()
        left = self._pace.seconds_left(done, total, now)
        if now - self._logged_at < LOG_SECONDS:
            return
        self._logged_at = now
        _log.info(
            "downloading",
            model=self.name,
            done_bytes=done,
            total_bytes=total,
            **({} if left is None else {"seconds_left": round(left)}),
        )
