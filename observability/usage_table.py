"""What each key used of each model and route in each hour, in a worker's ledger, until the database
has it: neither a killed worker nor an absent database loses any of it.

A row holds the figures of one hour and group since the ledger was made, so that they can be stored
as they are, again and again: the larger figure is the newer one. Rows of past hours are released
once they are stored.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from observability.key_names import KeyNames
from observability.layout import USAGE_HEAD, USAGE_WIDTH
from observability.ledger import WorkerLedger

_HOUR_SECONDS = 3600
_GROUP_BITS = 30  # an hour since 1970 takes 19 more; a cell holds 53 exactly
_BOOT_BITS = 53
_RELEASED_AT_ONCE = 32  # rows in one transaction


class UsageGroup(NamedTuple):
    """``key``: an alias."""

    key: str
    model: str
    route: str


class UsageFigures(NamedTuple):
    """``prompt_tokens`` includes ``cached_tokens``."""

    requests: float = 1.0
    errors: float = 0.0
    prompt_tokens: float = 0.0
    cached_tokens: float = 0.0
    output_tokens: float = 0.0
    reasoning_tokens: float = 0.0
    seconds: float = 0.0


assert 1 + len(UsageFigures._fields) == USAGE_WIDTH


class HourlyUsage(NamedTuple):
    """``hour``: since the epoch."""

    row: int
    hour: int
    group: UsageGroup
    figures: UsageFigures


class UsageTable:
    """``keys``, ``models`` and ``routes``: the names that a group can have, the same in each worker
    of a ledger; the last of each is that of everything else. Further keys get numbers as they are
    used, see ``KeyNames``."""

    def __init__(
        self,
        ledger: WorkerLedger,
        keys: Sequence[str],
        models: Sequence[str],
        routes: Sequence[str],
    ) -> None:
        self._ledger = ledger
        self._keys = KeyNames(ledger, keys)
        self._models, self._routes = tuple(models), tuple(routes)
        if len(self._keys) * len(models) * len(routes) >= 1 << _GROUP_BITS:
            raise ValueError("too many API keys and model names to count usage for each")
        self._numbers: dict[UsageGroup, int] = {}
        self._boot_cell = ledger.layout.usage_cells
        self._hour_cell = self._boot_cell + 1
        self._first = self._boot_cell + USAGE_HEAD
        if not ledger.cells[self._boot_cell]:
            ledger.set(self._boot_cell, 1 + secrets.randbits(_BOOT_BITS - 1))
        self._rows: dict[tuple[int, int], int] = {}  # by hour and group
        self._free: list[int] = []
        for row in reversed(range(ledger.layout.usage_rows)):
            tag = int(ledger.cells[self._cell(row)])
            if tag:
                self._rows[(tag >> _GROUP_BITS, tag & (1 << _GROUP_BITS) - 1)] = row
            else:
                self._free.append(row)

    @property
    def boot_id(self) -> int:
        """Of all workers that counted in this ledger."""
        return int(self._ledger.cells[self._boot_cell])

    def _cell(self, row: int) -> int:
        return self._first + row * USAGE_WIDTH

    def count(self, time: float, group: UsageGroup, figures: UsageFigures) -> None:
        """Add figures to an hour: that of ``time``, or the newest so far if the clock was set
        back. Call it in a transaction."""
        ledger = self._ledger
        hour = max(int(time) // _HOUR_SECONDS, int(ledger.cells[self._hour_cell]))
        cell = self._cell(self._row(hour, self._number(group)))
        ledger.set(self._hour_cell, hour)
        for amount in figures:
            cell += 1
            if amount:
                ledger.add(cell, amount)

    def _number(self, group: UsageGroup) -> int:
        found = self._numbers.get(group)
        if found is None:
            key = self._keys.number_of(group.key)
            model, route = (
                names.index(name) if name in names else len(names) - 1
                for name, names in ((group.model, self._models), (group.route, self._routes))
            )
            found = (key * len(self._models) + model) * len(self._routes) + route
            if len(self._numbers) < self._ledger.layout.usage_rows:
                self._numbers[group] = found
        return found

    def _group(self, number: int) -> UsageGroup:
        rest, route = divmod(number, len(self._routes))
        key, model = divmod(rest, len(self._models))
        return UsageGroup(self._keys[key], self._models[model], self._routes[route])

    def _row(self, hour: int, group: int) -> int:
        row = self._rows.get((hour, group))
        if row is not None:
            return row
        if not self._free:
            return self._crowded(group)
        row = self._rows[(hour, group)] = self._free.pop()
        self._ledger.set(self._cell(row), hour << _GROUP_BITS | group)
        return row

    def _crowded(self, group: int) -> int:
        """Return the row to count in if the database has been away for so long that none is free:
        of an earlier hour of the group, else of its key, else any. So sums stay right."""
        per_key = len(self._models) * len(self._routes)

        def likeness(tag: tuple[int, int]) -> tuple[bool, bool, int]:
            hour, other = tag
            return other == group, other // per_key == group // per_key, hour

        return self._rows[max(self._rows, key=likeness)]

    def rows(self) -> list[HourlyUsage]:
        """Return what has been counted and not been released."""
        cells = self._ledger.cells
        found = []
        for (hour, number), row in self._rows.items():
            first = self._cell(row) + 1
            figures = UsageFigures(*cells[first : first + USAGE_WIDTH - 1])
            found.append(HourlyUsage(row, hour, self._group(number), figures))
        return found

    def release(self, stored: Iterable[HourlyUsage]) -> None:
        """Free the rows of past hours that have not changed since ``rows`` returned them."""
        newest = int(self._ledger.cells[self._hour_cell])
        tags = {row: tag for tag, row in self._rows.items()}
        past = [one for one in stored if one.hour < newest and self._is_current(one)]
        for start in range(0, len(past), _RELEASED_AT_ONCE):
            with self._ledger:
                for one in past[start : start + _RELEASED_AT_ONCE]:
                    cell = self._cell(one.row)
                    for offset in range(USAGE_WIDTH):
                        self._ledger.set(cell + offset, 0.0)
                    del self._rows[tags[one.row]]
                    self._free.append(one.row)

    def _is_current(self, one: HourlyUsage) -> bool:
        first = self._cell(one.row) + 1
        return UsageFigures(*self._ledger.cells[first : first + USAGE_WIDTH - 1]) == one.figures
