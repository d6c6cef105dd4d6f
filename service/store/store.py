"""Responses kept beyond their request: limited in number and size, expiring, with an owner.

One writer task moves pending records to the database in batches, independently of the streams.
``save`` queues a record and never waits; ``put`` also waits until it is written. In both cases the
record can be read immediately (from memory). While nothing can be written (a full disk, say),
``available`` is False, and what is stored can still be read; while the database does not answer,
``readable`` is False, too. Operations that need it fail with that reason; it is retried until it is
back.
"""

from __future__ import annotations

import asyncio
import re
import threading
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from concurrent.futures import Future
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from observability.logging import get_logger
from service.errors import StoreUnavailableError
from service.store.condition import (
    AWAY,
    NO_WATCH,
    TOO_SLOW,
    StoreCondition,
    StoreWatch,
    can_be_read,
    try_writing,
)
from service.store.pending import PendingRecords
from service.store.place import StorePlace
from service.store.record import RUNNING, StoredResponse
from service.store.running import LEASE_SECONDS, RunningResponses
from service.store.waiting import WaitingWrites

if TYPE_CHECKING:
    from service.store.database import Database

_RETRY_SECONDS = 2.0
_WRITE_SECONDS = 10.0
_FIRST_SECONDS = 5.0
_CLOSE_SECONDS = 5.0
_BATCH = 64
_SWEEP_SHARE = 64  # sweep early once a 64th of the limit is new
# Clients may name any id; ids that cannot exist need not reach the database, and NUL must not.
_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")

_log = get_logger()


@dataclass(frozen=True, slots=True)
class StoreLimits:
    """Beyond ``responses`` or ``bytes`` the oldest are deleted, starting with owners that exceed
    their share; each is deleted after ``ttl`` seconds."""

    responses: int
    bytes: int
    ttl: float
    sweep_seconds: float = 15.0

    def may_be_exceeded(self, new_responses: int, new_bytes: int) -> bool:
        """True if these, since the last sweep, may exceed them by more than a little."""
        return (
            new_responses * _SWEEP_SHARE > self.responses or new_bytes * _SWEEP_SHARE > self.bytes
        )


class ResponseStore:
    """``open`` and ``close`` it on the event loop that uses it. ``place``: all who use the database
    share it; None: there is no store, and nothing is kept. ``leads``: this worker is the one of its
    server that deletes what exceeds the limits. ``on_deleted`` gets the id of a response in
    progress that another replica has deleted."""

    def __init__(
        self,
        place: StorePlace | None,
        limits: StoreLimits,
        leads: Callable[[], bool] = lambda: True,
        on_deleted: Callable[[str], None] = lambda response_id: None,
        watch: StoreWatch = NO_WATCH,
    ) -> None:
        self.place = place
        self._leads = leads
        self._on_deleted = on_deleted
        self._condition = StoreCondition(watch, is_configured=place is not None)
        self.limits = limits
        self._database: Database | None = None
        self._pending = PendingRecords()
        self._wake = asyncio.Event()
        self._waiting = WaitingWrites(on_slow=self._condition.slow)
        self._new_responses = self._new_bytes = 0  # since the last sweep
        self._running = RunningResponses()
        self._gone: set[str] = set()  # to be removed, which may be being written right now
        self._tasks: list[asyncio.Task[None]] = []
        self._closing = False
        self._works = False  # all has worked since the last failure
        self._loaded = asyncio.Event()  # the database code, with or without success
        self._tried = asyncio.Event()  # to connect, with or without success

    @property
    def is_configured(self) -> bool:
        return self.place is not None

    @property
    def available(self) -> bool:
        """True if responses can be stored and read."""
        return self._condition.writable

    @property
    def holds_leases(self) -> bool:
        """True if other replicas still take the responses in progress here to be so."""
        return self._running.holds_leases

    @property
    def readable(self) -> bool:
        """True if the database answers, whether or not it can be written."""
        return self._condition.readable

    def open(self) -> None:
        """Start loading the database code, and connecting; never raises."""
        if self.place is not None:
            self._tasks = [asyncio.create_task(self._run(), name="response-store")]

    async def close(self) -> None:
        """Write what is pending, if the database accepts it within seconds; count the rest as
        unstored."""
        # Let the task end by itself if possible: cancelled within a transaction, it might continue.
        self._closing = True
        self._wake.set()
        running = set(self._tasks)
        if running and self._condition.works:
            _, running = await asyncio.wait(running, timeout=_CLOSE_SECONDS)
        for task in running:
            task.cancel()
        if running:
            await asyncio.wait(running, timeout=_CLOSE_SECONDS)
        for response_id in self._pending.ids - self._waiting.ids:
            self._pending.drop(response_id)
            _log.warning("a response was not stored", response_id=response_id)
            self.note_unstored()
        self._waiting.fail(AWAY)  # who waits counts those
        self._loaded.set()
        self._tried.set()
        if self._database is not None:
            await _within(_CLOSE_SECONDS, self._database.close())

    async def attempted(self) -> None:
        """Return once it is known whether the database is available, so that right after the start
        the first requests do not fail."""
        if not self._tasks or self._tried.is_set():
            return
        await self._loaded.wait()
        try:
            async with asyncio.timeout(_FIRST_SECONDS):
                await self._tried.wait()
        except TimeoutError:
            self._tried.set()

    def require(self) -> None:
        """Raise StoreUnavailableError unless saved records will be kept."""
        self._condition.require(writable=True)

    def note_unstored(self) -> None:
        """Count an answer that was to be stored and is not; without a store, none was."""
        self._condition.note_unstored()

    # --- writing -----------------------------------------------------------------------------

    async def put(self, record: StoredResponse) -> None:
        """Store a record, replacing any with the same id, and return once it is written.

        Raises StoreUnavailableError; it may have been written nevertheless.
        """
        await self.attempted()
        self.require()
        if not self.save(record):
            raise StoreUnavailableError(TOO_SLOW)
        try:
            await self._waiting.written(record.id, _WRITE_SECONDS)
        except StoreUnavailableError:
            self._drop(record)
            raise

    def withdraw(self, response_id: str) -> None:
        """Forget a response, and remove it, also if it is being written right now: it must not be
        found later."""
        self._pending.drop(response_id)
        self._running.end(response_id)
        self._gone.add(response_id)
        self._wake.set()

    def _drop(self, record: StoredResponse) -> None:
        """Drop a record that was not reported as stored. An update is followed by another one, or
        withdrawn."""
        if self._pending.get(record.id) is record:
            self._pending.drop(record.id)
        if not record.is_update:
            self.withdraw(record.id)
        self._wake.set()

    def save(self, record: StoredResponse) -> bool:
        """Queue a record, replacing any with the same id; False, and logged, if that is impossible.
        An update is queued even while nothing can be written: else the response would never end for
        other replicas."""
        accepts = self._condition.writable or record.is_update
        if not (accepts and self._pending.add(record)):
            if self.place is not None:
                _log.warning("a response was not stored", response_id=record.id)
            self._running.end(record.id)  # so that its lease ends
            return False
        if record.status in RUNNING:
            self._running.begin(record)
        self._wake.set()
        return True

    async def delete(self, response_id: str, owner: str) -> bool:
        """Delete a response; True if there was one. Raises StoreUnavailableError."""
        if not self._may_exist(response_id):
            return False
        owned = self._is_of(response_id, owner)
        async with self._asked() as database:
            stored = await database.delete(response_id, owner)
        # Not before: all stays as it is if the database does not answer.
        owned = owned or self._is_of(response_id, owner)
        if owned:
            self.withdraw(response_id)
            self._waiting.note(response_id)
        return owned or stored

    def _may_exist(self, response_id: str) -> bool:
        is_id = _ID.fullmatch(response_id) is not None
        return self.place is not None and is_id and response_id not in self._gone

    def _is_of(self, response_id: str, owner: str) -> bool:
        """True if this process works on this owner's response, or is to write it."""
        here = (self._pending.get(response_id), self._running.get(response_id))
        return any(record is not None and record.owner == owner for record in here)

    # --- reading -----------------------------------------------------------------------------

    async def get(self, response_id: str, owner: str) -> StoredResponse | None:
        """Return a response; None if there is none that this owner may see. Raises
        StoreUnavailableError."""
        if not self._may_exist(response_id):
            return None
        record = self._pending.get(response_id)
        if record is None:
            async with self._asked() as database:
                record = await database.find(response_id)
        if record is None or record.owner != owner or record.expires_at <= time.time():
            return None
        return record

    @asynccontextmanager
    async def _asked(self) -> AsyncIterator[Database]:
        """Yield the database; its failures inside become StoreUnavailableError."""
        await self.attempted()
        self._condition.require(writable=False)
        assert self._database is not None
        try:
            yield self._database
        except self._database.FAILURES as error:
            _log.warning("response store failed", error=_reason(self._database, error))
            raise StoreUnavailableError(AWAY) from error

    # --- the writer task --------------------------------------------------------------------------

    async def _run(self) -> None:
        """Connect, then write and sweep until closed; after a failure start again: at once if only
        a connection may have broken."""
        while not self._closing:
            try:
                await self._connect()
                await self._serve()
            except Exception as error:
                hangs = isinstance(error, TimeoutError)
                if self._condition.writable and self._works and not hangs:
                    self._works = False
                    continue
                await self._fail(error)
                await asyncio.sleep(_RETRY_SECONDS)

    async def _fail(self, error: Exception) -> None:
        """Stop writing; reading continues if it still works, as with a full disk."""
        condition = self._condition
        condition.writable = False
        self._waiting.fail(AWAY)
        readable = condition.readable and await can_be_read(self._database, error)
        condition.fail(_reason(self._database, error), readable=readable)
        self._loaded.set()
        self._tried.set()

    async def _connect(self) -> None:
        assert self.place is not None
        if self._database is None:
            self._database = await _load_database(self.place)
            self._loaded.set()
        await self._database.bring_up_to_date()
        if self._condition.has_failed:
            await self._database.find("")  # the table may be locked, in a database that answers
            self._condition.change(readable=True, writable=False)
            # One at a time: a nearly full disk may refuse a batch. Meanwhile nothing is added.
            while self._pending:
                await self._write_batch(1)
            await try_writing(self._database)
        self._condition.recover(self.place.backend)
        self._tried.set()

    async def _serve(self) -> None:
        sweep_at = 0.0
        while True:
            self._wake.clear()
            await self._write_batch()
            if not self._pending:
                self._condition.keep_up()
            is_overfull = self.limits.may_be_exceeded(self._new_responses, self._new_bytes)
            if is_overfull or time.monotonic() >= sweep_at:
                await self._sweep(deletes=is_overfull)
                sweep_at = time.monotonic() + self.limits.sweep_seconds
            self._works = True
            if self._pending:
                continue
            if self._closing:
                return
            await _within(max(0.0, sweep_at - time.monotonic()), self._wake.wait())

    async def _write_batch(self, most: int = _BATCH) -> None:
        batch = self._pending.first(most)
        assert self._database is not None
        size = 0
        if batch:
            written = self._running.to_write(batch)
            size = await self._database.write(written, self._gone, lease=LEASE_SECONDS)
        while self._gone:  # perhaps named too late for that transaction
            gone = set(self._gone)
            await self._database.remove(gone)
            self._gone -= gone
        self._running.written(batch)
        for record in batch:
            # It may have been replaced meanwhile.
            if self._pending.get(record.id) is record:
                self._pending.drop(record.id)
                self._waiting.note(record.id)
        self._new_responses += len(batch)
        self._new_bytes += size

    async def _sweep(self, *, deletes: bool = False) -> None:
        """Delete what exceeds the limits, notice what other replicas have deleted and what the
        database has lost, and renew the leases of responses in progress."""
        assert self._database is not None
        deleted, lost = await self._running.missing(self._database)
        for response_id in deleted:
            self._on_deleted(response_id)
        self._pending.restore(lost)
        began = time.monotonic()
        await self._database.sweep(
            responses=self.limits.responses,
            size=self.limits.bytes,
            running=self._running.ids,
            lease=LEASE_SECONDS,
            deletes=self._leads() or deletes,
        )
        self._running.leased(began)
        self._new_responses = self._new_bytes = 0


async def _within(seconds: float, work: Coroutine[Any, Any, object]) -> None:
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await work


def _reason(database: Database | None, error: Exception) -> str:
    """Return a reason to log. The text of an error before there is a database may show the URL."""
    return type(error).__name__ if database is None else database.explain(error)


async def _load_database(place: StorePlace) -> Database:
    """Load in a separate daemon thread, because the import takes a second and the end of the
    process should not wait for it."""
    loaded: Future[Database] = Future()

    def load() -> None:
        try:
            from service.store.database import Database

            loaded.set_result(Database(place))
        except Exception as error:
            loaded.set_exception(error)

    loaded.set_running_or_notify_cancel()
    threading.Thread(target=load, name="load-store", daemon=True).start()
    return await asyncio.wrap_future(loaded)
