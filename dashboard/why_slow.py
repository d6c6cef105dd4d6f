"""Why a request took as long as it did, and why its prompt was not in the prefix cache, as
sentences."""

from __future__ import annotations

from dashboard.words import count, duration, percent
from observability.admin_api import EventKind, KeptRequest, Neighbour, PrefixReport
from observability.outcomes import PREFIX_MISS_REASONS

_WAITED_FOR = {"kv": "KV cache blocks", "slots": "a slot", "prefill": "long prompts of others"}
_COUNTS = 0.05
_OTHER = "other"
_DOING = {
    "receive": "its body took {} to arrive",
    "render": "its chat template took {}",
    "tokenize": "its prompt took {} to tokenize",
    "admit": "it took {} to be admitted to the engine",
    "prefill": "its prompt took {} to compute",
    "decode": "its answer took {} to generate",
    "flush": "writes waited {} for its client",
    _OTHER: "it spent {} outside every phase",
}


def slow_because(request: KeptRequest) -> str:
    """Name the longest phase and its share of the time, and what made it long if that is known; or
    say that most of the time was in none."""
    phases = {name: seconds for name, seconds in request.phases.items() if seconds > 0}
    if not phases or request.total <= 0:
        return "None of its phases was measured."
    phases[_OTHER] = request.other
    longest = max(phases, key=lambda name: phases[name])
    share = percent(min(1.0, phases[longest] / request.total))
    parts = [f"{_did(request, longest, phases[longest])} ({share} of the total)"]
    if longest == "decode" and request.output_tokens > 1:
        each = duration(phases[longest] / (request.output_tokens - 1))
        parts.append(f"{count(request.output_tokens)} tokens, {each} apart on average")
    if longest in ("prefill", "decode") and (held := _held_up(request, phases[longest])):
        parts.append(held)
    if request.preemptions:
        times = "once" if request.preemptions == 1 else f"{count(request.preemptions)} times"
        parts.append(f"it was preempted {times}")
    if request.handovers:
        parts.append("its engine died and another one continued it")
    text = "; ".join(parts)
    return f"{text[0].upper()}{text[1:]}."


def prefix_sentence(prefix: PrefixReport) -> str:
    """Say how much of the prompt was cached, and why not more."""
    found = f"{count(prefix.matched)} of {count(prefix.of)} prompt tokens were cached"
    if prefix.stopped is None:
        return f"{found}."
    reason = PREFIX_MISS_REASONS.get(prefix.stopped, prefix.stopped)
    if prefix.request_id:
        reason = f"{reason} ({prefix.request_id})"
    if prefix.seconds_ago is not None:
        reason = f"{reason} ({duration(prefix.seconds_ago)} before)"
    return f"{found}. Why not more ({prefix.stopped}): {reason}.{_missed_at(prefix)}"


def _missed_at(prefix: PrefixReport) -> str:
    """Name the message that missed. Prompts are compared by whole blocks, so of two that differ in
    the middle of one it may also be a later message: usually the same instructions, then another
    question."""
    first, last = prefix.at_message, prefix.to_message
    if first is None:
        return ""
    role = f" ({prefix.role})" if prefix.role else ""
    if last is None:
        return f" The first one that was not is in message {first} of {prefix.messages}{role}."
    if last == first:
        return f" They differ in message {first} of {prefix.messages}{role}."
    return (
        f" They differ at the end of message {first}{role} or after it, up to message {last} of "
        f"{prefix.messages}: prompts are compared in blocks of tokens."
    )


def gap_cause(request: KeptRequest, at: float, seconds: float) -> str:
    """Return what happened in a gap that ended ``at``, as far as the request's record has it: only
    the longest steps are kept."""
    for event in request.events:
        if event.kind in (EventKind.PREEMPTED, EventKind.HANDED_OVER) and (
            at - seconds <= event.at <= at
        ):
            return event.kind.value.replace("_", " ")
    for step in request.neighbours:
        if at - seconds - step.seconds <= step.at <= at + step.seconds:
            return _step(step, request.request_id)
    return ""


def _did(request: KeptRequest, phase: str, seconds: float) -> str:
    if phase == "queue":
        reason = _WAITED_FOR.get(request.limited_by or "", "its turn")
        return f"it waited {duration(seconds)} for {reason}"
    if phase == "admit" and "queue" not in request.phases and not request.live:
        return f"it waited {duration(seconds)} to be admitted to the engine and never was"
    return _DOING.get(phase, f"{phase} took {{}}").format(duration(seconds))


def _held_up(request: KeptRequest, spent: float) -> str:
    """The longest step with another request's prompt in it, if it is a part of ``spent`` that
    counts: almost every answer has such a step."""
    steps = [
        step
        for step in request.neighbours
        if any(one.request_id != request.request_id for one in step.prefills)
    ]
    if not steps:
        return ""
    longest = max(steps, key=lambda one: one.seconds)
    if longest.seconds < spent * _COUNTS:
        return ""
    return f"it shared {_step(longest, request.request_id)}"


def _step(step: Neighbour, own: str) -> str:
    plural = "" if step.sequences == 1 else "s"
    text = f"a step of {duration(step.seconds)} with {count(step.sequences)} sequence{plural}"
    others = [one for one in step.prefills if one.request_id != own]
    if not others:
        return text
    return f"{text} and {count(others[0].tokens)} prompt tokens of {others[0].request_id}"
