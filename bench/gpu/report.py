"""Prints and writes rows as soon as they are known, so that an interrupted run keeps its rows, and
the next process can add those that are missing."""

from __future__ import annotations

import datetime
import json
import math
import os
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from bench.gpu.page import page
from bench.gpu.supervised import DEVICE_LOST, under_way
from bench.report import versions

Row = dict[str, Any]
# Of a result, besides its facts.
_FIXED = ("date", "device", "versions", "rows")
# A row that takes so many seconds and so many times what it needs hangs.
_SLACK, _MOST = 30.0, 3.0


@dataclass
class Report:
    """``only``: parts of the names of requested rows; empty: all. ``until``: rows that would not
    end before this time (of ``time.monotonic``) are left out. The page for people has the
    same name, with another ending. ``patience``: how much longer than on a GPU a row may take.
    ``is_usable``: whether other rows can be measured after one that failed; if not, this process
    ends."""

    path: Path
    device: str
    only: list[str]
    until: float = math.inf
    rows: list[Row] = field(default_factory=list)
    facts: Row = field(default_factory=dict)
    failed: bool = False
    patience: float = 1.0
    is_usable: Callable[[], bool] = lambda: True

    def resume(self) -> None:
        """Continue what another process has begun: the rows that it has written are not measured
        again."""
        if not self.path.exists():
            return
        result = json.loads(self.path.read_text())
        self.device = self.device or result["device"]
        self.rows = result["rows"]
        self.facts = {name: value for name, value in result.items() if name not in _FIXED}
        self.failed = any("error" in row for row in self.rows)

    def found(self, name: str) -> Row | None:
        """Return the row of that name, if it is known."""
        return next((row for row in self.rows if row["row"] == name), None)

    def wants(self, name: str) -> bool:
        asked = not self.only or any(part in name for part in self.only)
        return asked and self.found(name) is None

    def add(
        self,
        name: str,
        measure: Callable[[], Row],
        *,
        always: bool = False,
        needs: float = 5,
        why_not: str = "",
    ) -> Row | None:
        """Add one row from ``measure``, if it was requested and ``needs`` seconds are left.
        ``why_not``: why it cannot be measured here, if so. An exception becomes the row's
        result. ``always``: in each process, unless it has failed in one."""
        if not (always or self.wants(name)) or "error" in (self.found(name) or ()):
            return None
        begin = time.monotonic()
        if begin + needs > self.until:
            why_not = why_not or "no time left"
        if why_not:
            row: Row = {"row": name, "left_out": why_not}
        else:
            try:
                with under_way(self.path, name, self.patience * (_SLACK + _MOST * needs)):
                    row = {"row": name, **measure()}
            except Exception as error:
                traceback.print_exc()
                row = {"row": name, "error": f"{type(error).__name__}: {error}"[:400]}
            row["took_s"] = round(time.monotonic() - begin, 1)
        self.put(row)
        if "error" in row and not self.is_usable():
            os._exit(DEVICE_LOST)
        return row

    def put(self, row: Row) -> None:
        """Add a row that is known, in place of one of the same name."""
        self.rows = [each for each in self.rows if each["row"] != row["row"]] + [row]
        self.failed = self.failed or "error" in row
        print(line(row), flush=True)
        self.write()

    def write(self) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        result = {
            "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
            "device": self.device,
            "versions": versions("torch", "triton", "msgspec") | {"cuda": torch.version.cuda},
            **self.facts,
            "rows": self.rows,
        }
        # Whole or not at all: this process may be ended at any time.
        for path, text in (
            (self.path, json.dumps(result, indent=1) + "\n"),
            (self.path.with_suffix(".md"), page(result)),
        ):
            written = path.with_name(path.name + "-new")
            written.write_text(text)
            written.replace(path)


def line(row: Row) -> str:
    cells = [f"{key}={_cell(value)}" for key, value in row.items() if key != "row"]
    return f"{row['row']:44} " + "  ".join(cells)


def _cell(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"
    return str(value)
