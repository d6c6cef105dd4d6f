"""What health, readiness and liveness say as the server starts, fails and shuts down."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
from litestar import Litestar
from litestar.testing import TestClient

from service.app import create_app
from service.settings import ServiceSettings
from service.supervision.page import SUPERVISOR_TIMEOUT_SECONDS, Supervision, SupervisorPage
from service.supervision.restarts import FAILING_DEATHS, HOPELESS_DEATHS
from service.telemetry.observer import NoTelemetry

READY = ("/health", "/health/ready")


def supervised(
    model: Path, folder: Path, deaths: int, *, silent: float = 0.0
) -> TestClient[Litestar]:
    page = SupervisorPage()
    page.beat(time.monotonic() - silent)
    page.set_engine(0, deaths=deaths)
    app = create_app(
        ServiceSettings(),
        model_dir=model,
        socket_path=folder / "no-engine.sock",
        telemetry=NoTelemetry(),
        supervision=Supervision(page),
    )
    return TestClient(app, base_url="http://quire.localhost")


def test_while_the_model_loads_the_server_is_live_but_not_ready(
    client: TestClient[Litestar],
) -> None:
    for path in READY:
        reply = client.get(path)
        assert reply.status_code == 503
        health = reply.json()
        assert (health["status"], health["model"]) == ("loading", "own-template")
        assert (health["engine"]["phase"], health["engine"]["running"]) == ("connecting", None)
        assert health["problem"] is None
        assert reply.headers["cache-control"] == "no-store"  # a proxy's copy would lie
    assert client.get("/health/live").status_code == 200


def test_a_server_that_shuts_down_is_not_ready_but_stays_live(
    client: TestClient[Litestar],
) -> None:
    client.app.state.drain.begin()
    for path in READY:
        reply = client.get(path)
        assert (reply.status_code, reply.json()["status"]) == (503, "draining")
    assert client.get("/health/live").status_code == 200


@pytest.mark.parametrize(
    ("deaths", "silent", "status", "live"),
    [
        (FAILING_DEATHS - 1, 0, "loading", 200),
        (FAILING_DEATHS, 0, "failing", 200),
        (HOPELESS_DEATHS, 0, "failing", 503),
        (0, SUPERVISOR_TIMEOUT_SECONDS + 1, "loading", 503),
    ],
    ids=["few deaths", "many deaths", "hopeless", "a silent supervisor"],
)
def test_liveness_fails_only_where_nothing_but_a_restart_helps(
    own_template: Path, tmp_path: Path, deaths: int, silent: float, status: str, live: int
) -> None:
    with supervised(own_template, tmp_path, deaths, silent=silent) as client:
        health = client.get("/health").json()
        assert health["status"] == status
        assert (health["problem"] is not None) == (status == "failing")
        assert client.get("/health/live").status_code == live


def test_metrics_have_the_media_type_of_their_format(client: TestClient[Litestar]) -> None:
    reply = client.get("/metrics")
    assert reply.status_code == 200
    assert reply.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"


def test_each_of_several_engines_is_listed(own_template: Path, tmp_path: Path) -> None:
    def health(*others: Path) -> dict[str, Any]:
        app = create_app(
            ServiceSettings(),
            model_dir=own_template,
            socket_path=tmp_path / "engine-0.sock",
            other_sockets=others,
            telemetry=NoTelemetry(),
        )
        with TestClient(app, base_url="http://quire.localhost") as client:
            found: dict[str, Any] = client.get("/health").json()
            return found

    assert "engines" not in health()
    two = health(tmp_path / "engine-1.sock")
    assert [one["phase"] for one in two["engines"]] == ["connecting"] * 2
    assert two["engine"]["phase"] == "connecting"
