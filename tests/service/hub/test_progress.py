"""How far a download is, as the files show it."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest

from service.hub import progress
from service.hub.place import ModelPlace
from service.hub.progress import LogLines, Progress, TerminalBar, bytes_there
from service.hub.wanted import HubFile

COMMIT = "a" * 40
FILES = [HubFile("one", 100, "1" * 64), HubFile("sub/two", 50, "2" * 64)]


def place(cache: Path) -> ModelPlace:
    found = ModelPlace("owner/name", "main", cache)
    found.blobs.mkdir(parents=True)
    (found.snapshot(COMMIT) / "sub").mkdir(parents=True)
    return found


def test_finished_files_and_the_longest_part_of_others_count(tmp_path: Path) -> None:
    where = place(tmp_path)
    assert bytes_there(where, COMMIT, FILES) == 0
    for name, size in (("a", 30), ("b", 70)):
        (where.blobs / f"{'1' * 64}.{name}.incomplete").write_bytes(bytes(size))
    (where.blobs / f"{'9' * 64}.a.incomplete").write_bytes(bytes(5))  # of another file
    assert bytes_there(where, COMMIT, FILES) == 70
    (where.snapshot(COMMIT) / "sub" / "two").write_bytes(b"x")
    assert bytes_there(where, COMMIT, FILES) == 120
    (where.snapshot(COMMIT) / "one").write_bytes(b"x")
    assert bytes_there(where, COMMIT, FILES) == 150


def test_it_reports_at_the_beginning_meanwhile_and_at_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "PROGRESS_SECONDS", 0.001)
    where, seen = place(tmp_path), []
    with Progress(where, COMMIT, FILES, [lambda done, total: seen.append((done, total))]) as one:
        assert seen[0] == (0, 150)
        (where.snapshot(COMMIT) / "one").touch()
        while seen[-1] == (0, 150):
            one._stop.wait(0.001)
        (where.snapshot(COMMIT) / "sub" / "two").touch()
    assert seen[-1] == (150, 150)
    assert (100, 150) in seen


def test_a_bar_is_one_line_with_what_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [10.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    stream = io.StringIO()
    bar = TerminalBar("owner/name", stream)
    bar(0, 4_000_000)
    now[0] += 5
    bar(1_000_000, 4_000_000)
    bar.end()
    assert stream.getvalue().split("\r\x1b[K")[1:] == [
        "owner/name [                    ] 0 B of 4.0 MB",
        "owner/name [#####               ] 1.0 MB of 4.0 MB, 15 s left\n",
    ]


def test_a_bar_that_showed_nothing_ends_without_a_line() -> None:
    stream = io.StringIO()
    TerminalBar("owner/name", stream).end()
    assert stream.getvalue() == ""


def test_the_log_gets_a_line_every_ten_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    now, lines = [100.0], []

    class Log:
        def info(self, event: str, **fields: Any) -> None:
            lines.append({"event": event, **fields})

    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(progress, "_log", Log())
    show = LogLines("owner/name")
    for second in range(21):
        now[0] = 100.0 + second
        show(second * 10, 1000)
    common = {"event": "downloading", "model": "owner/name", "total_bytes": 1000}
    assert lines == [
        {**common, "done_bytes": 0},
        {**common, "done_bytes": 100, "seconds_left": 90},
        {**common, "done_bytes": 200, "seconds_left": 80},
    ]
