"""The service's settings, each declared once: type, bounds, default, meaning.

``engine.options`` turns such a struct into command-line flags and environment variables.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from msgspec import Meta

from engine.options import OptionError, setting
from observability.catalogue import LOAD_TEST_KEY
from service.drain_settings import DrainSettings

# Groups, in the order in which the documentation lists them.
_NETWORK = "Network"
_CONNECTIONS = "Connections"
_NAMES_AND_FORMATS = "Names and formats"
_LIMITS = "Limits"
_AVAILABILITY = "Availability"
_STORED_RESPONSES = "Stored responses"
_RESUMABLE_STREAMS = "Resumable streams"
_LOGS = "Logs"
_METRICS = "Metrics"
_OBJECTIVES = "Objectives"

_Seconds = Annotated[float, Meta(gt=0, le=3600)]
_SecondsOrNone = Annotated[float, Meta(ge=0, le=3600)]  # 0 has a special meaning


# What is watched for, and not enforced.
_SloTtft = Annotated[
    _Seconds,
    setting(
        _OBJECTIVES,
        "Seconds within which the first token of an answer should come: the objective that "
        "attainment is measured against.",
    ),
]
_SloItl = Annotated[
    _Seconds,
    setting(_OBJECTIVES, "Seconds within which each next token should come, on average."),
]
_KeptRequests = Annotated[
    int,
    setting(
        _LOGS,
        "How many ended requests to keep in memory for the admin API, about 2 KiB each and 64 MiB "
        "at most.",
        ge=1,
        le=100_000,
    ),
]
_MetricsAliases = Annotated[
    Literal["none", "vllm"],
    setting(
        _METRICS,
        "Additional metric names on /metrics, for boards and autoscalers made for another server.",
    ),
]


class ServiceSettings(DrainSettings, frozen=True, kw_only=True):
    """How the service listens, which clients it accepts and how much it takes on."""

    host: Annotated[
        str, setting(_NETWORK, "Address to listen on; :: means all, of IPv6 and IPv4.")
    ] = "127.0.0.1"
    port: Annotated[
        int, setting(_NETWORK, "Port to listen on; 0: any free one.", ge=0, le=65535)
    ] = 8000
    grpc_port: (
        Annotated[
            int,
            setting(
                _NETWORK,
                "Port for gRPC on the same address, without TLS; 0: any free one. Default: no "
                "gRPC.",
                ge=0,
                le=65535,
            ),
        ]
        | None
    ) = None
    allowed_origins: Annotated[
        tuple[str, ...],
        setting(
            _NETWORK,
            "Origins of web pages that may call this server from a browser (CORS): "
            "https://chat.example, http://localhost:3000, or * for all. Default: none.",
            max_length=256,
        ),
    ] = ()
    allowed_hosts: Annotated[
        tuple[str, ...],
        setting(
            _NETWORK,
            "Host names, besides localhost, by which clients reach this server (the Host "
            "header without the port), or * for any. Default: any; without API keys on a "
            "loopback address, only localhost. On addresses other than loopback, requests by IP "
            "address are always answered.",
            max_length=256,
        ),
    ] = ()
    max_websockets: Annotated[
        int,
        setting(
            _NETWORK,
            "Maximum number of WebSocket connections (/v1/responses) open at once; beyond it, "
            "clients get 426 and use HTTP. 0: no WebSockets.",
            ge=0,
            le=65_536,
        ),
    ] = 64
    receive_timeout: Annotated[
        _Seconds,
        setting(
            _CONNECTIONS,
            "Seconds a new connection may wait before its first request, and a body may "
            "stall while it is sent. A whole body may take minutes longer, depending on its "
            "size.",
        ),
    ] = 30.0
    idle_timeout: Annotated[
        float,
        setting(
            _CONNECTIONS, "Seconds a connection may stay idle between requests.", gt=0, le=86_400
        ),
    ] = 120.0
    stream_keep_alive: Annotated[
        _SecondsOrNone,
        setting(
            _CONNECTIONS,
            "Seconds of silence after which an SSE stream gets a comment, which clients "
            "skip, so that proxies do not time out. 0: never.",
        ),
    ] = 15.0
    slow_reader_timeout: Annotated[
        _Seconds,
        setting(
            _CONNECTIONS,
            "Seconds a client may block one write of its answer before it is disconnected.",
        ),
    ] = 60.0
    served_model_name: Annotated[
        tuple[str, ...],
        setting(
            _NAMES_AND_FORMATS,
            "Names by which clients request the model; replies use the first. Default: the "
            "model directory's name.",
            max_length=64,
        ),
    ] = ()
    tool_call_parser: Annotated[
        str,
        setting(
            _NAMES_AND_FORMATS,
            "Format of the model's tool calls, by the name other servers use (hermes, "
            "qwen3_coder, kimi_k2, …). none: calls are left as text. auto: detected from the "
            "model directory.",
            max_length=64,
        ),
    ] = "auto"
    reasoning_parser: Annotated[
        str,
        setting(
            _NAMES_AND_FORMATS,
            "Format of the model's reasoning, likewise (deepseek_r1, mistral, …).",
            max_length=64,
        ),
    ] = "auto"
    unknown_fields: Annotated[
        Literal["report", "refuse"],
        setting(
            _NAMES_AND_FORMATS,
            "What to do with unknown fields of a request. report: ignore them and name them in "
            "the x-quire-ignored header; refuse: fail the request with 400.",
        ),
    ] = "report"
    max_body_bytes: Annotated[
        int,
        setting(
            _LIMITS,
            "Largest request body, in bytes, after decompression; larger ones get 413.",
            ge=1024,
            le=1 << 30,
        ),
    ] = 8 * 1024 * 1024
    max_choices: Annotated[
        int, setting(_LIMITS, "Maximum number of choices (n) in one request.", ge=1, le=1024)
    ] = 16
    max_waiting_requests: Annotated[
        int,
        setting(
            _LIMITS,
            "Maximum number of sequences waiting for the engine; beyond it, requests get 429.",
            ge=1,
            le=1_000_000,
        ),
    ] = 1024
    max_waiting_tokens: Annotated[
        int,
        setting(
            _LIMITS,
            "Maximum number of tokens of all sequences waiting for the engine, each with its "
            "prompt and up to 1024 output tokens; beyond it, requests get 429.",
            ge=1,
            le=10**12,
        ),
    ] = 4_194_304
    api_workers: Annotated[
        int,
        setting(
            _AVAILABILITY,
            "Number of API worker processes. They share the ports; if one dies, only its own "
            "connections break. A single one serves about 40,000 tokens per second.",
            ge=1,
            le=32,
        ),
    ] = 1
    engine_silence_timeout: Annotated[
        _Seconds,
        setting(
            _AVAILABILITY,
            "Seconds without a message from the engine after which the server is not ready and "
            "refuses requests (503). A healthy engine sends one at least every two seconds, also "
            "during a long step.",
        ),
    ] = 5.0
    engine_restart_timeout: Annotated[
        _SecondsOrNone,
        setting(
            _AVAILABILITY,
            "Seconds that running requests wait for a new engine when theirs died, to "
            "continue in it. If 0, or less than the model took to load, they fail at once.",
        ),
    ] = 120.0
    engine_hang_timeout: (
        Annotated[
            _SecondsOrNone,
            setting(
                _AVAILABILITY,
                "Seconds without progress after which an engine that has work, or does not "
                "respond, is killed and restarted; must exceed its longest step. 0: never. "
                "Default: 60, on a CPU longer if its steps are slow.",
            ),
        ]
        | None
    ) = None
    worker_hang_timeout: Annotated[
        _SecondsOrNone,
        setting(
            _AVAILABILITY,
            "Seconds after which an API worker whose event loop is blocked is killed and "
            "restarted; ten times as long while it starts. 0: never.",
        ),
    ] = 30.0
    store_url: Annotated[
        str,
        setting(
            _STORED_RESPONSES,
            "Where responses are stored: sqlite:///FILE, postgresql://…, or none. Default: "
            "an SQLite file in ~/.local/state/quire ($XDG_STATE_HOME).",
            max_length=4096,
            secret=True,
        ),
    ] = ""
    store_max_responses: Annotated[
        int,
        setting(
            _STORED_RESPONSES,
            "Maximum number of stored responses; beyond it, the oldest are deleted.",
            ge=1,
            le=100_000_000,
        ),
    ] = 10_000
    store_max_bytes: Annotated[
        int,
        setting(
            _STORED_RESPONSES,
            "Maximum bytes of stored responses (compressed); beyond it, the oldest are deleted.",
            ge=1 << 20,
            le=1 << 44,
        ),
    ] = 1 << 30
    store_ttl: Annotated[
        float,
        setting(
            _STORED_RESPONSES, "Seconds for which a response is stored.", gt=0, le=10 * 365 * 86400
        ),
    ] = 30 * 86400.0
    resume_timeout: Annotated[
        _Seconds,
        setting(
            _RESUMABLE_STREAMS,
            "Seconds that a resumable stream keeps running without a reader, and that it "
            "can be read again after its end.",
        ),
    ] = 60.0
    resume_stream_bytes: Annotated[
        int,
        setting(
            _RESUMABLE_STREAMS,
            "Bytes kept of one resumable stream; older ones are dropped.",
            ge=1 << 12,
            le=1 << 30,
        ),
    ] = 4 * 1024 * 1024
    resume_total_bytes: Annotated[
        int,
        setting(
            _RESUMABLE_STREAMS,
            "Bytes kept of all resumable streams; beyond it, ended streams are dropped, "
            "then new ones get 429.",
            ge=1 << 12,
            le=1 << 36,
        ),
    ] = 256 * 1024 * 1024
    log_level: Annotated[
        Literal["debug", "info", "warning", "error"],
        setting(_LOGS, "Lowest severity that is logged."),
    ] = "info"
    log_format: Annotated[
        Literal["auto", "json", "console"],
        setting(_LOGS, "auto: readable text on a terminal, JSON lines elsewhere."),
    ] = "auto"
    log_clients: Annotated[
        bool,
        setting(_LOGS, "Log the client's address and user agent with each request."),
    ] = True

    keep_requests: _KeptRequests = 10_000
    slo_ttft: _SloTtft = 2.0
    slo_itl: _SloItl = 0.1
    metrics_aliases: _MetricsAliases = "none"

    def __post_init__(self) -> None:
        """Raise OptionError if the keys contradict each other, or there is no such key."""
        super().__post_init__()
        try:
            _ = self.keys
        except ValueError as error:
            raise OptionError(f"--api-key: {error}") from None
        if not self.keys_change:
            self.check_tracing_keys(self.tenants)
        self.check_stored_keys(self.store_url)

    @property
    def counted_keys(self) -> tuple[str, ...]:
        """Return the aliases whose usage is counted by name: those of all keys, and of load runs
        where the admin API can start them."""
        return (*self.tenants, LOAD_TEST_KEY) if self.admin else self.tenants

    def names(self, model_dir: Path) -> tuple[str, ...]:
        """Return the names by which clients may request the model; replies use the first."""
        return self.served_model_name or (model_dir.resolve().name,)
