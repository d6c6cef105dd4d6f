"""A row that hangs, or takes its process or the device along, costs itself; all others are
measured, in another process."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from bench.gpu.report import Report
from bench.gpu.supervised import note_of, supervise

CHILD = """
import os, signal, sys, threading
from pathlib import Path
from bench.gpu.report import Report

output, mode = Path(sys.argv[1]), sys.argv[2]
report = Report(output, "a GPU", [])
if mode == "resume":
    report.resume()
report.patience = 0.02  # a row may take a second
is_lost = []
report.is_usable = lambda: not is_lost

def row(name, measure, **options):
    if report.add(name, measure, **options) is not None:
        with open(output.with_suffix(".log"), "a") as log:
            log.write(name + "\\n")

def lose():
    is_lost.append(True)
    raise RuntimeError("CUDA error: an illegal memory access was encountered")

row("load", lambda: {"gb": 1}, always=True)
row("first", lambda: {"ms": 1})
row("hangs", threading.Event().wait)
row("second", lambda: {"ms": 2})
row("loses the device", lose)
row("third", lambda: {"ms": 3})
row("crashes", lambda: os.kill(os.getpid(), signal.SIGSEGV))
row("fails", lambda: 1 / 0)
row("last", lambda: {"ms": 4})
sys.exit(1 if report.failed else 0)
"""


def run(output: Path, child: str, seconds: float = 60.0) -> tuple[int, float]:
    """Return the exit status and the seconds that it took."""

    def command(left: float, is_resumed: bool) -> list[str]:
        assert left <= seconds
        return [sys.executable, "-c", child, str(output), "resume" if is_resumed else "begin"]

    def add_error(row: str, why: str) -> None:
        report = Report(output, "", [])
        report.resume()
        report.put({"row": row, "error": why})

    begin = time.monotonic()
    status = supervise(command, output, begin + seconds, add_error)
    assert not note_of(output).exists()
    return status, time.monotonic() - begin


def rows_of(output: Path) -> dict[str, dict[str, Any]]:
    result = json.loads(output.read_text())
    assert result["device"] == "a GPU"
    names = [row["row"] for row in result["rows"]]
    assert len(names) == len(set(names))
    return {row["row"]: row for row in result["rows"]}


@pytest.mark.integration
def test_a_row_that_hangs_or_crashes_loses_no_other(tmp_path: Path) -> None:
    output = tmp_path / "gpu.json"
    status, _ = run(output, CHILD)
    assert status == 1
    rows = rows_of(output)
    assert [rows[name].get("ms") for name in ("first", "second", "third", "last")] == [1, 2, 3, 4]
    assert rows["hangs"]["error"].startswith("it took far longer than such a row needs")
    assert "illegal memory access" in rows["loses the device"]["error"]
    assert rows["crashes"]["error"] == "its process ended with status -11"
    assert "division by zero" in rows["fails"]["error"]
    measured = output.with_suffix(".log").read_text().split("\n")
    # Models are loaded again, nothing is measured twice.
    assert [measured.count(name) for name in ("load", "first", "second", "last")] == [4, 1, 1, 1]
    page = output.with_suffix(".md").read_text()
    assert "- hangs: it took far longer" in page


# Without torch, so that it soon begins.
ENDLESS = """
import sys, threading
from pathlib import Path
from bench.gpu.supervised import under_way

with under_way(Path(sys.argv[1]), "hangs", 1000):
    threading.Event().wait()
"""


@pytest.mark.integration
def test_the_time_of_all_rows_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bench.gpu.supervised._GRACE_SECONDS", 0.0)
    output = tmp_path / "gpu.json"
    status, seconds = run(output, ENDLESS, seconds=5)
    assert status == 1
    assert seconds < 30
    [row] = json.loads(output.read_text())["rows"]
    assert row == {"row": "hangs", "error": "no time left, so its process was ended"}


@pytest.mark.integration
def test_a_child_that_ends_by_itself_is_the_only_one(tmp_path: Path) -> None:
    output = tmp_path / "gpu.json"
    assert run(output, "import sys; sys.exit(2)")[0] == 2
    assert run(output, "import os; os.abort()")[0] == 1
    assert not output.exists()
