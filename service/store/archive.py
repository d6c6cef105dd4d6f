"""Ended requests, usage and audit in the database of the stored responses.

A separate task moves them there: records from the queue in the worker's ledger, usage
from the table there, audit rows from memory. Serving never waits for it. While the database is
away, records wait until the queue is full, and are then dropped and counted; usage and audit wait.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import msgspec

from observability.admin_api import AuditRow, KeptRequest, RequestPage, RequestQuery, UsageRow
from observability.logging import get_logger
from observability.usage_table import UsageTable
from service.errors import StoreUnavailableError
from service.store.archive_condition import ArchiveCondition, Unstored, incomplete
from service.store.audit_writer import AuditWriter
from service.store.place import StorePlace
from service.store.query_turns import QueryTurnError, QueryTurns, within
from service.store.refused_rows import RefusedRows
from service.store.store import ResponseStore
from service.store.sweep import ArchiveLimits, Sweep
from service.store.usage_writer import UsageWriter
from service.telemetry.ended_requests import EndedRequests
from service.turns import Pace

if TYPE_CHECKING:
    from sqlalchemy.engine import Row

    from service.store.archive_database import ArchiveDatabase
    from service.store.export import ExportColumn

_MOST_BATCHES_FIRST = 16  # that are written before a query is answered
_BATCH = 64  # records packed and written at once: a millisecond of the event loop
_POLL_SECONDS = 0.5
_WRITE_SECONDS = 1.0
_RETRY_SECONDS = 2.0
_CLOSE_SECONDS = 5.0
_UNPACKED_AT_ONCE = 16
_EXPORTED_AT_ONCE = 500
# Queries at a time; more wait. Each takes a connection, which the writer needs, too.
_MOST_QUERIES = 2
# Together less than the ten seconds of docs/admin.md.
_FLUSH_SECONDS = 2.0
_ANSWER_SECONDS = 7.5
_OFF = "This server stores no requests and no usage (--store-url none)."
_TOO_LONG = "The query took too long; choose a shorter period."

_ID = re.compile(r"[A-Za-z0-9._:-]{1,128}")

_T = TypeVar("_T")

_log = get_logger()


class ArchiveSources(NamedTuple):
    """What a worker's ledger has for the database."""

    ended: EndedRequests
    usage: UsageTable


class RequestArchive:
    """``open`` it after ``responses``, which prepares the database, and ``close`` it before.
    ``place`` None: there is no database, and nothing is kept. ``leads``: this worker is the one of
    its server that deletes. ``on_away``: hears whether anything cannot be stored from then on."""

    def __init__(
        self,
        place: StorePlace | None,
        limits: ArchiveLimits,
        responses: ResponseStore,
        sources: ArchiveSources,
        leads: Callable[[], bool] = lambda: True,
        on_away: Callable[[bool], None] = lambda away: None,
    ) -> None:
        self.limits = limits
        self._place = place
        self._responses = responses
        self._ended = sources.ended
        self._condition = ArchiveCondition(on_away)
        self._usage = UsageWriter(sources.usage)
        self._audit = AuditWriter()
        self._database: ArchiveDatabase | None = None
        self._task: asyncio.Task[None] | None = None
        self._up = False
        self._closing = asyncio.Event()
        self._moving = asyncio.Lock()  # requests from the queue
        self._turns = QueryTurns(_MOST_QUERIES)
        self._sweep = Sweep(limits, leads)
        self._refused_requests = RefusedRows("the database refused records of requests")

    @property
    def available(self) -> bool:
        return self._up

    @property
    def is_away(self) -> bool:
        return self._condition.is_away

    @property
    def keeps_requests(self) -> bool:
        return self._place is not None and self._ended.is_kept

    def open(self) -> None:
        """Start writing; never raises."""
        if self._place is not None:
            self._task = asyncio.create_task(self._run(), name="request-archive")

    async def close(self) -> None:
        """Write what is pending, if the database accepts it within seconds; log the rest."""
        self._closing.set()
        if self._task is not None:
            _, running = await asyncio.wait({self._task}, timeout=_CLOSE_SECONDS)
            if running:
                self._task.cancel()
                await asyncio.wait({self._task}, timeout=_CLOSE_SECONDS)
            left = Unstored(self._ended.count, self._usage.keys_pending, self._audit.count)
            self._condition.end(left, cut_after=_CLOSE_SECONDS if running else None)
        if self._database is not None:
            with suppress(TimeoutError):
                async with asyncio.timeout(_CLOSE_SECONDS):
                    await self._database.close()

    # --- the writer task ------------------------------------------------------------------------

    async def _run(self) -> None:
        while True:
            is_last = self._closing.is_set()  # one more attempt: the database may be back
            try:
                await self._connect()
                await self._serve()
                return
            except Exception as error:
                self._up = False
                self._condition.fail(self._explain(error))
            if is_last:
                return
            await self._pause(_RETRY_SECONDS)

    def _explain(self, error: Exception) -> str:
        # The text of an error before there is a database may show the URL.
        return type(error).__name__ if self._database is None else self._database.explain(error)

    async def _pause(self, seconds: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._closing.wait()

    async def _connect(self) -> None:
        assert self._place is not None
        while not self._responses.readable:  # it says itself that the database is away
            await self._pause(_POLL_SECONDS)
            self._condition.change(away=not self._responses.readable)
            if self._closing.is_set():  # perhaps before the database was ever reached
                await self._responses.attempted()
                if not self._responses.readable:
                    return
        if self._database is None:
            # Loaded by now.
            from service.store.archive_database import ArchiveDatabase

            self._database = ArchiveDatabase(self._place)
        self._up = True

    async def _serve(self) -> None:
        while self._up:
            assert self._database is not None
            closing = self._closing.is_set()  # then all that is there now is written
            await self._audit.write(self._database)
            while await self._write_requests():
                if self._usage.is_due and not closing:
                    break
                if self._usage.is_urgent:
                    await self._usage.write(self._database)
                if self._sweep.has_more and not closing:
                    await self._sweep.delete_requests(self._database)
            if closing or self._usage.is_due or self._usage.is_urgent:
                await self._usage.write(self._database)
            self._condition.recover()
            if closing:
                return
            await self._sweep.run(self._database)
            await self._pause(_WRITE_SECONDS)

    async def _write_requests(self) -> bool:
        """Write a batch; True if there may be more."""
        from service.store.packed_request import pack_requests

        assert self._database is not None
        async with self._moving:
            records, position = self._ended.first(_BATCH)
            rows = pack_requests(records)
            refused = await self._database.insert_requests(rows) if rows else []
            self._refused_requests.note(refused)
            self._ended.release(position, dropped=len(records) - len(rows) + len(refused))
            return len(records) == _BATCH

    async def _write_first_requests(self) -> None:
        for _ in range(_MOST_BATCHES_FIRST):
            if not await self._write_requests():
                break

    async def write_now(self, *, usage: bool) -> bool:
        """Write what is pending, with or without usage, for a reader at another worker. False if
        the database does not do it within seconds: it stays pending."""
        if self._place is None:
            return True
        if not self._up or self._database is None:
            return False
        try:
            await within(_FLUSH_SECONDS, self._write_pending(self._database, usage=usage))
        except self._database.FAILURES as error:
            _log.warning("archive could not be written", error=self._explain(error))
            return False
        return True

    async def _write_pending(self, database: ArchiveDatabase, *, usage: bool) -> None:
        await self._write_first_requests()
        await self._audit.write(database)
        if usage:
            await self._usage.write(database)

    # --- audit ----------------------------------------------------------------------------------

    def keep_audit(self, row: AuditRow) -> None:
        """Queue a row; it is written within a second, or when the database is back."""
        if self._place is not None:
            self._audit.keep(row)

    # --- reading --------------------------------------------------------------------------------

    async def query(self, query: RequestQuery) -> RequestPage:
        """Return requests that have ended by now. Raises ArchiveQueryError,
        StoreUnavailableError."""
        from service.store.archive_database import QueryTooLongError
        from service.store.request_query import ArchiveQueryError, page_statement

        statement = page_statement(query)

        async def read(database: ArchiveDatabase) -> Sequence[Row[Any]]:
            await self._written(self._write_first_requests())
            try:
                return await database.rows(statement)
            except QueryTooLongError:
                raise ArchiveQueryError(_TOO_LONG) from None

        return await _page_of(query, await self._ask(read))

    async def find(self, identity: str) -> KeptRequest | None:
        """Return the ended request with this id, or the last one of this trace; None also if there
        is no database. Raises StoreUnavailableError."""
        from service.store.request_query import find_statements

        if self._place is None or not _ID.fullmatch(identity):
            return None

        async def read(database: ArchiveDatabase) -> Sequence[Row[Any]]:
            for statement in find_statements(identity):
                rows = await database.rows(statement)
                if rows:
                    return rows
            return ()

        found = await _unpacked(await self._ask(read))
        return found[0] if found else None

    async def usage(
        self, by: str, start: float, end: float, bucket: str = "hour"
    ) -> list[UsageRow]:
        """Return what each ``key``, ``model`` or ``route`` used in the hours or days (of UTC) from
        the one with ``start`` to before ``end``, up to now. Raises ArchiveQueryError,
        StoreUnavailableError."""
        from service.store.request_query import ArchiveQueryError
        from service.store.usage_query import MAX_USAGE_ROWS, usage_statement

        statement = usage_statement(by, start, end, bucket)

        async def read(database: ArchiveDatabase) -> Sequence[Row[Any]]:
            await self._written(self._usage.write(database))
            return await database.rows(statement)

        rows = await self._ask(read)
        if len(rows) > MAX_USAGE_ROWS:
            raise ArchiveQueryError(
                f"The answer has more than {MAX_USAGE_ROWS} rows; choose a shorter time, or days."
            )
        found, pace = [], Pace()
        for number, row in enumerate(rows):
            if number % _UNPACKED_AT_ONCE == 0:
                await pace.rest()
            found.append(UsageRow(**row._mapping))
        return found

    async def audit_rows(self, limit: int) -> tuple[AuditRow, ...] | None:
        """Return the newest rows, the newest first; None if the database is away."""
        from service.store.usage_query import audit_statement

        async def read(database: ArchiveDatabase) -> Sequence[Row[Any]]:
            await self._written(self._audit.write(database))
            return await database.rows(audit_statement(limit))

        try:
            found = await self._ask(read)
        except StoreUnavailableError:
            return None
        return tuple(AuditRow(**row._mapping) for row in found)

    async def export_requests(self, query: RequestQuery, form: str) -> AsyncIterator[bytes]:
        """Return all requests that a query finds, the earliest end first, as a file in the form
        ``csv`` or ``parquet``. Raises ArchiveQueryError, ParquetMissingError,
        StoreUnavailableError; the last also in the middle."""
        from service.store.export import REQUEST_COLUMNS

        first = await self.query(_export_query(query, None))
        return _pieces(form, REQUEST_COLUMNS, self._pages(query, first))

    async def _pages(
        self, query: RequestQuery, first: RequestPage
    ) -> AsyncIterator[Sequence[KeptRequest]]:
        page = first
        yield page.requests
        while page.cursor is not None:
            page = await self.query(_export_query(query, page.cursor))
            yield page.requests

    async def export_usage(
        self, by: str, start: float, end: float, bucket: str, form: str
    ) -> AsyncIterator[bytes]:
        """Return what ``usage`` returns as a file, likewise."""
        from service.store.export import USAGE_COLUMNS

        rows = await self.usage(by, start, end, bucket)

        async def at_once() -> AsyncIterator[Sequence[UsageRow]]:
            yield rows

        return _pieces(form, USAGE_COLUMNS, at_once())

    async def _ask(self, read: Callable[[ArchiveDatabase], Coroutine[Any, Any, _T]]) -> _T:
        """Return what ``read`` does with the database when it is its turn. The time for both is
        limited. Raises StoreUnavailableError."""
        if self._place is None:
            raise StoreUnavailableError(_OFF)
        if not self._up or self._database is None:
            raise StoreUnavailableError(self._condition.sentence)
        try:
            return await self._turns.take(read(self._database), _ANSWER_SECONDS)
        except self._database.FAILURES as error:
            _log.warning("archive query failed", error=self._explain(error))
            said = str(error) if isinstance(error, QueryTurnError) else self._condition.sentence
            raise StoreUnavailableError(said) from error

    async def _written(self, work: Awaitable[None]) -> None:
        """Write what a reader expects to find. Raises StoreUnavailableError."""
        assert self._database is not None
        try:
            await work
        except self._database.FAILURES as error:
            reason = self._explain(error)
            _log.warning("archive could not be written", error=reason)
            raise StoreUnavailableError(incomplete(reason)) from error


async def _page_of(query: RequestQuery, rows: Sequence[Row[Any]]) -> RequestPage:
    """``rows``: of the page, and perhaps the first one of the next."""
    from service.store.request_query import cursor_after

    cursor = None
    if len(rows) > query.limit:
        last = rows[query.limit - 1]
        cursor = cursor_after(query, last.value, last.request_id)
    return RequestPage(tuple(await _unpacked(rows[: query.limit])), cursor, "store")


def _export_query(query: RequestQuery, cursor: str | None) -> RequestQuery:
    return msgspec.structs.replace(query, sort="ended", limit=_EXPORTED_AT_ONCE, cursor=cursor)


def _pieces(
    form: str, columns: Sequence[ExportColumn], batches: AsyncIterator[Sequence[Any]]
) -> AsyncIterator[bytes]:
    from service.store.export import csv_pieces, parquet_pieces, require_parquet
    from service.store.request_query import ArchiveQueryError

    if form == "csv":
        return csv_pieces(columns, batches)
    if form != "parquet":
        raise ArchiveQueryError("'format' must be csv or parquet.")
    require_parquet()
    return parquet_pieces(columns, batches)


async def _unpacked(rows: Sequence[Row[Any]]) -> list[KeptRequest]:
    from service.store.packed_request import unpack_request

    found, pace = [], Pace()
    for number, row in enumerate(rows):
        if number % _UNPACKED_AT_ONCE == 0:
            await pace.rest()
        found.append(unpack_request(row.request_id, row.trace_id, row.record))
    return found
