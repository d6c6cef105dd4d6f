"""What a verdict is made of: plain numbers of one moment, without names of requests or content."""

from __future__ import annotations

import msgspec


class OneEngine(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One of several engines. ``status`` and ``detail`` as in ``Snapshot``, ``silence`` in seconds.
    ``sequences``: that it runs, has queued, or is to continue once it is replaced. ``deaths``: how
    often it died in a row without progress."""

    status: str
    detail: str = ""
    silence: float = 0.0
    sequences: int = 0
    deaths: int = 0


class Snapshot(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Durations are seconds. Rates and shares are of the seconds of ``diagnose.Thresholds.window``.

    ``engine``: a ``service.engine.silence.EngineStatus``. ``detail``: of the link, for humans.
    ``problem``: why no engine is expected. ``killed_after``: the silence after which the supervisor
    replaces the engine; None: never. ``engines``: each by its index, if there are several; the
    other figures are of all together. ``longest_prefill``: since the first scheduling of a
    sequence without a first token. ``stalled``: of ``streams``, those whose client has not read for
    a while.
    """

    engine: str
    detail: str = ""
    problem: str | None = None
    expects_engine: bool = False
    engines: tuple[OneEngine, ...] = ()
    load_seconds: float | None = None  # of the last engine
    uptime: float = 0.0
    draining: bool = False
    drain_seconds_left: float = 0.0
    in_flight: int = 0  # requests
    connections: int = 0  # to the public HTTP port, at all workers
    connection_limit: int = 0
    receiving: int = 0  # requests whose body is still arriving
    silence: float = 0.0
    killed_after: float | None = None
    sequences: int = 0  # that have not ended
    running: int = 0
    max_running: int = 0
    waiting: int = 0
    waiting_reason: str | None = None  # an engine.messages.WaitingReason
    oldest_waiting: float = 0.0
    predicted_wait: float | None = None
    kv_active: int = 0
    kv_blocks: int = 0
    largest_holder: str | None = None  # key alias
    largest_holder_share: float = 0.0
    recomputed_share: float = 0.0  # of all tokens computed
    prefilling: int = 0
    longest_prefill: float = 0.0
    longest_prefill_tokens: int = 0
    prompt_tokens: float = 0.0  # computed, per second
    output_tokens: float = 0.0  # per second
    longest_step: float = 0.0
    longest_gap: float = 0.0
    loop_lag: float = 0.0
    grammars_waiting: int = 0  # to be tried out, before their requests go to the engine
    oldest_grammar: float = 0.0
    streams: int = 0
    stalled: int = 0
    longest_stall: float = 0.0
    refused: float = 0.0  # requests per second
    refused_share: float = 0.0  # of all requests that end
    refused_outcome: str = ""  # the most common one
    since_request: float = 0.0  # since a request arrived or ended
