"""The log says once that nothing can be stored, and at the end how much was lost."""

from __future__ import annotations

from structlog.testing import capture_logs

from service.store.archive_condition import ARCHIVE_AWAY, ArchiveCondition, Unstored

NOTHING = Unstored(0, 0, 0)
SOME = Unstored(requests=0, usage_of_keys=1, audit_entries=0)


def test_a_failure_is_logged_once_until_it_is_over() -> None:
    heard: list[bool] = []
    one = ArchiveCondition(heard.append)
    with capture_logs() as lines:
        one.fail("no room")
        one.fail("no room at all")
        assert "no room at all" in one.sentence
        one.recover()
        assert one.sentence == ARCHIVE_AWAY
        one.fail("no room again")
    assert [line["error"] for line in lines] == ["no room", "no room again"]
    assert heard == [True, True, False, True]
    assert one.is_away


def test_the_end_is_logged_if_anything_waits() -> None:
    one = ArchiveCondition(lambda away: None)
    with capture_logs() as lines:
        one.end(NOTHING, cut_after=5.0)
        one.end(SOME, cut_after=None)
        one.end(SOME, cut_after=5.0)
        one.fail("no room")
        one.end(SOME, cut_after=None)
    assert [line["error"] for line in lines if "usage_of_keys" in line] == [
        "the database could not be reached",
        "the database did not accept them within 5 s",
        "no room",
    ]
