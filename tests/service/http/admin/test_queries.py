"""Query strings of the admin API."""

from __future__ import annotations

import re

import pytest

from observability.admin_api import RequestQuery
from service.admin.problem import ProblemError
from service.http.admin.queries import export_query, moment, number, only, request_query


def test_the_design_s_example() -> None:
    query = request_query(
        {"state": "live", "sort": "-total", "key": "bob", "min_ms": "2000", "phase": "queue"}
    )
    assert query == RequestQuery(
        live=True, sort="-total", key="bob", min_seconds=2.0, phase="queue"
    )


@pytest.mark.parametrize(
    ("text", "seconds"), [("30s", 970), ("5m", 700), ("0h", 1000), ("12.5", 12.5), ("0", 0)]
)
def test_moments(text: str, seconds: float) -> None:
    assert moment({"since": text}, "since", now=1000) == seconds


@pytest.mark.parametrize(
    "text",
    [
        *("", "soon", "-1", "nan", "inf", "5 m", "9999999999d", "1e999", "1e23", "1" * 1000, "1_0"),
        *("٣", " 5", "0x10", "1.2.3"),
    ],
)
def test_no_moments(text: str) -> None:
    with pytest.raises(ProblemError) as caught:
        moment({"since": text}, "since")
    assert caught.value.field == "since"


@pytest.mark.parametrize(
    "wrong",
    [
        {"state": "dead"},
        {"sort": "prompt"},
        {"sort": "--total"},
        {"limit": "1001"},
        {"limit": "nan"},
        {"min_ms": "-1"},
        {"phase": "lunch"},
        {"route": "/v1/models"},
        {"outcome": "nonsense"},
        {"order": "asc"},
        {"key": "x" * 1100},
        {"key": ""},
        {"model": ""},
        {"since": "5m", "until": "1h"},
        {"since": "5m", "until": "5m"},
    ],
)
def test_wrong_queries_name_the_parameter(wrong: dict[str, str]) -> None:
    with pytest.raises(ProblemError) as caught:
        request_query(wrong)
    assert (caught.value.status, caught.value.field) == (422, next(iter(wrong)))


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"min_ms": "-1"}, "'min_ms' must be a number from 0 to 1,000,000,000."),
        ({"since": "20", "until": "10"}, "'since' must be before 'until'."),
        ({"since": "1e12"}, "'since' must be epoch seconds, from 0 to 100,000,000,000, or how"),
    ],
)
def test_bounds_are_written_as_people_do(wrong: dict[str, str], words: str) -> None:
    with pytest.raises(ProblemError, match=re.escape(words)):
        request_query(wrong)


def test_a_path_without_parameters_says_so() -> None:
    with pytest.raises(ProblemError, match="it takes none"):
        only({"x": "1"})
    assert number({}, "limit", 5, 1, 10) == 5


@pytest.mark.parametrize("name", ["state", "sort", "limit", "cursor"])
def test_an_export_has_no_order_and_no_pages(name: str) -> None:
    with pytest.raises(ProblemError) as caught:
        export_query({"since": "1h", name: "1"})
    assert caught.value.field == name
