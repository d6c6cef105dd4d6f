"""What the servers' admin APIs last answered: asked at the same time, and again only after a few
seconds."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import Future, wait
from dataclasses import dataclass, field
from typing import Generic, TypeVar

T = TypeVar("T")

_MOST_KEPT = 256  # or as many as one page shows
# A page waits for all servers that it shows, so that one that hangs must not hold it up for long.
_MOST_SECONDS = 3.0
# Per URL, so that a server that hangs takes no threads from the others. Visitors with the same key
# share one.
_MOST_THREADS = 16


@dataclass(slots=True)
class _Kept(Generic[T]):
    """``deadline``: until when a page waits for the answer, by ``time.monotonic``. ``until``: when
    the answer is too old; infinite until it has come."""

    deadline: float
    future: Future[T | None] = field(default_factory=Future)
    until: float = float("inf")

    def awaited(self) -> T | None:
        """Return the answer; None if it does not come in time."""
        left = max(self.deadline - time.monotonic(), 0.0)
        done, _ = wait([self.future], timeout=left)
        return self.future.result() if done else None


class Probes(Generic[T]):
    """For all visitors. ``ask``: called with the URL of an admin API and a key, in a thread. An
    answer is kept for ``seconds`` from when it came, however long it took."""

    def __init__(
        self,
        ask: Callable[[str, str], T],
        seconds: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._ask = ask
        self._seconds = seconds
        self._clock = clock
        self._lock = threading.Lock()
        self._kept: dict[tuple[str, str], _Kept[T]] = {}
        self._threads: Counter[str] = Counter()

    def answers(self, wanted: Sequence[tuple[str, str]]) -> list[T | None]:
        """Return the answer to each URL and key; None if it has not come ``_MOST_SECONDS`` after it
        was asked. What another visitor's page asks now is awaited, not asked twice, however long
        it takes."""
        new: dict[tuple[str, str], _Kept[T]] = {}
        with self._lock:
            valid = self._valid()
            deadline = time.monotonic() + _MOST_SECONDS
            new.update((name, _Kept(deadline)) for name in wanted if name not in valid)
            shown = {name: valid.get(name) or new[name] for name in wanted}
            self._keep(shown, valid)
        for name, kept in new.items():
            self._start(name, kept)
        return [shown[name].awaited() for name in wanted]

    def _valid(self) -> dict[tuple[str, str], _Kept[T]]:
        now = self._clock()
        return {name: kept for name, kept in self._kept.items() if kept.until > now}

    def _keep(
        self, shown: dict[tuple[str, str], _Kept[T]], valid: dict[tuple[str, str], _Kept[T]]
    ) -> None:
        """Keep everything that is shown now and, of the rest, what was shown most recently."""
        others = [item for item in valid.items() if item[0] not in shown]
        surplus = max(len(others) + len(shown) - _MOST_KEPT, 0)
        self._kept = {**dict(others[surplus:]), **shown}

    def _start(self, name: tuple[str, str], kept: _Kept[T]) -> None:
        """Others may wait for the answer already, so that one must come whatever happens."""
        url, _ = name
        with self._lock:
            is_full = self._threads[url] >= _MOST_THREADS
            self._threads[url] += not is_full
        if is_full:
            self._end(kept, None)
            return
        # A daemon: one that hangs must not keep the dashboard from ending.
        thread = threading.Thread(
            target=self._fill, args=(name, kept), name=f"probe {url}", daemon=True
        )
        try:
            thread.start()
        except BaseException as error:
            self._leave(url)
            self._end(kept, error)

    def _fill(self, name: tuple[str, str], kept: _Kept[T]) -> None:
        try:
            answer = self._ask(*name)
        except BaseException as error:
            self._end(kept, error)
        else:
            kept.until = self._clock() + self._seconds
            kept.future.set_result(answer)
        finally:
            self._leave(name[0])

    def _end(self, kept: _Kept[T], error: BaseException | None) -> None:
        """Without an answer, so that the next page asks again."""
        kept.until = self._clock()
        if error is None:
            kept.future.set_result(None)
        else:
            kept.future.set_exception(error)

    def _leave(self, url: str) -> None:
        with self._lock:
            self._threads[url] -= 1
            if not self._threads[url]:
                del self._threads[url]
