"""Problem details."""

from __future__ import annotations

import msgspec

from service.admin.problem import ProblemError, invalid, not_found, unavailable


def test_the_body_has_the_members_of_the_standard() -> None:
    body = msgspec.json.decode(ProblemError(412, "revision", "It has changed.").to_body())
    assert body == {
        "type": "urn:quire:problem:revision",
        "title": "Precondition Failed",
        "status": 412,
        "detail": "It has changed.",
    }


def test_a_parameter_at_fault_is_named() -> None:
    assert msgspec.json.decode(invalid("Too large.", "limit").to_body())["field"] == "limit"


def test_statuses() -> None:
    assert [one("x").status for one in (invalid, not_found, unavailable)] == [422, 404, 503]
    assert msgspec.json.decode(ProblemError(499, "x", "y").to_body())["title"] == "Error"
