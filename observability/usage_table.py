"""What each key used of each model and route in each hour, in a worker's ledger, until the database
has it: neither a killed worker nor an absent database loses any of it.

A row holds the figures of one hour and group since the ledger was made, so that they can be stored
as they are, again and again: the larger figure is the newer one. Rows of past hours are released
once they are stored. If there are more groups than rows, so are rows of this hour: their figures
are set aside, and the next row of the group continues them. A next worker does not have these
figures: its rows begin a new ``epoch``, which is stored apart. So do rows that are made after the
clock was set back to hours whose rows may have been released.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from observability.key_names import KeyNames
from observability.layout import USAGE_HEAD, USAGE_WIDTH
from observability.ledger import WorkerLedger
from observability.logging import get_logger

_HOUR_SECONDS = 3600
_GROUP_BITS = 30  # an hour since 1970 takes 19 more; a cell holds 53 exactly
_BOOT_BITS = 53
_RELEASED_AT_ONCE = 32  # rows in one transaction
# Of the rows: when fewer are free, some of this hour are released, until more are.
_FEW, _ENOUGH = 0.25, 0.5
_MOST_SET_ASIDE = 50_000  # groups, of about 300 bytes
# How far the clock may be set back while usage still counts in the newest hour.
_MOST_HOURS_BACK = 1

_log = get_logger()


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


# After the hour and group of a row, and its epoch.
_FIGURES_AT = 2
assert _FIGURES_AT + len(UsageFigures._fields) == USAGE_WIDTH


class HourlyUsage(NamedTuple):
    """``hour``: since 1970. ``epoch``: figures of one hour and group but of several epochs add
    up."""

    row: int
    hour: int
    group: UsageGroup
    figures: UsageFigures
    epoch: int = 0


_Tag = tuple[int, int]  # hour and group


class UsageTable:
    """``keys``, ``models`` and ``routes``: the names that a group can have, the same in each worker
    of a ledger; the last of each is that of everything else. Further keys get numbers as they are
    used, see ``KeyNames``.

    A key is never charged for what another used: if there is neither a free row nor one of the key,
    a row of everything else counts, for which the last one is reserved. ``overflowed``: so
    many requests had a key, but were counted there."""

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
        self._per_key = len(models) * len(routes)
        self._rest_key = len(keys) - 1
        self._rest = len(keys) * self._per_key - 1  # the group
        self.overflowed = 0
        self._numbers: dict[UsageGroup, int] = {}
        self._boot_cell = ledger.layout.usage_cells
        self._hour_cell = self._boot_cell + 1
        self._epoch_cell = self._boot_cell + 2
        self._first = self._boot_cell + USAGE_HEAD
        if not ledger.cells[self._boot_cell]:
            ledger.set(self._boot_cell, 1 + secrets.randbits(_BOOT_BITS - 1))
        # Kept here, too: a change to the ledger cannot be read before its transaction has ended.
        self._epoch = int(ledger.cells[self._epoch_cell]) + 1
        ledger.set(self._epoch_cell, self._epoch)
        self._rows: dict[_Tag, int] = {}
        self._of_key: dict[int, dict[_Tag, int]] = {}  # the same rows, by key
        self._free: list[int] = []
        self._set_aside: dict[_Tag, tuple[int, UsageFigures]] = {}  # epoch and figures
        for row in reversed(range(ledger.layout.usage_rows)):
            tag = int(ledger.cells[self._cell(row)])
            if tag:
                self._enter(row, (tag >> _GROUP_BITS, tag & (1 << _GROUP_BITS) - 1))
            else:
                self._free.append(row)

    @property
    def boot_id(self) -> int:
        """Of all workers that counted in this ledger."""
        return int(self._ledger.cells[self._boot_cell])

    def _cell(self, row: int) -> int:
        return self._first + row * USAGE_WIDTH

    @property
    def is_crowded(self) -> bool:
        """True if rows should be stored soon, so that some can be released."""
        return len(self._free) < _FEW * self._ledger.layout.usage_rows

    def count(self, time: float, group: UsageGroup, figures: UsageFigures) -> None:
        """Add figures to an hour: that of ``time``, or the newest so far if ``time`` is earlier
        by at most ``_MOST_HOURS_BACK``. Call it in a transaction."""
        ledger = self._ledger
        hour, newest = int(time) // _HOUR_SECONDS, int(ledger.cells[self._hour_cell])
        if newest - hour > _MOST_HOURS_BACK:
            self._begin_epoch(newest - hour)
        else:
            hour = max(hour, newest)
        number = self._number(group)
        if number // self._per_key == self._rest_key and group.key != self._keys[self._rest_key]:
            self.overflowed += 1
        cell = self._cell(self._row(hour, number)) + _FIGURES_AT
        ledger.set(self._hour_cell, hour)
        for offset, amount in enumerate(figures):
            if amount:
                ledger.add(cell + offset, amount)

    def _begin_epoch(self, hours_back: int) -> None:
        """Hours are about to repeat, and the figures of their released rows are not known here."""
        self._epoch += 1
        self._ledger.set(self._epoch_cell, self._epoch)
        _log.warning(
            "the clock was set back; usage now counts in the hours that it shows, and what was "
            "counted before stays in the later hours",
            hours=hours_back,
        )

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
        if len(self._free) < 2 and not (self._free and group == self._rest):
            return self._crowded(hour, group)
        return self._new_row(hour, group)

    def _new_row(self, hour: int, group: int) -> int:
        ledger, row = self._ledger, self._free.pop()
        self._enter(row, (hour, group))
        cell = self._cell(row)
        ledger.set(cell, hour << _GROUP_BITS | group)
        epoch = self._epoch
        figures: Sequence[float] = ()
        if self._set_aside:
            epoch, figures = self._set_aside.pop((hour, group), (epoch, figures))
        ledger.set(cell + 1, epoch)
        for offset, figure in enumerate(figures):
            ledger.set(cell + _FIGURES_AT + offset, figure)
        return row

    def _enter(self, row: int, tag: _Tag) -> None:
        self._rows[tag] = row
        self._of_key.setdefault(tag[1] // self._per_key, {})[tag] = row

    def _crowded(self, hour: int, group: int) -> int:
        """Return the row to count in if none is free: of an earlier hour of the group, else of its
        key, else of everything else. So sums stay right."""
        rows = self._of_key.get(group // self._per_key)
        if rows is None:
            self.overflowed += group // self._per_key != self._rest_key
            rows = self._of_key.get(self._rest_key)
        if rows is None:
            return self._new_row(hour, self._rest)
        return rows[max(rows, key=lambda tag: (tag[1] == group, tag))]

    def rows(self) -> list[HourlyUsage]:
        """Return what has been counted and not been released."""
        cells = self._ledger.cells
        found = []
        for (hour, number), row in self._rows.items():
            epoch = int(cells[self._cell(row) + 1])
            found.append(HourlyUsage(row, hour, self._group(number), self._figures(row), epoch))
        return found

    def _figures(self, row: int) -> UsageFigures:
        first = self._cell(row) + _FIGURES_AT
        return UsageFigures(*self._ledger.cells[first : first + USAGE_WIDTH - _FIGURES_AT])

    def release(self, stored: Iterable[HourlyUsage]) -> None:
        """Free the rows of other hours that have not changed since ``rows`` returned them, and if
        few rows are free, also of this hour, the first ones first."""
        newest = int(self._ledger.cells[self._hour_cell])
        self._set_aside = {tag: one for tag, one in self._set_aside.items() if tag[0] == newest}
        current = [one for one in stored if self._figures(one.row) == one.figures]
        freed = [one for one in current if one.hour != newest]
        if self.is_crowded:
            wanted = round(_ENOUGH * self._ledger.layout.usage_rows) - len(self._free) - len(freed)
            wanted = min(wanted, _MOST_SET_ASIDE - len(self._set_aside))
            freed += [one for one in current if one.hour == newest][: max(0, wanted)]
        tags = {row: tag for tag, row in self._rows.items()}
        for start in range(0, len(freed), _RELEASED_AT_ONCE):
            with self._ledger:
                for one in freed[start : start + _RELEASED_AT_ONCE]:
                    self._free_row(one, tags[one.row], newest)

    def _free_row(self, one: HourlyUsage, tag: _Tag, newest: int) -> None:
        cell = self._cell(one.row)
        for offset in range(USAGE_WIDTH):
            self._ledger.set(cell + offset, 0.0)
        if one.hour == newest:
            self._set_aside[tag] = one.epoch, one.figures
        del self._rows[tag]
        of_key = self._of_key[tag[1] // self._per_key]
        del of_key[tag]
        if not of_key:
            del self._of_key[tag[1] // self._per_key]
        self._free.append(one.row)
