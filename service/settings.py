"""The service's settings, each declared once: type, bounds, default, meaning.

``engine.options`` turns such a struct into command-line flags and environment variables.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import msgspec
from msgspec import Meta


class ServiceSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How the HTTP side listens, whom it lets in and how much it takes on."""

    host: Annotated[str, Meta(description="Address to listen on.")] = "127.0.0.1"
    port: Annotated[
        int, Meta(ge=0, le=65535, description="Port to listen on; 0: any free one.")
    ] = 8000
    served_model_name: Annotated[
        tuple[str, ...],
        Meta(
            max_length=64,
            description="Names under which clients ask for the model; the first is the one "
            "in replies. Default: the model directory's name.",
        ),
    ] = ()
    api_key: Annotated[
        tuple[str, ...],
        Meta(
            max_length=1024,
            description="Keys that clients must present as a bearer token. Default: no key needed.",
        ),
    ] = ()
    max_body_bytes: Annotated[
        int, Meta(ge=1024, le=1 << 30, description="Largest request body; beyond it: 413.")
    ] = 8 * 1024 * 1024
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
    slow_reader_timeout: Annotated[
        float,
        Meta(
            gt=0,
            le=3600,
            description="Seconds a client may leave one write of its stream waiting before it is "
            "cut off.",
        ),
    ] = 60.0
    signing_key: (
        Annotated[
            str,
            Meta(
                min_length=16,
                max_length=1024,
                description="Secret that signs thinking blocks, the same in all replicas; default: "
                "a new one at each start.",
            ),
        ]
        | None
    ) = None
    log_level: Annotated[
        Literal["debug", "info", "warning", "error"],
        Meta(description="Least severe log line kept."),
    ] = "info"
    log_format: Annotated[
        Literal["auto", "json", "console"],
        Meta(description="auto: readable text on a terminal, JSON lines elsewhere."),
    ] = "auto"

    def names(self, model_dir: Path) -> tuple[str, ...]:
        """The names that clients may ask for, the first being the one in replies."""
        return self.served_model_name or (model_dir.resolve().name,)
