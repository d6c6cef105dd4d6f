"""What a worker answers the others for itself."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from observability.admin_api import KeptRequest, RequestQuery
from service.admin.audit import AuditTrail
from service.admin.hot_settings import HotSettings, Knob
from service.admin.own_part import (
    AUDIT_OF,
    CANCEL_AT,
    DRAIN_OF,
    FIND_AT,
    ROWS_OF,
    SETTINGS_OF,
    OwnPart,
    Question,
    remembered,
)
from service.admin.part_messages import (
    AuditAsk,
    DrainAsk,
    RequestName,
    SettingsAsk,
)
from service.records.records import Records
from service.records.row import row_of
from tests.service.serving.by_hand import loaded, services


class Part:
    """A worker's part, with what it reads and changes."""

    def __init__(self, **settings: Any) -> None:
        self.services = services(loaded(), **settings)
        self.value = 3
        knob = Knob("most", "", "int", lambda: self.value, self.set, minimum=1, maximum=9)
        self.settings = HotSettings([knob])
        self.audit = AuditTrail()
        self.own = OwnPart(self.services, self.settings, self.audit, {})

    def set(self, value: int) -> None:
        self.value = value

    async def over_the_wire(self, question: Question[Any, Any], asked: Any) -> Any:
        told = await self.own.calls()[question.path](msgspec.msgpack.encode(asked))
        answer = msgspec.msgpack.decode(told, type=question.told)
        assert answer == await self.own.answer(question, asked)
        return answer


async def test_every_question_has_an_answer_and_no_two_a_path() -> None:
    assert len(Part().own.calls()) == 12


async def test_settings_are_taken_over_with_who_changed_them() -> None:
    part = Part()
    before = (await part.over_the_wire(SETTINGS_OF, SettingsAsk())).revision
    told = await part.own.answer(SETTINGS_OF, SettingsAsk({"most": 5}, "ann"))
    assert part.value == 5
    assert told.changed == {"most": (5, "ann")}
    assert told.revision != before
    assert (await part.over_the_wire(SETTINGS_OF, SettingsAsk())) == told


async def test_a_drain_is_looked_at_and_changed() -> None:
    part = Part()
    assert not (await part.over_the_wire(DRAIN_OF, DrainAsk())).is_held
    assert (await part.over_the_wire(DRAIN_OF, DrainAsk(held=True))).is_held
    assert part.services.drain.draining
    assert (await part.over_the_wire(DRAIN_OF, DrainAsk())).is_held
    assert not (await part.over_the_wire(DRAIN_OF, DrainAsk(held=False))).is_held


async def test_what_is_not_there_is_not_found() -> None:
    part = Part()
    assert (await part.over_the_wire(FIND_AT, RequestName("req_0"))).request is None
    assert (await part.over_the_wire(CANCEL_AT, RequestName("req_0"))).request_id == ""


async def test_rows_and_audit_rows_arrive_as_they_are() -> None:
    part = Part()
    part.audit.add("ann", "127.0.0.1", "drain")
    rows = (await part.over_the_wire(AUDIT_OF, AuditAsk(10))).rows
    assert [row.action for row in rows] == ["drain"]
    kept = KeptRequest(request_id="req_a", received=1.0, ended=2.0, route="completions")
    part.services.records._keep(row_of(kept))
    page = await part.over_the_wire(ROWS_OF, RequestQuery())
    assert [row.request() for row in page.rows][-1:] == [kept]


@pytest.mark.parametrize(
    ("query", "is_complete"),
    [
        (RequestQuery(live=True), True),
        (RequestQuery(), False),
        (RequestQuery(since=1.0), False),
        (RequestQuery(since=2.0), True),
    ],
)
def test_memory_is_complete_from_the_oldest_request_on(
    query: RequestQuery, is_complete: bool
) -> None:
    records = Records()
    assert remembered(records, query) is query.live
    kept = KeptRequest(request_id="req_a", received=1.0, ended=2.0, route="completions")
    records._keep(row_of(kept))
    assert remembered(records, query) is is_complete
