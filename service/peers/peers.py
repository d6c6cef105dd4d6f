"""The other API workers of this server, and how many requests may be forwarded to them."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from pathlib import Path

from service.errors import OverloadedError
from service.ids import Ids
from service.peers.asking import PeerConnection, connected
from service.tenants.shares import share
from service.wording import plural

# Each may hold some 200 KiB: in the kernel, in its reader, and a piece.
MOST_FORWARDED = 512


class Peers:
    """``directory``: of the workers' sockets; None if there is only one worker. ``running``: the
    workers that run now, as far as is known. ``lead``: the one that serves routes of ``LEAD``;
    None: the first that runs."""

    def __init__(
        self,
        ids: Ids | None = None,
        directory: Path | None = None,
        running: Callable[[], Iterable[int]] | None = None,
        *,
        lead: Callable[[], int] | None = None,
        most: int = MOST_FORWARDED,
    ) -> None:
        self.ids = ids or Ids()
        self.directory = directory
        self._running = running
        self._lead = lead
        self._most = most
        self.forwarded = 0  # requests being forwarded now
        self._of_owner: Counter[str] = Counter()  # of them, those of each owner

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
        """The worker that serves routes of ``LEAD``."""
        if self and self._lead is not None:
            return self._lead()
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
    def place(self, owner: str = "") -> Iterator[None]:
        """Count a request while it is forwarded. ``owner``: the digest of its key; empty: it has no
        share. An owner without any is always admitted, and none may exceed its share. Raises
        OverloadedError for too many."""
        self._check_places(owner)
        self.forwarded += 1
        if owner:
            self._of_owner[owner] += 1
        try:
            yield
        finally:
            self.forwarded -= 1
            if owner:
                self._of_owner[owner] -= 1
                if not self._of_owner[owner]:
                    del self._of_owner[owner]

    def _check_places(self, owner: str) -> None:
        own = self._of_owner[owner]
        if owner:
            allowed = share(self._most, len(self._of_owner) - bool(own))
            if own >= allowed:
                raise OverloadedError(
                    f"This API worker is already forwarding {plural(own, 'request')} of this "
                    "key, which is its share; retry: another connection may reach the right worker."
                )
        if self.forwarded >= self._most and (own or not owner):
            raise OverloadedError(
                f"This API worker is already forwarding {plural(self._most, 'request')}, the "
                "maximum; retry: another connection may reach the right worker."
            )
