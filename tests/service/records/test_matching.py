"""Each part of a query selects what it says."""

from __future__ import annotations

from typing import Any

import pytest

from observability.admin_api import RequestQuery
from observability.outcomes import OUTCOMES, OutcomeGroup
from service.records.matching import matcher, outcomes_named
from service.telemetry.requests import Telemetry
from service.telemetry.usage import usage_of_request
from tests.service.records.keeping import row
from tests.service.request_records import started


def test_a_group_selects_all_its_outcomes_and_a_name_itself() -> None:
    assert outcomes_named("stop") == {"stop"}
    assert outcomes_named("answered") == {"stop", "length", "tool_calls"}
    groups = [outcomes_named(group.name.lower()) for group in OutcomeGroup]
    assert set().union(*groups) == {one.name for one in OUTCOMES}


@pytest.mark.parametrize(
    ("part", "found"),
    [
        ({}, True),
        ({"key": "bob"}, True),
        ({"key": "alice"}, False),
        ({"model": "other"}, False),
        ({"route": "chat_completions"}, True),
        ({"route": "embeddings"}, False),
        ({"phase": "decode"}, True),
        ({"phase": "queue"}, False),
        ({"outcome": "answered"}, True),
        ({"outcome": "failed"}, False),
        ({"min_seconds": 1.0}, True),
        ({"min_seconds": 1.001}, False),
        ({"since": 102.0}, True),
        ({"since": 102.1}, False),
        ({"until": 102.0}, False),
        ({"until": 102.1}, True),
    ],
)
def test_a_request_is_selected_by_every_part_of_the_query(
    part: dict[str, Any], found: bool
) -> None:
    assert matcher(RequestQuery(**part))(row(1, key="bob")) is found


def test_times_select_among_ended_requests_only() -> None:
    live = row(1, live=True, ended=None)
    assert not matcher(RequestQuery(since=0.0))(live)
    assert matcher(RequestQuery(live=True, since=0.0))(live)


def test_a_request_without_a_key_or_model_is_found_by_what_usage_counts_it_under() -> None:
    nameless = row(1, key=None, model="")
    record = started(Telemetry(["m"], version="1"), key=None, model="")
    counted, _ = usage_of_request(record, 0.0)
    assert matcher(RequestQuery(key=counted.key, model=counted.model))(nameless)
    assert not matcher(RequestQuery(key=counted.key))(row(1, key="bob"))
    assert not matcher(RequestQuery(key="bob"))(nameless)
