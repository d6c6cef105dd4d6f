"""The other API workers of this server, and how many requests may be forwarded to them."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from pathlib import Path

from service.errors import OverloadedError
from service.ids import Ids
from service.peers.asking import PeerConnection, connected

# Each may hold some 200 KiB: in the kernel, in its reader, and a piece.
MOST_FORWARDED = 512


class Peers:
    """``directory``: of the workers' sockets; None if there is only one worker. ``running``: the
    workers that run now, as far as is known."""

    def __init__(
        self,
        ids: Ids | None = None,
        directory: Path | None = None,
        running: Callable[[], Iterable[int]] | None = None,
        *,
        most: int = MOST_FORWARDED,
    ) -> None:
        self.ids = ids or Ids()
        self.directory = directory
        self._running = running
        self._most = most
        self.forwarded = 0  # requests being forwarded now

    def __bool__(self) -> bool:
        """True if the server has several workers."""
        return self.directory is not None and self.ids.workers > 1

    def others(self) -> list[int]:
        """Return the other workers that run now."""
        if not self:
            return []
        running = range(self.ids.workers) if self._running is None else self._running()
        return [worker for worker in running if worker != self.ids.worker]

    @property
    def lead(self) -> int:
        """The worker that serves routes of ``LEAD``: the first that runs."""
        return min((self.ids.worker, *self.others()))

    @property
    def leads(self) -> bool:
        """True if this worker serves routes of ``LEAD``."""
        return self.lead == self.ids.worker

    def owner_of(self, identity: str) -> int | None:
        """Return the other worker that made an id; None if there is none."""
        return self.ids.other_worker(identity) if self else None

    def socket_of(self, worker: int) -> Path:
        """Return the path of a worker's socket."""
        assert self.directory is not None
        return self.directory / f"api-{worker}.sock"

    @contextlib.asynccontextmanager
    async def connected(self, worker: int) -> AsyncIterator[PeerConnection]:
        """Connect to a worker. Raises PeerUnreachableError."""
        async with connected(self.socket_of(worker)) as connection:
            yield connection

    @contextlib.contextmanager
    def place(self) -> Iterator[None]:
        """Count a request while it is forwarded. Raises OverloadedError for too many."""
        if self.forwarded >= self._most:
            raise OverloadedError(
                f"This API worker is already forwarding {self._most} requests, the maximum; retry: "
                "another connection may reach the right worker."
            )
        self.forwarded += 1
        try:
            yield
        finally:
            self.forwarded -= 1
