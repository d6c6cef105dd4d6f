"""The application without an engine, for tests of the layers in front of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from litestar import Litestar
from litestar.testing import TestClient

from service.app import create_app
from service.settings import ServiceSettings
from service.telemetry.observer import NoTelemetry

CHAT = "/v1/chat/completions"
KEYS = ("sk-first", "sk-second")
PAGE = "http://localhost:3000"
EVIL = "http://evil.example"


def new_app(model: Path, folder: Path, **settings: Any) -> Litestar:
    return create_app(
        ServiceSettings(**settings),
        model_dir=model,
        socket_path=folder / "no-engine.sock",
        telemetry=NoTelemetry(),
    )


def client_of(model: Path, folder: Path, **settings: Any) -> TestClient[Litestar]:
    return TestClient(new_app(model, folder, **settings), base_url="http://quire.localhost")


def routes(app: Litestar) -> list[tuple[str, str]]:
    """Every method and path that the app answers, parameters filled in."""
    return [
        (method, route.path_format.replace("{model_id}", "tiny"))
        for route in app.routes
        for method in sorted(route.methods)  # type: ignore[union-attr]  # all are HTTP routes
    ]
