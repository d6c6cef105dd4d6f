"""The errors of requests that get no place in the engine's waiting queue."""

from __future__ import annotations

from engine.queueing import Refusal, RefusalReason
from service.errors import DeadlineUnreachableError, ExpiredError, OverloadedError, QuireError


def refused(refusal: Refusal) -> QuireError:
    """Return the error with which a refused request ends."""
    waiting, retry_after = refusal.waiting, refusal.retry_after
    match refusal.reason:
        case RefusalReason.QUEUE_REQUESTS:
            return OverloadedError(
                f"{_sequences(waiting)} already waiting; retry later.",
                retry_after=retry_after,
                waiting=waiting,
            )
        case RefusalReason.QUEUE_TOKENS:
            return OverloadedError(
                f"{_sequences(waiting)} already waiting, with as many tokens as are allowed to "
                "wait; retry later.",
                retry_after=retry_after,
                waiting=waiting,
            )
        case RefusalReason.TENANT_SHARE:
            return OverloadedError(
                f"{_sequences(waiting, ' of this key')} already waiting; retry later.",
                retry_after=retry_after,
            )
        case RefusalReason.DEADLINE_UNREACHABLE:
            return DeadlineUnreachableError(
                "At the current load the answer would not begin before the request's deadline; "
                "retry later, or allow more time.",
                retry_after=retry_after,
            )
        case RefusalReason.DEADLINE_PASSED:
            return ExpiredError(
                "The request's deadline passed before its answer began; retry later, or allow "
                "more time."
            )


def _sequences(waiting: int, whose: str = "") -> str:
    return f"1 sequence{whose} is" if waiting == 1 else f"{waiting} sequences{whose} are"
