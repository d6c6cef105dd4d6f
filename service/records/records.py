"""The requests that this worker serves and the last ones that it served, to be looked at.

``Telemetry`` reports each request when it begins and when it has ended. Everything is called on the
worker's event loop, which no call holds for more than two milliseconds: queries look at a part of
the requests at a time.
"""

from __future__ import annotations

import itertools
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping

from observability.admin_api import KeptRequest, RequestPage, RequestQuery, Window
from observability.logging import get_logger
from service.records.kept import ended_request, live_request
from service.records.matching import matcher
from service.records.ordering import Ordering, Position
from service.records.recent import RecentlyEnded, WindowValues
from service.records.row import Row, row_of
from service.telemetry.record import RequestRecord
from service.turns import Pace

MOST_KEPT_BYTES = 64 * 1024 * 1024
MOST_WINDOWS = 4
# Of the live requests, in each message of the feed. Pages show two; a query finds all.
SLOWEST_IN_FEED = 10
# Looked at before other tasks run.
_ROWS_AT_ONCE = 500
_REQUESTS_AT_ONCE = 16

Listener = Callable[[Row], None]

_log = get_logger()


class Records:
    """``most``: ended requests to keep; ``most_bytes``: the memory that they may take. Set
    ``limited_by`` to what returns the condition that limits the server, or None."""

    def __init__(
        self,
        *,
        most: int = 10_000,
        most_bytes: int = MOST_KEPT_BYTES,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.limited_by: Callable[[], str | None] = lambda: None
        self._most = most
        self._most_bytes = most_bytes
        self._clock = clock
        self._live: dict[str, RequestRecord] = {}  # by request id, in order of arrival
        self._rows: deque[Row] = deque()  # in the order in which they ended
        self._bytes = 0
        self._by_request: dict[str, Row] = {}
        self._by_trace: dict[str, Row] = {}
        self._windows: dict[float, RecentlyEnded] = {}
        self._listeners: list[Listener] = []

    # --- from telemetry -----------------------------------------------------------------------

    def began(self, record: RequestRecord) -> None:
        """A request arrived."""
        self._live[record.request_id] = record

    def ended(self, record: RequestRecord, seconds: Mapping[str, float]) -> None:
        """A request has ended, perhaps one of the worker before. ``seconds``: of its phases."""
        self._live.pop(record.request_id, None)
        row = row_of(ended_request(record, seconds))
        self._keep(row)
        for window in self._windows.values():
            window.add(row)
        for listener in self._listeners:
            try:
                listener(row)
            except Exception:  # the request is served; its record is not worth an error
                _log.exception("failed to pass on the record of a request")

    def _keep(self, row: Row) -> None:
        self._rows.append(row)
        self._bytes += row.size
        self._by_request[row.request_id] = row
        if row.trace_id:
            self._by_trace[row.trace_id] = row
        while len(self._rows) > self._most or (self._bytes > self._most_bytes and self._rows):
            self._forget(self._rows.popleft())

    def _forget(self, row: Row) -> None:
        self._bytes -= row.size
        if self._by_request.get(row.request_id) is row:
            del self._by_request[row.request_id]
        if self._by_trace.get(row.trace_id) is row:
            del self._by_trace[row.trace_id]

    # --- for readers --------------------------------------------------------------------------

    @property
    def bytes(self) -> int:
        """How much memory the ended requests take, about."""
        return self._bytes

    def __len__(self) -> int:
        return len(self._rows)

    @property
    def live(self) -> Mapping[str, RequestRecord]:
        """The records of the requests that have not ended, by id, in order of arrival."""
        return self._live

    @property
    def oldest_ended(self) -> float | None:
        """When the request ended that has been kept longest; None without any."""
        return self._rows[0].ended if self._rows else None

    def on_ended(self, listener: Listener, *, also_kept: bool = False) -> Callable[[], None]:
        """Call ``listener`` with each request that ends, on the event loop; it must not block.
        ``also_kept``: first with those kept so far, which at the start are the requests that a
        killed worker left. Return a function that stops it."""
        if also_kept:
            for row in list(self._rows):
                listener(row)
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    def find(self, identity: str) -> KeptRequest | None:
        """Return the request with this request id, or the last one of this trace."""
        record = self._live.get(identity)
        if record is not None:
            return live_request(record)
        row = self._by_request.get(identity)
        if row is not None:
            return row.request()
        live = [one for one in self._live.values() if one.trace_id == identity]
        if live:
            return live_request(live[-1])
        row = self._by_trace.get(identity)
        return None if row is None else row.request()

    def has(self, request_id: str) -> bool:
        """True if the request is in memory, live or ended."""
        return request_id in self._live or request_id in self._by_request

    def key_of(self, request_id: str) -> str | None:
        """Return the alias of the key of a request in memory."""
        record = self._live.get(request_id)
        return self._by_request[request_id].key if record is None else record.key

    def slowest_live(self, most: int = SLOWEST_IN_FEED) -> tuple[KeptRequest, ...]:
        """Return the live requests that have taken longest so far, the slowest first, without their
        events."""
        slowest = list(itertools.islice(self._live.values(), most))
        return tuple(live_request(record, with_events=False) for record in slowest)

    async def query(self, query: RequestQuery) -> RequestPage:
        """Return the requests that the query selects. Ended requests are as they were at the call.

        Raises QueryError.
        """
        rows, cursor = await self.rows(query)
        requests: list[KeptRequest] = []
        pace = Pace()
        for at in range(0, len(rows), _REQUESTS_AT_ONCE):
            requests += [row.request() for row in rows[at : at + _REQUESTS_AT_ONCE]]
            await pace.rest()
        return RequestPage(tuple(requests), cursor)

    async def rows(self, query: RequestQuery) -> tuple[list[Row], str | None]:
        """Return what ``query`` does, as rows, and the cursor: for readers that decode a few at a
        time, as thousands of decoded requests would keep the garbage collector busy."""
        ordering = Ordering.of(query)
        matches = matcher(query)
        page: list[tuple[Position, Row]] = []
        pace = Pace()
        for piece in self._live_rows() if query.live else self._ended_rows():
            found = _keyed(filter(matches, piece), ordering)
            page = sorted(page + found, key=_key)[: ordering.limit + 1]
            await pace.rest()
        is_last = len(page) <= ordering.limit
        page = page[: ordering.limit]
        cursor = None if is_last else ordering.cursor(page[-1][0])
        return [row for _, row in page], cursor

    def ended_since(self, since: float) -> Iterator[KeptRequest]:
        """Yield the requests that have ended since, the last one first."""
        for row in reversed(list(self._rows)):
            if row.ended is not None and row.ended < since:
                return
            yield row.request()

    def _ended_rows(self) -> Iterator[list[Row]]:
        rows = list(self._rows)
        for at in range(0, len(rows), _ROWS_AT_ONCE):
            yield rows[at : at + _ROWS_AT_ONCE]

    def _live_rows(self) -> Iterator[list[Row]]:
        ids = list(self._live)
        for at in range(0, len(ids), _REQUESTS_AT_ONCE):
            records = map(self._live.get, ids[at : at + _REQUESTS_AT_ONCE])
            yield [row_of(live_request(one)) for one in records if one is not None]

    def window(self, seconds: float, objectives: Mapping[str, float] | None = None) -> Window:
        """Return exact figures of the requests that ended in the last ``seconds``; what only the
        engine knows is left at 0. ``objectives``: seconds by "ttft" and "itl". The first call for
        as many seconds takes longer. Raises ValueError for more than ``MOST_WINDOWS`` lengths."""
        return self._window(seconds).window(self._clock(), objectives or {})

    def window_values(self, seconds: float) -> WindowValues:
        """Return what ``window`` is made of. Raises ValueError as it does."""
        return self._window(seconds).values(self._clock())

    def _window(self, seconds: float) -> RecentlyEnded:
        window = self._windows.get(seconds)
        if window is None:
            if len(self._windows) == MOST_WINDOWS:
                raise ValueError(f"windows of more than {MOST_WINDOWS} lengths")
            window = self._windows[seconds] = RecentlyEnded(seconds)
            for row in self._rows:
                window.add(row)
        return window


def _keyed(rows: Iterable[Row], ordering: Ordering) -> list[tuple[Position, Row]]:
    """Return the rows that come after the last page."""
    field, after = ordering.field, ordering.after
    found = [(ordering.key(getattr(row, field), row.request_id), row) for row in rows]
    return found if after is None else [one for one in found if one[0] > after]


def _key(keyed: tuple[Position, Row]) -> Position:
    return keyed[0]
