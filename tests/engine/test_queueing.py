"""What the engine and its clients say about the waiting queue."""

from __future__ import annotations

from engine.queueing import ServiceClass
from engine.schedule.waiting import FLOORS, URGENCY


def test_every_class_has_its_place_and_its_floor_and_the_floors_leave_most_to_the_urgent() -> None:
    assert list(FLOORS) == list(URGENCY) == list(ServiceClass)
    assert FLOORS[ServiceClass.INTERACTIVE] == 0
    assert all(FLOORS[each] > 0 for each in ServiceClass if each is not ServiceClass.INTERACTIVE)
    assert sum(FLOORS.values()) < 0.5
