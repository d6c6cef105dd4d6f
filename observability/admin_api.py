"""What the admin API answers, as types that the server encodes and the dashboard decodes. Times are
seconds since the epoch. No prompt, output or key is in it. Paths: ``docs/admin.md``."""

from __future__ import annotations

import enum
from typing import Any

import msgspec


class AdminScope(enum.StrEnum):
    """What an admin key may do; the second includes the first."""

    READ = "read"
    OPERATE = "operate"


class Condition(enum.StrEnum):
    """What limits the server now, the most urgent first."""

    DOWN = "down"  # no engine, and none is expected
    SILENT = "silent"  # the engine has work and says nothing
    LOADING = "loading"
    DRAINING = "draining"
    ENGINES = "engines"  # one of several engines is silent, gone or loading
    CONNECTIONS = "connections"  # all are in use, and new ones wait
    KV = "kv"  # sequences wait for KV cache blocks, or are preempted for them
    SLOTS = "slots"  # sequences wait because max_num_seqs are running
    PREFILL = "prefill"  # long prompts take the steps' token budget
    CONSTRAINT = "constraint"  # sequences wait for their grammars
    FRONTEND = "frontend"  # the API worker's event loop is late
    CLIENTS = "clients"  # writes wait for clients that do not read
    IDLE = "idle"
    HEALTHY = "healthy"


class Figure(msgspec.Struct, frozen=True):
    """One piece of a verdict's evidence. ``unit``: "", "s", "tokens/s", "blocks", "%" …"""

    name: str
    value: float
    unit: str = ""


class Verdict(msgspec.Struct, frozen=True):
    """``since``: when the condition began."""

    condition: Condition
    sentence: str
    figures: tuple[Figure, ...] = ()
    since: float = 0.0


# --- requests ---------------------------------------------------------------------------------


class EventKind(enum.StrEnum):
    """What can happen in a request's life; the meaning of ``RequestEvent.value`` is in brackets."""

    OUTPUT = "output"  # its first, second, fourth, eighth … output token (its number)
    GAP = "gap"  # more than five times the median of the gaps so far (seconds)
    PREEMPTED = "preempted"
    RESUMED = "resumed"
    HANDED_OVER = "handed_over"  # to an engine that replaced a dead one
    STALLED = "stalled"  # a write waited for the client (seconds)
    CANCELLED = "cancelled"  # by an operator
    __hash__ = str.__hash__  # that of Enum is Python code, and slow


class RequestEvent(msgspec.Struct, frozen=True, array_like=True):
    """``at``: seconds after the request was received. ``choice``: its index."""

    kind: EventKind
    at: float
    value: float = 0.0
    choice: int = 0


class Prefill(msgspec.Struct, frozen=True, array_like=True):
    """Prompt tokens of a request that a step computed."""

    request_id: str
    tokens: int


class Neighbour(msgspec.Struct, frozen=True):
    """One of the longest steps that a request took part in. ``at``: its end, seconds after the
    request was received. ``prefills``: whose prompts were in it, the longest first."""

    at: float
    seconds: float
    tokens: int
    sequences: int
    prefills: tuple[Prefill, ...] = ()


class PrefixReport(msgspec.Struct, frozen=True, omit_defaults=True):
    """How much of the prompt was cached and why not more. ``stopped``: a ``PrefixMissReason``;
    ``None`` if everything was found. ``at_message`` (from 1) of ``messages``, and its role: where
    in the conversation the first token lies that was not found."""

    matched: int
    of: int
    stopped: str | None = None
    request_id: str | None = None  # that diverged there
    seconds_ago: float | None = None  # evicted
    at_message: int | None = None
    messages: int | None = None
    role: str | None = None
    to_message: int | None = None  # in these messages two prompts differ: ``stopped`` diverged


class KeptRequest(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One request, ended or live. What a live one cannot have yet is None or 0.

    ``phases``: seconds by name (``observability.phases``); ``phase``: the one that a live request
    is in. ``prompt_tokens_computed``: of a live request's prompt, so far.
    """

    request_id: str
    received: float
    route: str
    live: bool = False
    phase: str | None = None
    ended: float | None = None
    trace_id: str = ""
    span_id: str = ""
    response_id: str = ""
    client_request_id: str | None = None
    key: str | None = None
    client_address: str | None = None
    user_agent: str | None = None
    model: str = ""
    status: int = 0
    outcome: str = ""
    error: str | None = None
    error_code: str | None = None
    error_field: str | None = None
    retry_after: int | None = None
    waiting: int | None = None  # sequences when it was admitted or refused
    limited_by: str | None = None  # the verdict's condition when it was admitted
    stream: bool = False
    choices: int = 1
    max_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    finish_reasons: tuple[str, ...] = ()
    ignored: str | None = None
    prompt_tokens: int = 0
    prompt_tokens_computed: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0
    reasoning_tokens: int = 0
    preemptions: int = 0
    handovers: int = 0
    phases: dict[str, float] = {}
    other: float = 0.0  # seconds in no phase
    total: float = 0.0
    ttft: float | None = None
    itl_mean: float | None = None
    itl_max: float | None = None
    prefix: PrefixReport | None = None
    events: tuple[RequestEvent, ...] = ()
    neighbours: tuple[Neighbour, ...] = ()


class RequestPage(msgspec.Struct, frozen=True):
    """``cursor``: of the next page; None after the last. ``source``: "memory" or "store"."""

    requests: tuple[KeptRequest, ...]
    cursor: str | None = None
    source: str = "memory"


class RequestQuery(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A query for requests. ``since`` and ``until`` are epoch seconds and apply to the end
    of ended requests. ``sort``: a name in ``SORTABLE``, ascending, or descending after a "-"."""

    live: bool = False
    since: float | None = None
    until: float | None = None
    key: str | None = None
    model: str | None = None
    route: str | None = None
    outcome: str | None = None  # or a group of outcomes
    phase: str | None = None  # the longest one (of a live request: the current one)
    min_seconds: float = 0.0
    sort: str = "-received"
    limit: int = 100
    cursor: str | None = None


SORTABLE = ("received", "ended", "total", "ttft", "prompt_tokens", "output_tokens", "cached_tokens")
MAX_PAGE = 1000
MAX_LOAD_RATE, MAX_LOAD_SECONDS, MAX_LOAD_CONCURRENCY = 100, 600, 256


# --- the KV cache -----------------------------------------------------------------------------


class BlockRun(msgspec.Struct, frozen=True, array_like=True):
    """``count`` neighbouring blocks of one owner: an index into ``KvMap.owners``, -1 cached, -2
    free. ``shared``: held by more than one sequence."""

    owner: int
    count: int
    shared: bool = False


class Owner(msgspec.Struct, frozen=True, array_like=True):
    request_id: str
    key: str | None
    blocks: int
    tokens: int


class KvMap(msgspec.Struct, frozen=True):
    """The pool at ``time``, its blocks in order of their numbers, run-length coded."""

    time: float
    blocks: int
    block_size: int
    active: int
    cached: int
    free: int
    runs: tuple[BlockRun, ...]
    owners: tuple[Owner, ...]
    evictions: int = 0  # totals since the engine's start
    preemptions: int = 0
    blocks_each: int = 1  # that a block of a run represents: more in maps of over 16,384 blocks


class SharedPrefix(msgspec.Struct, frozen=True):
    """A chain of cached blocks from a prompt's start or from its ``parent``'s end."""

    parent: int | None  # an index into the answer; None: from the start
    tokens: int
    holders: int  # running sequences
    hits: int
    last_used: float
    request_id: str  # of a request that computed it


class PrefixTree(msgspec.Struct, frozen=True):
    prefixes: tuple[SharedPrefix, ...]
    cached_tokens: int
    left_out: int = 0  # less used ones


# --- figures ----------------------------------------------------------------------------------


class Quantiles(msgspec.Struct, frozen=True):
    """Exact, of the requests that ended in the window; None without any."""

    p50: float | None = None
    p95: float | None = None
    p99: float | None = None
    count: int = 0


class Window(msgspec.Struct, frozen=True, kw_only=True):
    """Of the last ``seconds``. Rates are per second; ``attainment`` by objective is the share of
    requests that met it, None without requests."""

    seconds: float
    tokens_out: float = 0.0
    tokens_in_computed: float = 0.0
    tokens_in_cached: float = 0.0
    received: float = 0.0
    ended: dict[str, float] = {}  # by outcome
    ttft: Quantiles = Quantiles()
    itl: Quantiles = Quantiles()
    total: Quantiles = Quantiles()
    recomputed_share: float = 0.0
    attainment: dict[str, float | None] = {}


class Overview(msgspec.Struct, frozen=True, kw_only=True):
    """The server at ``time``. ``slo``: seconds by "ttft" and "itl"."""

    time: float
    server: str  # the instance's identity
    version: str
    model: str
    models: tuple[str, ...]
    state: str  # as /health says it
    verdict: Verdict
    uptime: float
    running: int
    max_running: int
    waiting: int
    max_waiting: int
    waiting_by_reason: dict[str, int]
    oldest_waiting: float
    predicted_wait: float | None
    silence: float
    longest_gap: float
    kv_blocks_active: int
    kv_blocks_cached: int
    kv_blocks_free: int
    block_size: int
    minute: Window
    five_minutes: Window
    slo: dict[str, float]
    parts: dict[str, str]  # health of engine, store, tracing … in a word or sentence
    quantization: str = ""  # as in /health; empty until the model is loaded
    unserved_inputs: tuple[str, ...] = ()  # likewise
    engines: int = 1  # that the server has when all run
    engine_restarts: int = 0
    worker_restarts: int = 0
    largest_holder: str | None = None  # key alias
    largest_holder_share: float = 0.0
    missing_workers: tuple[int, ...] = ()  # that run but did not answer: not in these figures


class Mark(msgspec.Struct, frozen=True):
    """Something to draw on every chart: a restart, a handover, a drain, a changed setting."""

    time: float
    kind: str
    text: str


class Series(msgspec.Struct, frozen=True):
    """Samples of ``observability.history.HISTORY``, ``step`` seconds apart from ``start`` on."""

    start: float
    step: float
    values: dict[str, tuple[float | None, ...]]
    marks: tuple[Mark, ...] = ()


# --- usage, settings, operations --------------------------------------------------------------


class UsageRow(msgspec.Struct, frozen=True, kw_only=True):
    """What a group (a key's alias, a model or a route) used in the hour or day from ``start``."""

    start: float
    group: str
    requests: int
    errors: int
    prompt_tokens: int
    cached_tokens: int
    output_tokens: int
    reasoning_tokens: int
    seconds: float


class UsageRows(msgspec.Struct, frozen=True):
    """In the order of their starts."""

    rows: tuple[UsageRow, ...]


class HotSetting(msgspec.Struct, frozen=True, kw_only=True):
    """A setting that can be changed while the server runs."""

    name: str
    help: str
    kind: str  # "int", "float", "choice"
    value: float | int | str
    default: float | int | str
    minimum: float | None = None
    maximum: float | None = None
    choices: tuple[str, ...] = ()
    unit: str = ""
    changed_by: str | None = None
    changed: float | None = None


class Settings(msgspec.Struct, frozen=True):
    revision: str  # what ``If-Match`` must carry
    settings: tuple[HotSetting, ...]


class AuditRow(msgspec.Struct, frozen=True, kw_only=True):
    """A change that an operator made or tried to make. ``actor``: a key's alias or "loopback"."""

    time: float
    actor: str
    address: str
    action: str
    target: str = ""
    before: str = ""
    after: str = ""
    result: str = "done"


class AuditRows(msgspec.Struct, frozen=True):
    rows: tuple[AuditRow, ...]
    source: str = "memory"  # or "store"


class LoadRun(msgspec.Struct, frozen=True, kw_only=True):
    """A load run that the server drives against itself as the tenant ``loadtest``."""

    profile: str
    rate: float  # requests per second, at most MAX_LOAD_RATE
    seconds: float
    concurrency: int
    started: float
    state: str  # "running", "done", "stopped"
    elapsed: float = 0.0  # seconds until now, or until its end
    sent: int = 0
    ended: dict[str, int] = {}
    tokens_out: int = 0
    ttft: Quantiles = Quantiles()
    itl: Quantiles = Quantiles()
    total: Quantiles = Quantiles()


class LoadReport(msgspec.Struct, frozen=True, kw_only=True):
    """The load run in progress or else the last one, and what profiles there are, by name."""

    run: LoadRun | None
    profiles: dict[str, str]


class Frame(msgspec.Struct, frozen=True, kw_only=True):
    """One message of the feed: what changed this second. ``sample``: the newest row of the history
    by name; ``live``: the ten slowest of the live requests, the slowest first."""

    overview: Overview | None = None
    sample: dict[str, float | None] | None = None
    live: tuple[KeptRequest, ...] | None = None
    kv: KvMap | None = None
    marks: tuple[Mark, ...] = ()


class BundleManifest(msgspec.Struct, frozen=True, kw_only=True):
    """What a bundle is of. ``settings``: those of the start, without secrets."""

    created: float
    versions: dict[str, str]
    settings: dict[str, Any]
    engine: dict[str, Any]


BUNDLE_FILES = {
    "manifest.json": BundleManifest,
    "overview.json": Overview,
    "series.json": Series,
    "requests.json": RequestPage,
    "audit.json": AuditRows,
    "hot_settings.json": Settings,
}
"""The files in a bundle, which is a zip archive, and their types."""
