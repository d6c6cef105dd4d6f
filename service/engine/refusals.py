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
                f"{waiting} sequences are already waiting; retry later.",
                retry_after=retry_after,
                waiting=waiting,
            )
        case RefusalReason.QUEUE_TOKENS:
            return OverloadedError(
                f"{waiting} sequences are already waiting, which together have as many tokens as "
                "are allowed to wait; retry later.",
                retry_after=retry_after,
                waiting=waiting,
            )
        case RefusalReason.TENANT_SHARE:
            return OverloadedError(
                f"{waiting} sequences of this key are already waiting; retry later.",
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
