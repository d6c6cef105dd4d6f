"""The service's settings, each declared once: type, bounds, default, meaning.

``engine.options`` turns such a struct into command-line flags and environment variables.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from engine.options import SECRET


class ServiceSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How the service listens, whom it lets in and how much it takes on."""

    host: Annotated[str, Meta(description="Address to listen on.")] = "127.0.0.1"
    port: Annotated[
        int, Meta(ge=0, le=65535, description="Port to listen on; 0: any free one.")
    ] = 8000
    grpc_port: (
        Annotated[
            int,
            Meta(
                ge=0,
                le=65535,
                description="Port for gRPC on the same address, without TLS; 0: any free one. "
                "Default: no gRPC.",
            ),
        ]
        | None
    ) = None
    served_model_name: Annotated[
        tuple[str, ...],
        Meta(
            max_length=64,
            description="Names by which clients request the model; replies use the first. "
            "Default: the model directory's name.",
        ),
    ] = ()
    tool_call_parser: Annotated[
        str,
        Meta(
            max_length=64,
            description="Format of the model's tool calls, by the name other servers use "
            "(hermes, qwen3_coder, kimi_k2, …). none: calls stay text. auto: detected from the "
            "model directory.",
        ),
    ] = "auto"
    reasoning_parser: Annotated[
        str,
        Meta(
            max_length=64,
            description="Format of the model's reasoning, likewise (deepseek_r1, mistral, …).",
        ),
    ] = "auto"
    api_key: Annotated[
        tuple[str, ...],
        Meta(
            max_length=1024,
            description="Keys that clients must send as a bearer token. Default: no key required.",
            extra=SECRET,
        ),
    ] = ()
    priority_api_key: Annotated[
        tuple[str, ...],
        Meta(
            max_length=1024,
            description="Further API keys, whose requests may also go ahead of others (a "
            "negative priority). If the server has only one key in all, it may too.",
            extra=SECRET,
        ),
    ] = ()
    allowed_origins: Annotated[
        tuple[str, ...],
        Meta(
            max_length=256,
            description="Origins of web pages that may call this server from a browser (CORS): "
            "https://chat.example, http://localhost:3000, or * for all. Default: none.",
        ),
    ] = ()
    allowed_hosts: Annotated[
        tuple[str, ...],
        Meta(
            max_length=256,
            description="Host names, besides localhost, by which clients reach this server (the "
            "Host header without the port), or * for any. Default: any; without API keys on a "
            "loopback address, only localhost.",
        ),
    ] = ()
    max_websockets: Annotated[
        int,
        Meta(
            ge=0,
            le=65_536,
            description="Most WebSocket connections (/v1/responses) open at once; beyond it, "
            "clients get 426 and use HTTP. 0: no WebSocket.",
        ),
    ] = 64
    receive_timeout: Annotated[
        float,
        Meta(
            gt=0,
            le=3600,
            description="Seconds a new connection may wait before its first request, and a body "
            "may stall while it is sent. A whole body may take minutes longer, the "
            "larger the more.",
        ),
    ] = 30.0
    idle_timeout: Annotated[
        float,
        Meta(
            gt=0,
            le=86_400,
            description="Seconds a connection may stay idle between requests.",
        ),
    ] = 120.0
    max_body_bytes: Annotated[
        int,
        Meta(
            ge=1024,
            le=1 << 30,
            description="Largest request body, in bytes, after decompression; larger ones get 413.",
        ),
    ] = 8 * 1024 * 1024
    unknown_fields: Annotated[
        Literal["report", "refuse"],
        Meta(
            description="Requests with unknown fields. report: the fields are ignored and named in "
            "the x-quire-ignored header; refuse: the request fails with 400."
        ),
    ] = "report"
    max_choices: Annotated[
        int, Meta(ge=1, le=1024, description="Most choices (n) of one request.")
    ] = 16
    max_waiting_requests: Annotated[
        int,
        Meta(
            ge=1,
            le=1_000_000,
            description="Most sequences waiting for the engine; beyond it, requests get 429.",
        ),
    ] = 1024
    drain_timeout: Annotated[
        float,
        Meta(
            ge=0, le=3600, description="Seconds that running requests have to finish at shutdown."
        ),
    ] = 30.0
    engine_silence_timeout: Annotated[
        float,
        Meta(
            gt=0,
            le=3600,
            description="Seconds without a message from the engine after which the server is "
            "not ready.",
        ),
    ] = 30.0
    engine_restart_timeout: Annotated[
        float,
        Meta(
            ge=0,
            le=3600,
            description="Seconds that running requests wait for a new engine when theirs died, "
            "to continue in it. If 0, or less than the model took to load, they fail at once.",
        ),
    ] = 120.0
    engine_hang_timeout: (
        Annotated[
            float,
            Meta(
                ge=0,
                le=3600,
                description="Seconds without progress after which an engine that has work, or "
                "does not respond, is killed and restarted; must exceed its longest step. "
                "0: never. Default: 60, on a CPU longer if its steps are slow.",
            ),
        ]
        | None
    ) = None
    worker_hang_timeout: Annotated[
        float,
        Meta(
            ge=0,
            le=3600,
            description="Seconds after which an API worker whose event loop is blocked is killed "
            "and restarted; ten times as long while it starts. 0: never.",
        ),
    ] = 30.0
    stream_keep_alive: Annotated[
        float,
        Meta(
            ge=0,
            le=3600,
            description="Seconds of silence after which an SSE stream gets a comment, which "
            "clients skip, so that proxies do not time out. 0: never.",
        ),
    ] = 15.0
    slow_reader_timeout: Annotated[
        float,
        Meta(
            gt=0,
            le=3600,
            description="Seconds a client may block one write of its answer before it is "
            "disconnected.",
        ),
    ] = 60.0
    signing_key: (
        Annotated[
            str,
            Meta(
                min_length=16,
                max_length=1024,
                description="Secret for signing thinking blocks and sealing reasoning; all "
                "replicas need the same. Default: a new one at each start for signatures, one "
                "saved next to the store for seals.",
                extra=SECRET,
            ),
        ]
        | None
    ) = None
    store_url: Annotated[
        str,
        Meta(
            max_length=4096,
            description="Where responses are stored: sqlite:///FILE, postgresql://…, or none. "
            "Default: an SQLite file in ~/.local/state/quire ($XDG_STATE_HOME).",
            extra=SECRET,
        ),
    ] = ""
    store_max_responses: Annotated[
        int,
        Meta(
            ge=1,
            le=100_000_000,
            description="Most stored responses; beyond it, the oldest are deleted.",
        ),
    ] = 10_000
    store_max_bytes: Annotated[
        int,
        Meta(
            ge=1 << 20,
            le=1 << 44,
            description="Most bytes of stored responses (compressed); beyond it, the oldest "
            "are deleted.",
        ),
    ] = 1 << 30
    store_ttl: Annotated[
        float,
        Meta(gt=0, le=10 * 365 * 86400, description="Seconds a response stays stored."),
    ] = 30 * 86400.0
    resume_timeout: Annotated[
        float,
        Meta(
            gt=0,
            le=3600,
            description="Seconds that a resumable stream keeps running without a reader, and that "
            "it can be read again after its end.",
        ),
    ] = 60.0
    resume_stream_bytes: Annotated[
        int,
        Meta(
            ge=1 << 12,
            le=1 << 30,
            description="Bytes kept of one resumable stream; older ones are dropped.",
        ),
    ] = 4 * 1024 * 1024
    resume_total_bytes: Annotated[
        int,
        Meta(
            ge=1 << 12,
            le=1 << 36,
            description="Bytes kept of all resumable streams; beyond it, ended streams are "
            "dropped, then new ones get 429.",
        ),
    ] = 256 * 1024 * 1024
    log_level: Annotated[
        Literal["debug", "info", "warning", "error"],
        Meta(description="Lowest severity that is logged."),
    ] = "info"
    log_format: Annotated[
        Literal["auto", "json", "console"],
        Meta(description="auto: readable text on a terminal, JSON lines elsewhere."),
    ] = "auto"

    @property
    def keys(self) -> tuple[str, ...]:
        """Every key that lets a client in, each once; empty: no key is needed."""
        return tuple(dict.fromkeys((*self.api_key, *self.priority_api_key)))

    def names(self, model_dir: Path) -> tuple[str, ...]:
        """The names by which clients may request the model; replies use the first."""
        return self.served_model_name or (model_dir.resolve().name,)
