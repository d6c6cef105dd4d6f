"""Says in a sentence what limits the server, from the numbers of one moment.

Pure functions. ``service.overview.steadiness`` keeps the verdict from changing all the time.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from engine.queueing import WaitingReason
from observability.admin_api import Condition, Figure, Verdict
from service.engine.silence import WORST_FIRST, EngineStatus
from service.overview.snapshot import OneEngine, Snapshot
from service.wording import are, plural


@dataclass(frozen=True, slots=True)
class Thresholds:
    """From when on something limits the server. Durations are seconds; docs/diagnosis.md explains
    each."""

    window: int = 5  # over which rates, shares and lags are taken
    wait: float = 0.5  # of the oldest waiting sequence or grammar
    recomputed_share: float = 0.05  # of the engine's work
    prefill: float = 1.0  # of the longest one
    loop_lag: float = 0.1  # in most of the seconds of the window
    stall: float = 1.0  # since when a client has not read
    stalled_share: float = 0.2  # of the streams
    idle: float = 10.0  # without any request
    refused: float = 1.0  # requests per second, of which the verdict speaks
    refused_share: float = 0.5  # of all that end, likewise


THRESHOLDS = Thresholds()


def diagnose(snapshot: Snapshot, thresholds: Thresholds = THRESHOLDS) -> Verdict:
    """Return what limits the server at this moment."""
    return describe(condition_of(snapshot, thresholds), snapshot)


def condition_of(snapshot: Snapshot, thresholds: Thresholds = THRESHOLDS) -> Condition:
    """Return the most urgent condition that holds."""
    for condition, holds in _TESTS:
        if holds(snapshot, thresholds):
            return condition
    return Condition.HEALTHY


def describe(condition: Condition, snapshot: Snapshot) -> Verdict:
    """Return the verdict for a condition with the numbers of this moment."""
    sentence, figures = _DESCRIPTIONS[condition](snapshot)
    return Verdict(condition, sentence, figures)


# --- tests ------------------------------------------------------------------------------------


def _is_down(now: Snapshot, _: Thresholds) -> bool:
    return now.engine == EngineStatus.FAILING or (
        now.engine == EngineStatus.LOST and not now.expects_engine
    )


def _is_silent(now: Snapshot, _: Thresholds) -> bool:
    return now.engine == EngineStatus.SILENT


def _is_loading(now: Snapshot, _: Thresholds) -> bool:
    return now.engine in (EngineStatus.LOADING, EngineStatus.LOST)


def _is_draining(now: Snapshot, _: Thresholds) -> bool:
    return now.draining


def _engine_missing(now: Snapshot, _: Thresholds) -> bool:
    return any(engine.status != EngineStatus.OK for engine in now.engines)


def _connections_limit(now: Snapshot, _: Thresholds) -> bool:
    return 0 < now.connection_limit <= now.connections


def _waits(now: Snapshot, thresholds: Thresholds, reason: WaitingReason) -> bool:
    return (
        now.waiting > 0
        and now.oldest_waiting >= thresholds.wait
        and now.waiting_reason == reason.value
    )


def _kv_limits(now: Snapshot, thresholds: Thresholds) -> bool:
    return (
        _waits(now, thresholds, WaitingReason.KV_BLOCKS)
        or now.recomputed_share >= thresholds.recomputed_share
    )


def _slots_limit(now: Snapshot, thresholds: Thresholds) -> bool:
    return _waits(now, thresholds, WaitingReason.SLOTS)


def _prefill_limits(now: Snapshot, thresholds: Thresholds) -> bool:
    return (
        _waits(now, thresholds, WaitingReason.BUDGET) or now.longest_prefill >= thresholds.prefill
    )


def _constraint_limits(now: Snapshot, thresholds: Thresholds) -> bool:
    tried = now.grammars_waiting > 0 and now.oldest_grammar >= thresholds.wait
    return tried or _waits(now, thresholds, WaitingReason.CONSTRAINT)


def _frontend_limits(now: Snapshot, thresholds: Thresholds) -> bool:
    return now.loop_lag >= thresholds.loop_lag


def _clients_limit(now: Snapshot, thresholds: Thresholds) -> bool:
    return now.stalled > 0 and now.stalled >= thresholds.stalled_share * now.streams


def _is_idle(now: Snapshot, thresholds: Thresholds) -> bool:
    return now.sequences == 0 and now.in_flight == 0 and now.since_request >= thresholds.idle


# The most urgent first.
_TESTS: tuple[tuple[Condition, Callable[[Snapshot, Thresholds], bool]], ...] = (
    (Condition.DOWN, _is_down),
    (Condition.SILENT, _is_silent),
    (Condition.LOADING, _is_loading),
    (Condition.DRAINING, _is_draining),
    (Condition.ENGINES, _engine_missing),
    (Condition.CONNECTIONS, _connections_limit),
    (Condition.KV, _kv_limits),
    (Condition.SLOTS, _slots_limit),
    (Condition.PREFILL, _prefill_limits),
    (Condition.CONSTRAINT, _constraint_limits),
    (Condition.FRONTEND, _frontend_limits),
    (Condition.CLIENTS, _clients_limit),
    (Condition.IDLE, _is_idle),
)


# --- sentences --------------------------------------------------------------------------------

_Description = tuple[str, tuple[Figure, Figure, Figure]]


def duration(seconds: float) -> str:
    """Return ``40 ms``, ``3.9 s``, ``48 s`` or ``4 min 10 s``."""
    if seconds < 0.9995:
        return f"{seconds * 1e3:.0f} ms"
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    if seconds < 120:
        return f"{seconds:.0f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s"


def _percent(share: float) -> str:
    return f"{share * 100:.0f} %"


def _holder(now: Snapshot) -> str:
    if now.largest_holder is None or now.largest_holder_share <= 0:
        return ""
    return f" Largest holder: {now.largest_holder}, {_percent(now.largest_holder_share)}."


def _waiting(now: Snapshot) -> str:
    if not now.waiting:
        return "none waiting"
    return f"{now.waiting:,} waiting (oldest {duration(now.oldest_waiting)})"


def _oldest(now: Snapshot) -> Figure:
    return Figure("oldest wait", now.oldest_waiting, "s")


def _down(now: Snapshot) -> _Description:
    reason = now.problem or now.detail or "the engine has exited"
    return (
        f"Down: {reason}. {plural(now.sequences, 'sequence')} in flight.",
        (
            Figure("sequences in flight", now.sequences),
            Figure("silence", now.silence, "s"),
            Figure("uptime", now.uptime, "s"),
        ),
    )


def _until_restart(now: Snapshot, silence: float) -> tuple[float | None, str]:
    """Return the seconds until a silent engine is restarted, and the end of a sentence."""
    if now.killed_after is None:
        return None, ""
    left = max(0.0, now.killed_after - silence)
    return left, f"; it will be restarted in {duration(max(1.0, left))}"


def _silent(now: Snapshot) -> _Description:
    left, end = _until_restart(now, now.silence)
    return (
        f"Engine silent for {duration(now.silence)} with {plural(now.sequences, 'sequence')} in "
        f"flight{end}.",
        (
            Figure("silence", now.silence, "s"),
            Figure("sequences in flight", now.sequences),
            Figure("restart in", -1.0 if left is None else left, "s"),
        ),
    )


def _loading(now: Snapshot) -> _Description:
    what = now.detail or "the engine is starting"
    last = "" if now.load_seconds is None else f" The last load took {duration(now.load_seconds)}."
    return (
        f"No engine yet: {what}. {plural(now.sequences, 'sequence')} in flight.{last}",
        (
            Figure("sequences in flight", now.sequences),
            Figure("last load", now.load_seconds or 0.0, "s"),
            Figure("uptime", now.uptime, "s"),
        ),
    )


def _draining(now: Snapshot) -> _Description:
    # A drain that an operator started has no end, and cuts nothing off.
    end = "; no new ones are accepted"
    if now.drain_seconds_left > 0:
        end = f", cut off in {duration(now.drain_seconds_left)} at the latest"
    return (
        f"Draining: {plural(now.in_flight, 'request')} in flight{end}.",
        (
            Figure("requests in flight", now.in_flight),
            Figure("cut off in", now.drain_seconds_left, "s"),
            Figure("sequences in flight", now.sequences),
        ),
    )


def _engines(now: Snapshot) -> _Description:
    number, engine = min(
        enumerate(now.engines or (OneEngine(status=EngineStatus.OK),)),
        key=lambda each: WORST_FIRST.index(EngineStatus(each[1].status)),
    )
    ready = sum(one.status == EngineStatus.OK for one in now.engines)
    verb = "is ready and gets" if ready == 1 else "are ready and get"
    sentence = (
        f"Engine {number} {_state_of(engine, now)}. {ready} of {len(now.engines)} engines {verb} "
        "all new requests."
    )
    if engine.status == EngineStatus.OK:
        sentence = "All engines are ready again."
    return (
        sentence,
        (
            Figure("engines ready", ready),
            Figure("silence", engine.silence, "s"),
            Figure("its sequences", engine.sequences),
        ),
    )


def _state_of(engine: OneEngine, now: Snapshot) -> str:
    """Return what is wrong with one of several engines, as the rest of a sentence about it."""
    left = f" with {plural(engine.sequences, 'sequence')} in flight" if engine.sequences else ""
    if engine.status == EngineStatus.SILENT:
        _, end = _until_restart(now, engine.silence)
        return f"has been silent for {duration(engine.silence)}{left}{end}"
    if engine.status == EngineStatus.LOADING:
        return f"is not ready yet ({engine.detail}){left}"
    died = ""
    if engine.deaths:
        died = f"; it died {plural(engine.deaths, 'time')} in a row without progress, see the log"
    return f"is down ({engine.detail}){left}{died}"


def _connections(now: Snapshot) -> _Description:
    wait = ", and new ones wait" if now.connections >= now.connection_limit else ""
    return (
        f"Connections: {now.connections:,} of {now.connection_limit:,} are in use{wait}; "
        f"{are(now.receiving, 'request')} still arriving.",
        (
            Figure("connections", now.connections),
            Figure("requests arriving", now.receiving),
            Figure("requests in flight", now.in_flight),
        ),
    )


def _kv(now: Snapshot) -> _Description:
    used = now.kv_active / now.kv_blocks if now.kv_blocks else 0.0
    return (
        f"KV cache: {now.kv_active:,} of {now.kv_blocks:,} blocks are held by "
        f"{plural(now.running, 'sequence')}, {_waiting(now)}, {_percent(now.recomputed_share)} of "
        f"the work is recomputed after preemption.{_holder(now)}",
        (
            Figure("KV cache in use", used * 100, "%"),
            _oldest(now),
            Figure("recomputed", now.recomputed_share * 100, "%"),
        ),
    )


def _slots(now: Snapshot) -> _Description:
    expected = ""
    if now.predicted_wait is not None:
        expected = f"; a new sequence would wait about {duration(now.predicted_wait)}"
    return (
        f"Slots: {now.running} of {now.max_running} are taken, {_waiting(now)}{expected}."
        f"{_holder(now)}",
        (Figure("running", now.running), Figure("waiting", now.waiting), _oldest(now)),
    )


def _prefill(now: Snapshot) -> _Description:
    computed = now.prompt_tokens + now.output_tokens
    share = now.prompt_tokens / computed if computed else 0.0
    longest = ""
    if now.prefilling:
        longest = (
            f" ({plural(now.prefilling, 'sequence')}; the longest has "
            f"{now.longest_prefill_tokens:,} tokens and has taken {duration(now.longest_prefill)})"
        )
    return (
        f"Prefill: prompts are {_percent(share)} of the computed tokens, "
        f"{now.prompt_tokens:,.0f} tokens/s{longest}, {_waiting(now)}.",
        (
            Figure("longest prefill", now.longest_prefill, "s"),
            Figure("prompt tokens", now.prompt_tokens, "tokens/s"),
            Figure("longest step", now.longest_step, "s"),
        ),
    )


def _constraint(now: Snapshot) -> _Description:
    in_engine = now.waiting if now.waiting_reason == WaitingReason.CONSTRAINT.value else 0
    waiting = now.grammars_waiting + in_engine
    oldest = max(now.oldest_grammar, now.oldest_waiting if in_engine else 0.0)
    verb = "waits for its grammar" if waiting == 1 else "wait for their grammars"
    return (
        f"Grammars: {plural(waiting, 'request')} {verb} to be compiled (oldest "
        f"{duration(oldest)}), while {now.running} of {now.max_running} slots are taken.",
        (
            Figure("waiting", waiting),
            Figure("oldest wait", oldest, "s"),
            Figure("running", now.running),
        ),
    )


def _frontend(now: Snapshot) -> _Description:
    return (
        f"Front end: the API worker's event loop is {duration(now.loop_lag)} late in most seconds, "
        f"with {plural(now.in_flight, 'request')} in flight and {now.running} of "
        f"{now.max_running} slots taken.",
        (
            Figure("loop lag", now.loop_lag, "s"),
            Figure("requests in flight", now.in_flight),
            Figure("running", now.running),
        ),
    )


def _clients(now: Snapshot) -> _Description:
    verb = "waits for a client that does" if now.stalled == 1 else "wait for clients that do"
    return (
        f"Clients: {now.stalled} of {plural(now.streams, 'request')} {verb} not read, the longest "
        f"for {duration(now.longest_stall)}.",
        (
            Figure("stalled", now.stalled),
            Figure("longest stall", now.longest_stall, "s"),
            Figure("requests", now.streams),
        ),
    )


def _idle(now: Snapshot) -> _Description:
    return (
        f"Idle: no request for {duration(now.since_request)}, all {now.max_running} slots free.",
        (
            Figure("since last request", now.since_request, "s"),
            Figure("slots", now.max_running),
            Figure("KV blocks", now.kv_blocks, "blocks"),
        ),
    )


def _refusing(now: Snapshot) -> str:
    if now.refused < THRESHOLDS.refused or now.refused_share < THRESHOLDS.refused_share:
        return ""
    return (
        f" Refusing {plural(now.refused, 'request')} per second ({_percent(now.refused_share)} of "
        f"all), most as {now.refused_outcome!r}."
    )


def _healthy(now: Snapshot) -> _Description:
    return (
        f"Healthy: {now.running} of {now.max_running} slots taken, oldest wait "
        f"{duration(now.oldest_waiting)}.{_refusing(now)}",
        (
            Figure("running", now.running),
            _oldest(now),
            Figure("output tokens", now.output_tokens, "tokens/s"),
        ),
    )


_DESCRIPTIONS: dict[Condition, Callable[[Snapshot], _Description]] = {
    Condition.DOWN: _down,
    Condition.SILENT: _silent,
    Condition.LOADING: _loading,
    Condition.DRAINING: _draining,
    Condition.ENGINES: _engines,
    Condition.CONNECTIONS: _connections,
    Condition.KV: _kv,
    Condition.SLOTS: _slots,
    Condition.PREFILL: _prefill,
    Condition.CONSTRAINT: _constraint,
    Condition.FRONTEND: _frontend,
    Condition.CLIENTS: _clients,
    Condition.IDLE: _idle,
    Condition.HEALTHY: _healthy,
}
