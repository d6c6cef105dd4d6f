"""A stored response is the response object's JSON, and returns the parts that are requested."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from service.store.record import StoredResponse

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


def stored(**body: object) -> StoredResponse:
    return StoredResponse(
        id="resp_1",
        owner="me",
        created_at=1,
        expires_at=2,
        status="in_progress",
        body=json.dumps(body).encode(),
        input=b"[]",
        events=b"data: x\n\n",
    )


@pytest.mark.parametrize("asked", [True, False])
def test_it_records_whether_it_runs_in_the_background(asked: bool) -> None:
    assert stored(output=[{"text": "background"}], background=asked).background is asked


@settings(max_examples=25)
@given(st.dictionaries(st.text(), JSON))
def test_a_failure_changes_the_status_and_the_error_and_nothing_else(
    body: dict[str, object],
) -> None:
    error = {"code": "server_error", "message": "it broke"}
    before = stored(status="in_progress", error=None, more=body)
    after = before.failed(error)
    assert after.status == "failed"
    was, now = json.loads(before.body), json.loads(after.body)
    assert now == {**was, "status": "failed", "error": error}
    assert (after.id, after.owner, after.events) == (before.id, before.owner, before.events)
    assert before.status == "in_progress"
