"""A worker's services whose engine is the test, and the clients of one request each."""

from __future__ import annotations

import dataclasses
import time
from array import array
from collections.abc import Awaitable, Callable
from functools import cache
from pathlib import Path
from typing import Any

from engine.messages import FinishReason, Ready
from pocket import MODEL_DIR
from service.admission.admission import Admission
from service.admission.drain import Drain
from service.app import create_app
from service.engine.link import EngineState, LinkPhase
from service.generation.generator import Generator
from service.serving.client import Client
from service.serving.exchange import Exchange
from service.serving.services import Services
from service.settings import ServiceSettings
from service.telemetry.observer import NoTelemetry
from service.telemetry.record import RequestRecord
from tests.service.preparation.prepared import engine
from tests.service.wire.chat.test_answer import Desk, finish


@cache
def _pocket(**settings: Any) -> Services:
    app = create_app(
        ServiceSettings(
            store_url="none",
            signing_key="of the test",
            **{"served_model_name": ("pocket",), **settings},
        ),
        model_dir=MODEL_DIR,
        socket_path=Path("unused"),
        telemetry=NoTelemetry(),
    )
    made: Services = app.state.services
    return made


def services(desk: Desk, **settings: Any) -> Services:
    """Those of pocket, which needs no process for what is small."""
    made, drain = _pocket(**settings), Drain(30)
    return dataclasses.replace(
        made,
        link=desk,
        generator=Generator(desk, made.checkpoint),
        drain=drain,
        admission=Admission(made.settings, desk, drain),
    )


def loaded(ready: Ready | None = None, *, answers: bool = False) -> Desk:
    """An engine that has loaded its model."""
    desk = Desk(answers=answers)
    desk.state = EngineState(LinkPhase.READY, "ready", ready or engine())
    return desk


def record(**fields: Any) -> RequestRecord:
    return RequestRecord(
        "req_1", "chat_completions", "POST", "/v1/x", time.monotonic(), time.time_ns(), **fields
    )


def client(of: Services, left: Callable[[], Awaitable[None]] | None = None) -> Client:
    return Client(of, Exchange(record(), NoTelemetry()), left)


def say(of: Services, desk: Desk, text: str) -> None:
    """The engine answers the newest sequence, and ends it."""
    sequence = desk.sequences[-1]
    sequence.generated += of.checkpoint.tokenizer.encode(text, add_special_tokens=False)
    finish(sequence, len(sequence.generated), FinishReason.STOP)
    sequence.waker.wake()


def give_vectors(desk: Desk, *vectors: list[float]) -> None:
    """The engine answers each sequence with its vector."""
    for sequence, vector in zip(desk.sequences, vectors, strict=True):
        sequence.vector = array("f", vector).tobytes()
        finish(sequence, 0, FinishReason.STOP)
        sequence.waker.wake()
