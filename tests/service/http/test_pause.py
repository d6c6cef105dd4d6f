"""What the log has of a port that accepts no more connections."""

from __future__ import annotations

import time
from collections.abc import MutableMapping
from typing import Any

import pytest
from structlog.testing import capture_logs

from service.http.pause import PauseLog

BEGIN, END = "all connections of this API worker are in use", "accepting connections again"


def logged(
    monkeypatch: pytest.MonkeyPatch, *counts: tuple[int, int]
) -> list[MutableMapping[str, Any]]:
    """What is logged of 96 connections at most. ``counts``: seconds after the one before, and how
    many are open."""
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    pause = PauseLog()
    with capture_logs() as logs:
        for seconds, connections in counts:
            now[0] += seconds
            pause.note(connections, 96, 8000)
    return logs


def test_a_pause_and_its_end_are_logged_but_not_every_second(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    logs = logged(
        monkeypatch,
        *((0, 95), (1, 96), (1, 96), (2, 90)),  # a pause of three seconds
        *((1, 96), (1, 80)),  # another one too soon
        *((60, 97), (1, 96), (5, 0)),
    )
    assert [line["event"] for line in logs] == [BEGIN, END, BEGIN, END]
    assert [line.get("after_seconds") for line in logs] == [None, 3.0, None, 6.0]
    assert [line["log_level"] for line in logs] == ["warning", "info"] * 2
    assert {line["port"] for line in logs} == {8000}


def test_a_pause_that_begins_soon_after_another_and_lasts_is_logged_once_it_may_be(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    logs = logged(
        monkeypatch,
        *((0, 96), (1, 90)),
        *((9, 96), (20, 97), (30, 98), (40, 99), (30, 0)),  # 10, 30, 60, 100, 130 s later
    )
    assert [line["event"] for line in logs] == [BEGIN, END, BEGIN, END]
    assert [line.get("connections") for line in logs] == [96, None, 98, None]
    assert [line.get("after_seconds") for line in logs] == [None, 1.0, None, 120.0]
