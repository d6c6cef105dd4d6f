"""What an ended request adds to the usage of its key."""

from __future__ import annotations

from observability.catalogue import OTHER_KEY, OTHER_MODEL
from observability.outcomes import OutcomeGroup, group_of
from observability.usage_table import UsageFigures, UsageGroup
from service.telemetry.record import RequestRecord


def usage_of_request(record: RequestRecord, ended: float) -> tuple[UsageGroup, UsageFigures]:
    """Tokens count if the engine worked on the request, whether or not the client stayed for the
    answer."""
    group = UsageGroup(record.key or OTHER_KEY, record.model or OTHER_MODEL, record.route)
    worked = any(one.first_scheduled_time is not None for one in record.sequences)
    figures = UsageFigures(
        errors=group_of(record.outcome) is OutcomeGroup.FAILED,
        prompt_tokens=record.prompt_tokens if worked else 0,
        cached_tokens=record.cached_tokens if worked else 0,
        output_tokens=record.output_tokens if worked else 0,
        reasoning_tokens=record.reasoning_tokens if worked else 0,
        seconds=max(0.0, ended - record.received_time),
    )
    return group, figures
