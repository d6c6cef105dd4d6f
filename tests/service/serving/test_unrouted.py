"""What no route takes is counted and logged, with as much of its path as may be seen."""

from __future__ import annotations

import pytest

from service.serving.unrouted import MOST_PATH_CHARS, begin_unrouted
from service.telemetry.observer import NoTelemetry
from service.telemetry.record import RequestRecord


class Begun(NoTelemetry):
    def __init__(self) -> None:
        self.records: list[RequestRecord] = []

    def request_started(self, record: RequestRecord) -> None:
        self.records.append(record)


@pytest.mark.parametrize(
    ("path", "logged"),
    [
        ("/v1/v1/chat/completions", "/v1/v1/chat/completions"),
        ('/a b"\n{}ä', "/a*b*****"),
        ("/" + "x" * 1000, "/" + "x" * (MOST_PATH_CHARS - 1)),
    ],
)
def test_a_path_is_logged_cut_and_made_plain(path: str, logged: str) -> None:
    telemetry = Begun()
    record = RequestRecord("req_1", "none", "POST", "", 0.0, 0)
    exchange = begin_unrouted(record, path, telemetry)
    assert telemetry.records == [exchange.record] == [record]
    assert record.asked == logged
