"""Dates, times and names of hosts are those that the standard allows."""

from __future__ import annotations

import calendar
import json

import pytest

from service.constraint.schema import enforceable
from tests.service.constraint.grammars import enforced


def allowed(declared: str, text: str, **more: str) -> bool:
    read = enforceable({"type": "string", "format": declared, **more}, "s")
    assert not read.paths
    return enforced(read.schema, json.dumps(text))


@pytest.mark.parametrize("year", [0, 4, 1900, 1996, 2000, 2020, 2021, 2022, 2023, 2024, 2100, 9999])
def test_only_leap_years_have_a_29th_of_february(year: int) -> None:
    for declared, rest in (("date", ""), ("date-time", "T10:00:00Z")):
        assert allowed(declared, f"{year:04}-02-29{rest}") == calendar.isleap(year)
        assert allowed(declared, f"{year:04}-02-28{rest}")
        assert not allowed(declared, f"{year:04}-02-30{rest}")


@pytest.mark.parametrize("month", range(1, 13))
def test_each_month_has_its_days(month: int) -> None:
    _, days = calendar.monthrange(2023, month)
    for day in (1, 9, 10, 19, 20, 28, days):
        assert allowed("date", f"2023-{month:02}-{day:02}")
    assert not allowed("date", f"2023-{month:02}-{days + 1:02}")
    assert not allowed("date", f"2023-{month:02}-00")


@pytest.mark.parametrize(
    ("time", "is_one"),
    [
        *((f"{hour}:{rest}", True) for hour in ("00", "19", "23") for rest in ("00:59Z", "59:00z")),
        *(("10:00:09.25+05:30", True), ("10:00:00-00:00", True), ("10:00:00", False)),
        *(("23:59:60Z", True), ("23:59:60.5z", True), ("23:59:60+00:00", True)),
        *(("10:00:60Z", False), ("23:58:60Z", False), ("23:59:60+01:00", False)),
        ("24:00:00Z", False),
    ],
)
def test_a_leap_second_ends_a_day(time: str, is_one: bool) -> None:
    assert allowed("time", time) == is_one
    assert allowed("date-time", f"2016-12-31T{time}") == is_one


def test_a_host_s_name_is_bounded() -> None:
    label = "a" * 49
    assert allowed("hostname", ".".join([label] * 5 + ["bcd"]))
    assert not allowed("hostname", ".".join([label] * 5 + ["bcde"]))


def test_a_pattern_next_to_a_format_holds_as_well() -> None:
    assert allowed("date", "2024-02-29", pattern="^2024")
    assert not allowed("date", "2023-02-29", pattern="^2023")
    assert not allowed("date", "2024-02-29", pattern="^2023")
