"""What the servers' admin APIs last answered: asked at the same time, and again only after a few
seconds."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Generic, TypeVar

T = TypeVar("T")

_MOST_KEPT = 256


@dataclass(slots=True)
class _Kept(Generic[T]):
    """``until``: when the answer is too old; infinite until it has come."""

    future: Future[T] = field(default_factory=Future)
    until: float = float("inf")


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

    def answers(self, wanted: Sequence[tuple[str, str]]) -> list[T]:
        """Return the answer to each URL and key. What another visitor's page asks now is awaited,
        not asked twice."""
        with self._lock:
            new = [name for name in dict.fromkeys(wanted) if self._is_unknown(name)]
            self._make_room(len(new))
            for name in new:
                self._kept[name] = _Kept()
            kept = {name: self._kept[name] for name in wanted}
        if new:
            with ThreadPoolExecutor(len(new), "probe") as threads:
                for name in new:
                    threads.submit(self._fill, name, kept[name])
        return [kept[name].future.result() for name in wanted]

    def _is_unknown(self, name: tuple[str, str]) -> bool:
        kept = self._kept.get(name)
        return kept is None or kept.until <= self._clock()

    def _make_room(self, new: int) -> None:
        now = self._clock()
        for name in [name for name, kept in self._kept.items() if kept.until <= now]:
            del self._kept[name]
        while self._kept and len(self._kept) + new > _MOST_KEPT:
            del self._kept[next(iter(self._kept))]

    def _fill(self, name: tuple[str, str], kept: _Kept[T]) -> None:
        try:
            answer = self._ask(*name)
        except BaseException as error:
            kept.until = self._clock()
            kept.future.set_exception(error)
            raise
        kept.until = self._clock() + self._seconds
        kept.future.set_result(answer)
