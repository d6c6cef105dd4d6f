"""Rows are written one by one; what fails becomes its row, what comes too late is left out."""

from __future__ import annotations

import json
import time
from pathlib import Path

from bench.gpu.report import Report, Row


def test_a_row_that_would_end_too_late_is_left_out(tmp_path: Path) -> None:
    report = Report(tmp_path / "gpu.json", "a GPU", [], until=time.monotonic() + 30)
    report.add("long", lambda: {"ms": 1.0}, needs=60)
    report.add("short", lambda: {"ms": 2.0}, needs=5)
    long, short = json.loads(report.path.read_text())["rows"]
    assert long["left_out"] == "no time left"
    assert short["ms"] == 2.0
    assert not report.failed


def test_an_exception_becomes_the_row_and_the_others_stay(tmp_path: Path) -> None:
    report = Report(tmp_path / "gpu.json", "a GPU", ["b"])

    def fail() -> Row:
        raise ValueError("no such kernel")

    assert report.add("a", fail) is None
    report.add("b", fail)
    report.add("bb", lambda: {"us": 1.0})
    assert report.failed
    rows = json.loads(report.path.read_text())["rows"]
    assert [row.get("error") for row in rows] == ["ValueError: no such kernel", None]
    assert "b: ValueError: no such kernel" in report.path.with_suffix(".md").read_text()
