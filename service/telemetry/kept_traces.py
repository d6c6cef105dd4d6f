"""Which traces are exported although the sampler did not choose them: decided when a request has
ended, from its record."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field

from observability.outcomes import OutcomeGroup, group_of
from service.telemetry.line_budget import LineBudget
from service.telemetry.record import RequestRecord


class KeptBecause(enum.StrEnum):
    """Why a trace is kept."""

    ERROR = "error"
    REFUSED = "refused"
    PREEMPTED = "preempted"
    HANDED_OVER = "handed_over"
    SLOW = "slow"


@dataclass(slots=True)
class TraceKeeping:
    """``slo``: by ``ttft`` and ``itl``, seconds to the first token and between tokens on average,
    above which a request is slow; may be changed at any time. ``refusals``: bounds how many refused
    requests are kept, so that a flood of them does not reach the collector."""

    slo: Mapping[str, float] = field(default_factory=lambda: {"ttft": 2.0, "itl": 0.1})
    refusals: LineBudget = field(default_factory=LineBudget)

    def reason(self, record: RequestRecord) -> KeptBecause | None:
        """Return why an ended request's trace is kept; None if only the sampler decides."""
        group = group_of(record.outcome)
        if group is OutcomeGroup.REFUSED:
            return KeptBecause.REFUSED if self.refusals.take() else None
        if group is OutcomeGroup.FAILED or record.status >= 500:
            return KeptBecause.ERROR
        for sequence in record.sequences:
            if sequence.preemptions:
                return KeptBecause.PREEMPTED
            if sequence.handovers:
                return KeptBecause.HANDED_OVER
        return KeptBecause.SLOW if self._is_slow(record) else None

    def _is_slow(self, record: RequestRecord) -> bool:
        first = record.first_token_time
        if first is not None and first - record.received_time > self.slo["ttft"]:
            return True
        for sequence in record.sequences:
            begin, end = sequence.first_token_time, sequence.last_token_time
            if begin is None or end is None:
                continue
            if end - begin > self.slo["itl"] * (sequence.output_tokens - 1):
                return True
        return False
