"""What a request adds to its key's usage."""

from __future__ import annotations

from observability.catalogue import OTHER_KEY, OTHER_MODEL
from observability.usage_table import UsageFigures, UsageGroup
from service.telemetry.requests import Telemetry
from service.telemetry.usage import usage_of_request
from tests.service.request_records import sequence, started


def test_tokens_and_seconds_of_a_request_that_the_engine_worked_on() -> None:
    telemetry = Telemetry(["m"], version="1", keys=["alice"])
    record = started(telemetry, key="alice", model="m", outcome="stop", reasoning_tokens=3)
    record.prompt_tokens, record.cached_tokens, record.output_tokens = 20, 16, 11
    record.sequences = [sequence()]
    assert usage_of_request(record, record.received_time + 2.0) == (
        UsageGroup("alice", "m", "chat_completions"),
        UsageFigures(1, 0, 20, 16, 11, 3, 2.0),
    )


def test_a_refused_request_uses_no_tokens_and_may_have_no_key() -> None:
    telemetry = Telemetry(["m"], version="1")
    record = started(telemetry, key=None, model="", outcome="refused:overloaded")
    record.prompt_tokens = 20
    group, figures = usage_of_request(record, record.received_time)
    assert group == UsageGroup(OTHER_KEY, OTHER_MODEL, "chat_completions")
    assert figures == UsageFigures()


def test_a_request_that_never_ran_uses_no_tokens_and_a_failed_one_is_an_error() -> None:
    telemetry = Telemetry(["m"], version="1")
    record = started(telemetry, model="m", outcome="error:engine")
    record.prompt_tokens = 20
    record.sequences = [sequence(first_scheduled_time=None)]
    _, figures = usage_of_request(record, record.received_time)
    assert figures == UsageFigures(errors=1)


def test_telemetry_counts_each_request_once() -> None:
    telemetry = Telemetry(["m"], version="1", keys=["alice"])
    for _ in range(2):
        record = started(telemetry, key="alice", model="m", outcome="stop", status=200)
        telemetry.request_finished(record)
    [row] = telemetry.usage.rows()
    assert row.group.key == "alice"
    assert row.figures.requests == 2
