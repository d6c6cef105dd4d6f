"""Times are those of the browser, or, where it does not name a zone, of the dashboard's machine."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
import streamlit as st

from dashboard.clock import moment

NOON = 1_767_960_000.0  # 2026-01-09 12:00:00 UTC


@pytest.fixture(autouse=True)
def _machine_in_kathmandu(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "Asia/Kathmandu")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.parametrize(
    ("zone", "shown"),
    [
        ("Asia/Tokyo", "2026-01-09 21:00:00 JST"),
        ("Mars/Phobos", "2026-01-09 17:45:00 +0545"),
        ("../etc/passwd", "2026-01-09 17:45:00 +0545"),
        (None, "2026-01-09 17:45:00 +0545"),
    ],
)
def test_a_time_is_that_of_the_browsers_zone_and_names_it(
    zone: str | None, shown: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(type(st.context), "timezone", zone)
    assert moment(NOON) == shown
    assert moment(NOON, "%H:%M") == shown[11:16]


def test_a_time_that_no_calendar_has_is_shown() -> None:
    assert moment(253_402_343_999.0) == "after 9999"
