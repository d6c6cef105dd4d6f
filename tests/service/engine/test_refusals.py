"""What clients of a full queue, or with a deadline that passes, are answered."""

from __future__ import annotations

import pytest

from engine.queueing import Refusal, RefusalReason
from observability.outcomes import OutcomeGroup, group_of
from service.engine.refusals import refused
from service.wire.error_shapes import shape_for


@pytest.mark.parametrize("reason", RefusalReason)
def test_every_refusal_has_its_error_in_every_shape_and_a_declared_outcome(
    reason: RefusalReason,
) -> None:
    error = refused(Refusal(reason, 7, 12))
    assert group_of(error.outcome) is OutcomeGroup.REFUSED
    assert b"retry" in error.to_body()
    for path in ("/v1/chat/completions", "/v1/messages"):
        assert error.message.encode() in shape_for(path)(error, "req_1")


@pytest.mark.parametrize(
    ("reason", "status", "retry_after"),
    [
        (RefusalReason.QUEUE_REQUESTS, 429, "7"),
        (RefusalReason.QUEUE_TOKENS, 429, "7"),
        (RefusalReason.TENANT_SHARE, 429, "7"),
        (RefusalReason.DEADLINE_UNREACHABLE, 429, "7"),
        (RefusalReason.DEADLINE_PASSED, 504, None),
    ],
)
def test_a_full_queue_is_429_and_says_when_to_return(
    reason: RefusalReason, status: int, retry_after: str | None
) -> None:
    error = refused(Refusal(reason, 7))
    assert error.status == status
    assert error.headers().get("retry-after") == retry_after
    assert "retry-after" not in refused(Refusal(reason)).headers()
