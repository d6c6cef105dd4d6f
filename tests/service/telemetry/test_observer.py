"""Whoever watches nothing can be put wherever telemetry is."""

from __future__ import annotations

import inspect

import pytest

from service.telemetry.observer import NoTelemetry, Telemetry
from service.telemetry.requests import Telemetry as RealTelemetry
from tests.service.request_records import answered, started
from tests.service.telemetry.watched import step

CALLS = [name for name, value in vars(Telemetry).items() if inspect.isfunction(value)]


@pytest.mark.parametrize("watcher", [NoTelemetry, RealTelemetry])
@pytest.mark.parametrize("name", [name for name in CALLS if not name.startswith("_")])
def test_every_watcher_takes_every_call(watcher: type, name: str) -> None:
    asked = inspect.signature(getattr(Telemetry, name)).parameters
    assert list(inspect.signature(getattr(watcher, name)).parameters) == list(asked)


def test_who_watches_nothing_changes_no_record_and_has_an_empty_page(
    telemetry: RealTelemetry,
) -> None:
    nobody = NoTelemetry()
    record = answered(telemetry)
    before = repr(record)
    nobody.request_started(record)
    nobody.first_token(record)
    nobody.request_finished(record)
    nobody.on_step(step(1.0, [1]))
    assert repr(record) == before
    pieces, content_type = nobody.exposition_pieces("*/*")
    assert (list(pieces), content_type.split(";")[0]) == ([], "text/plain")


def test_a_request_that_begins_is_given_its_trace(telemetry: RealTelemetry) -> None:
    record = started(telemetry)
    assert (len(record.trace_id), len(record.span_id)) == (32, 16)
