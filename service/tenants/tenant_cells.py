"""What is counted of one tenant, in cells of the memory that workers share (``limit_memory``)."""

from __future__ import annotations

from array import array

MOST_WORKERS = 32
CELL_BYTES = 8
ALIAS_BYTES = 32
ALIAS_CELLS = ALIAS_BYTES // CELL_BYTES

WINDOW = 61  # seconds: the current one and those of a whole minute before it
OPEN_LEASE = 10  # seconds for which the requests that another replica has in progress count
_RING = 64
_EMPTY_RING = memoryview(bytes(_RING * CELL_BYTES)).cast("q")

# Cells of a tenant.
SECOND = ALIAS_CELLS  # the newest that its ring has
REQUESTS, TOKENS = SECOND + 1, SECOND + 2  # in the window
NEWEST_REQUEST, NEWEST_TOKENS = SECOND + 3, SECOND + 4  # the newest seconds with any
DAY, USED = SECOND + 5, SECOND + 6  # tokens of that day,
LAST_DAY, LAST_USED = SECOND + 7, SECOND + 8  # and of the day that was counted before it
_REQUEST_RING = SECOND + 9
_TOKEN_RING = _REQUEST_RING + _RING
_OPEN = _TOKEN_RING + _RING  # of each worker: its open requests,
_RESERVED = _OPEN + MOST_WORKERS  # and the tokens they have reserved of the day's budget
# What other replicas count, and the second in which this was learned.
OTHERS_REQUESTS = _RESERVED + MOST_WORKERS
OTHERS_TOKENS, OTHERS_OPEN, OTHERS_AT = (OTHERS_REQUESTS + cell for cell in (1, 2, 3))
TENANT_CELLS = OTHERS_AT + 1


class TenantCells:
    """The cells of one tenant. Use it within the memory's lock. ``column``: of this worker."""

    __slots__ = ("_cells", "_column", "_first")

    def __init__(self, cells: memoryview[int], first: int, column: int) -> None:
        self._cells = cells
        self._first = first
        self._column = column

    def __getitem__(self, cell: int) -> int:
        return self._cells[self._first + cell]

    def __setitem__(self, cell: int, value: int) -> None:
        self._cells[self._first + cell] = value

    # --- the last minute ------------------------------------------------------------------------

    def advance(self, second: int) -> None:
        """Forget what is older than the window that ends with ``second``."""
        last = self[SECOND]
        if second <= last:
            return
        for ring, total in ((_REQUEST_RING, REQUESTS), (_TOKEN_RING, TOKENS)):
            if second - last >= WINDOW:
                start = self._first + ring
                self._cells[start : start + _RING] = _EMPTY_RING
                self[total] = 0
                continue
            for one in range(last + 1, second + 1):
                left = ring + (one - WINDOW) % _RING
                self[total] -= self[left]
                self[left] = 0
        self[SECOND] = second

    def count_requests(self, second: int, number: int) -> None:
        self[_REQUEST_RING + second % _RING] += number
        self[REQUESTS] += number
        self[NEWEST_REQUEST] = max(self[NEWEST_REQUEST], second)

    def count_tokens(self, second: int, number: int) -> None:
        self[_TOKEN_RING + second % _RING] += number
        self[TOKENS] += number
        self[NEWEST_TOKENS] = max(self[NEWEST_TOKENS], second)

    def has(self, second: int) -> bool:
        """True if what was counted in this second still counts."""
        return self[SECOND] - second < WINDOW

    def second_when_free(self, total: int, number: int) -> int:
        """Return the second of the window with which ``number`` of what ``total`` counts (REQUESTS
        or TOKENS) will have left it."""
        ring = _REQUEST_RING if total == REQUESTS else _TOKEN_RING
        left = 0
        for second in range(self[SECOND] - WINDOW + 1, self[SECOND] + 1):
            left += self[ring + second % _RING]
            if left >= number:
                return second
        return self[SECOND]

    def add_up(self) -> None:
        """Make totals right again after a worker was killed while it changed them."""
        for ring, total in ((_REQUEST_RING, REQUESTS), (_TOKEN_RING, TOKENS)):
            start = self._first + ring
            self[total] = sum(self._cells[start : start + _RING])

    def turn_to(self, day: int, stored: int) -> None:
        """Begin or resume a day: ``stored`` tokens are known elsewhere. The other's are kept."""
        used = max(stored, self[LAST_USED] if self[LAST_DAY] == day else 0)
        start = self._first + DAY
        self._cells[start : start + 4] = memoryview(array("q", (day, used, self[DAY], self[USED])))

    # --- with other replicas --------------------------------------------------------------------

    @property
    def all_requests(self) -> int:
        """The requests in the window, of all replicas as far as known."""
        return self[REQUESTS] + self._of_others(OTHERS_REQUESTS, WINDOW)

    @property
    def all_tokens(self) -> int:
        return self[TOKENS] + self._of_others(OTHERS_TOKENS, WINDOW)

    @property
    def all_open(self) -> int:
        return self.open_requests + self._of_others(OTHERS_OPEN, OPEN_LEASE)

    def _of_others(self, cell: int, seconds: int) -> int:
        return self[cell] if self[SECOND] - self[OTHERS_AT] < seconds else 0

    def is_idle(self, now: int) -> bool:
        """True if no limit but the day's needs what was counted."""
        mine = now - max(self[NEWEST_REQUEST], self[NEWEST_TOKENS]) >= WINDOW
        others = self[OTHERS_REQUESTS] or self[OTHERS_TOKENS] or self[OTHERS_OPEN]
        return mine and not (others and now - self[OTHERS_AT] < WINDOW) and not self.open_requests

    # --- what is open ---------------------------------------------------------------------------

    @property
    def open_requests(self) -> int:
        start = self._first + _OPEN
        return sum(self._cells[start : start + MOST_WORKERS])

    @property
    def reserved(self) -> int:
        start = self._first + _RESERVED
        return sum(self._cells[start : start + MOST_WORKERS])

    def open(self, number: int) -> None:
        self[_OPEN + self._column] += number

    def reserve(self, tokens: int) -> None:
        self[_RESERVED + self._column] += tokens

    def close_column(self, column: int) -> None:
        """Take back what a dead worker had open."""
        self[_OPEN + column] = self[_RESERVED + column] = 0
