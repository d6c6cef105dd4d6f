"""Prints and writes rows as soon as they are known, so that an interrupted run keeps its rows."""

from __future__ import annotations

import datetime
import json
import math
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from bench.gpu.page import page
from bench.report import versions

Row = dict[str, Any]


@dataclass
class Report:
    """``only``: parts of the names of requested rows; empty: all. ``until``: rows that would not
    end before this time (of ``time.monotonic``) are left out. The page for people has the
    same name, with another ending."""

    path: Path
    device: str
    only: list[str]
    until: float = math.inf
    rows: list[Row] = field(default_factory=list)
    facts: Row = field(default_factory=dict)
    failed: bool = False

    def wants(self, name: str) -> bool:
        return not self.only or any(part in name for part in self.only)

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
        result."""
        if not (always or self.wants(name)):
            return None
        begin = time.monotonic()
        if begin + needs > self.until:
            why_not = why_not or "no time left"
        if why_not:
            row: Row = {"row": name, "left_out": why_not}
        else:
            try:
                row = {"row": name, **measure()}
            except Exception as error:
                traceback.print_exc()
                self.failed = True
                row = {"row": name, "error": f"{type(error).__name__}: {error}"[:400]}
            row["took_s"] = round(time.monotonic() - begin, 1)
        self.rows.append(row)
        print(line(row), flush=True)
        self.write()
        return row

    def write(self) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        result = {
            "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
            "device": self.device,
            "versions": versions("torch", "triton", "msgspec") | {"cuda": torch.version.cuda},
            **self.facts,
            "rows": self.rows,
        }
        self.path.write_text(json.dumps(result, indent=1) + "\n")
        self.path.with_suffix(".md").write_text(page(result))


def line(row: Row) -> str:
    cells = [f"{key}={_cell(value)}" for key, value in row.items() if key != "row"]
    return f"{row['row']:44} " + "  ".join(cells)


def _cell(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"
    return str(value)
