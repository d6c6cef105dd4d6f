"""Why a worker could not start: a line of its log, and a sentence for the supervisor."""

from __future__ import annotations

from pathlib import Path

from engine.beats import write_failure
from observability.logging import get_logger
from service.checkpoint.files import CheckpointError

_log = get_logger()


def report_failure(error: Exception, page: str | None) -> int:
    """Return the worker's exit status. Call it where the error is handled. ``page``: of its
    heartbeats."""
    if isinstance(error, CheckpointError):  # the message is sufficient without a traceback
        _log.error("the API worker cannot start", error=str(error))
        if page is not None:
            write_failure(Path(page), error)
    else:
        _log.exception("the API worker failed")
    return 1
