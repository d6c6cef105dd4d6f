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
            description="Names under which clients ask for the model; the first is the one "
            "in replies. Default: the model directory's name.",
        ),
    ] = ()
    tool_call_parser: Annotated[
        str,
        Meta(
            max_length=64,
            description="How the model writes tool calls, by the name other servers know "
            "(hermes, qwen3_coder, kimi_k2, …); none: calls stay text. Default: what the model "
            "directory shows.",
        ),
    ] = "auto"
    reasoning_parser: Annotated[
        str,
        Meta(
            max_length=64,
            description="How the model marks reasoning, likewise (deepseek_r1, mistral, …).",
        ),
    ] = "auto"
    api_key: Annotated[
        tuple[str, ...],
        Meta(
            max_length=1024,
            description="Keys that clients must present as a bearer token. Default: no key needed.",
            extra=SECRET,
        ),
    ] = ()
    priority_api_key: Annotated[
        tuple[str, ...],
        Meta(
            max_length=1024,
            description="Keys, beside those of --api-key, whose requests may also go ahead of "
            "others (a negative priority). With a single key in all, it may.",
            extra=SECRET,
        ),
    ] = ()
    allowed_origins: Annotated[
        tuple[str, ...],
        Meta(
            max_length=256,
            description="Web pages that may call this server from a browser (CORS), as origins: "
            "https://chat.example, http://localhost:3000, or * for all. Default: none.",
        ),
    ] = ()
    allowed_hosts: Annotated[
        tuple[str, ...],
        Meta(
            max_length=256,
            description="Names, besides localhost, under which clients reach this server (the "
            "Host header, without port), or * for any. Default: any; only localhost where it "
            "listens on a loopback address without keys.",
        ),
    ] = ()
    max_websockets: Annotated[
        int,
        Meta(
            ge=0,
            le=65_536,
            description="WebSocket connections (/v1/responses) at once; 0: none, clients are told "
            "to use HTTP (426).",
        ),
    ] = 64
    receive_timeout: Annotated[
        float,
        Meta(
            gt=0,
            le=3600,
            description="Seconds that a client may let pass before its first request on a "
            "connection, and without progress while it sends a body.",
        ),
    ] = 30.0
    idle_timeout: Annotated[
        float,
        Meta(
            gt=0,
            le=86_400,
            description="Seconds that a connection stays open between requests.",
        ),
    ] = 120.0
    max_body_bytes: Annotated[
        int,
        Meta(
            ge=1024,
            le=1 << 30,
            description="Largest request body, once decompressed; beyond it: 413.",
        ),
    ] = 8 * 1024 * 1024
    unknown_fields: Annotated[
        Literal["report", "refuse"],
        Meta(
            description="What becomes of a request with fields that are not known here: they are "
            "left out and named in the x-quire-ignored header, or the request is refused (400)."
        ),
    ] = "report"
    max_choices: Annotated[
        int, Meta(ge=1, le=1024, description="Most answers (n) of one request.")
    ] = 16
    max_waiting_requests: Annotated[
        int,
        Meta(
            ge=1,
            le=1_000_000,
            description="Sequences waiting for the engine beyond which requests are refused (429).",
        ),
    ] = 1024
    drain_timeout: Annotated[
        float,
        Meta(ge=0, le=3600, description="Seconds that running requests get at shutdown."),
    ] = 30.0
    engine_silence_timeout: Annotated[
        float,
        Meta(
            gt=0,
            le=3600,
            description="Seconds without a word from the engine after which it is not ready.",
        ),
    ] = 30.0
    engine_restart_timeout: Annotated[
        float,
        Meta(
            ge=0,
            le=3600,
            description="Seconds that running requests wait for the next engine when theirs died, "
            "to go on in it. If 0, or less than the model took to load, they fail at once.",
        ),
    ] = 120.0
    engine_hang_timeout: (
        Annotated[
            float,
            Meta(
                ge=0,
                le=3600,
                description="Seconds without progress after which an engine with work, or one "
                "that does not respond, is killed and started again; longer than its longest "
                "step. 0: never. Default: 60, on a CPU more where steps take long.",
            ),
        ]
        | None
    ) = None
    worker_hang_timeout: Annotated[
        float,
        Meta(
            ge=0,
            le=3600,
            description="Seconds after which an API worker whose event loop stands still is killed "
            "and started again; while it starts, ten times as long. 0: never.",
        ),
    ] = 30.0
    stream_keep_alive: Annotated[
        float,
        Meta(
            ge=0,
            le=3600,
            description="Seconds of silence after which an SSE stream gets a comment, which every "
            "client skips, so that no proxy takes it for dead. 0: never.",
        ),
    ] = 15.0
    slow_reader_timeout: Annotated[
        float,
        Meta(
            gt=0,
            le=3600,
            description="Seconds a client may leave one write of its answer waiting before it is "
            "cut off.",
        ),
    ] = 60.0
    signing_key: (
        Annotated[
            str,
            Meta(
                min_length=16,
                max_length=1024,
                description="Secret that signs thinking blocks and seals reasoning, the same in "
                "all replicas; default: signatures use a new one at each start, seals one that "
                "is kept beside the store.",
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
        Meta(ge=1, le=100_000_000, description="Stored responses beyond which the oldest go."),
    ] = 10_000
    store_max_bytes: Annotated[
        int,
        Meta(
            ge=1 << 20,
            le=1 << 44,
            description="Bytes of stored responses (compressed) beyond which the oldest go.",
        ),
    ] = 1 << 30
    store_ttl: Annotated[
        float,
        Meta(gt=0, le=10 * 365 * 86400, description="Seconds that a response stays stored."),
    ] = 30 * 86400.0
    resume_timeout: Annotated[
        float,
        Meta(
            gt=0,
            le=3600,
            description="Seconds that a resumable stream goes on with nobody reading it, and that "
            "it can be read again after its end.",
        ),
    ] = 60.0
    resume_stream_bytes: Annotated[
        int,
        Meta(
            ge=1 << 12,
            le=1 << 30,
            description="Bytes of one resumable stream that are kept; older ones are dropped.",
        ),
    ] = 4 * 1024 * 1024
    resume_total_bytes: Annotated[
        int,
        Meta(
            ge=1 << 12,
            le=1 << 36,
            description="Bytes of all resumable streams; beyond it ended ones are dropped, then "
            "new ones are refused (429).",
        ),
    ] = 256 * 1024 * 1024
    log_level: Annotated[
        Literal["debug", "info", "warning", "error"],
        Meta(description="Least severe log line kept."),
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
        """The names that clients may ask for, the first being the one in replies."""
        return self.served_model_name or (model_dir.resolve().name,)
