"""The phases of a request, computed from its record.

Pure functions; ``observability.phases`` says when each phase begins and ends.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from engine.messages import Finished
from observability import phases
from service.telemetry.record import Interval, RequestRecord


def before_engine(record: RequestRecord) -> list[Interval]:
    """Return the intervals of all phases before the engine has the request, in order of time."""
    intervals = record.intervals
    received = [one for one in intervals if one.phase == phases.RECEIVING.name]
    until = _admitted(record)
    if not received or until is None:
        return intervals
    begin = received[-1].end
    found = list(received)
    for one in intervals:
        if one.phase == phases.RECEIVING.name:
            continue
        if one.begin > begin:
            found.append(Interval(phases.ADMITTING.name, begin, one.begin))
        found.append(one)
        begin = max(begin, one.end)
    if until > begin:
        found.append(Interval(phases.ADMITTING.name, begin, until))
    return found


def _admitted(record: RequestRecord) -> float | None:
    """Return when the engine had the request, or the attempt ended; None if there was none."""
    if not record.sequences:
        return record.prepared_time
    queued = earliest(one.queued_time for one in record.sequences)
    return record.ended_time if queued is None else queued


def in_engine(sequence: Finished) -> list[Interval]:
    """Return the phases of one choice, in order of time. One that was cut short ends with the
    sequence."""
    ended, queued = sequence.finished_time, sequence.queued_time
    scheduled, first = sequence.first_scheduled_time, sequence.first_token_time
    found = []
    if queued is not None:
        found.append(_interval(phases.QUEUEING, queued, ended if scheduled is None else scheduled))
    if scheduled is not None:
        found.append(_interval(phases.PREFILLING, scheduled, ended if first is None else first))
    if first is not None:
        last = sequence.last_token_time
        found.append(_interval(phases.DECODING, first, first if last is None else last))
    return found


def _interval(phase: phases.RequestPhase, begin: float, end: float) -> Interval:
    return Interval(phase.name, begin, max(begin, end))


def seconds_of(record: RequestRecord) -> dict[str, float]:
    """Return how long the request was in each phase that it reached, by the phase's name. A phase
    of several choices lasts from the first that begins it to the first that leaves it; decode, to
    the last."""
    seconds: dict[str, float] = {}
    for phase, begin, end in before_engine(record):
        seconds[phase] = seconds.get(phase, 0.0) + end - begin
    if record.sequences:
        together = in_engine(_together(record.sequences))
        seconds.update((phase, end - begin) for phase, begin, end in together)
    if record.flush.seconds:
        seconds[phases.FLUSHING.name] = record.flush.seconds
    return seconds


def _together(sequences: Sequence[Finished]) -> Finished:
    """Combine the records of all choices of a request."""
    if len(sequences) == 1:
        return sequences[0]
    lasts = [one.last_token_time for one in sequences if one.last_token_time is not None]
    return Finished(
        handle=sequences[0].handle,
        reason=sequences[0].reason,
        prompt_tokens=0,
        cached_tokens=0,
        output_tokens=0,
        preemptions=0,
        arrival_time=sequences[0].arrival_time,
        queued_time=earliest(one.queued_time for one in sequences),
        first_scheduled_time=earliest(one.first_scheduled_time for one in sequences),
        first_token_time=earliest(one.first_token_time for one in sequences),
        last_token_time=max(lasts, default=None),
        finished_time=max(one.finished_time for one in sequences),
    )


def other_seconds(record: RequestRecord, seconds: Mapping[str, float], ended: float) -> float:
    """Return what the phases leave of the whole request. ``seconds``: as ``seconds_of`` returns
    them."""
    flush = record.flush
    accounted = sum(seconds.values()) - flush.seconds
    # Before the last token, writes wait while the engine works.
    decoded = record.last_token_time
    accounted += min(flush.seconds, max(0.0, flush.end - (decoded or flush.begin)))
    return max(0.0, ended - record.received_time - accounted)


def mean_gap(sequences: Sequence[Finished]) -> float | None:
    """Return the mean time between two tokens of a choice; None if no choice has two."""
    gaps, seconds = 0, 0.0
    for sequence in sequences:
        first, last = sequence.first_token_time, sequence.last_token_time
        if first is not None and last is not None and sequence.output_tokens > 1:
            gaps += sequence.output_tokens - 1
            seconds += last - first
    return seconds / gaps if gaps else None


def earliest(times: Iterable[float | None]) -> float | None:
    return min((moment for moment in times if moment is not None), default=None)
