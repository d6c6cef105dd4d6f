"""What an operator can change, without an engine."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from observability.logging import set_level
from service.http.admin.application import AdminApp
from service.serving.exchange import Exchange
from service.telemetry.observer import NoTelemetry
from service.telemetry.record import RequestRecord
from tests.service.http.admin.asking import KEYS, OPERATE, READ, Reply, admin_app, ask

V1 = "/admin/v1"


@pytest.fixture
def app(own_template: Path, tmp_path: Path) -> Iterator[AdminApp]:
    level = logging.getLogger().level
    yield admin_app(own_template, tmp_path, admin_key=KEYS, store_url="none")
    set_level(logging.getLevelName(level).lower())


def run(app: AdminApp, *calls: tuple[str, str, object]) -> list[Reply]:
    async def replies() -> list[Reply]:
        return [
            await ask(app, method, V1 + path, key=OPERATE, body=body)
            for method, path, body in calls
        ]

    return asyncio.run(replies())


def audited(app: AdminApp) -> list[tuple[str, str, str, str]]:
    [reply] = run(app, ("GET", "/audit", None))
    return [
        (row["actor"], row["action"], row["target"], row["after"]) for row in reply.json()["rows"]
    ]


def test_drain_and_resume(app: AdminApp) -> None:
    drain = app.desk.services.drain
    before, after = run(app, ("POST", "/drain", None), ("POST", "/drain", {}))
    assert (before.json(), after.json()) == ({"draining": True, "in_flight": 0},) * 2
    assert app.desk.services.health() == "draining"
    [reply] = run(app, ("POST", "/resume", None))
    assert reply.json()["draining"] is False
    assert not drain.draining
    assert [row[1] for row in audited(app)] == ["resume", "drain"]


def test_who_reads_after_an_order_sees_what_it_did(app: AdminApp) -> None:
    calls = [("POST", "/drain", None), ("POST", "/resume", None)]
    each = [run(app, call, ("GET", "/overview", None))[1].json() for call in calls]
    assert [found["state"] == "draining" for found in each] == [True, False]


def test_a_byte_order_mark_is_left_out(app: AdminApp) -> None:
    text = '{"level": "error", "seconds": 60}'
    wide, marked = [msgspec.Raw(text.encode(form)) for form in ("utf-16", "utf-8-sig")]
    refused, taken = run(app, ("POST", "/loglevel", wide), ("POST", "/loglevel", marked))
    assert (refused.status, taken.status) == (400, 200)
    assert logging.getLogger().level == logging.ERROR
    assert "UTF-8" in refused.json()["detail"]


def test_a_shutdown_cannot_be_undone(app: AdminApp) -> None:
    app.desk.services.drain.begin()
    [reply] = run(app, ("POST", "/resume", None))
    assert (reply.status, reply.json()["type"]) == (409, "urn:quire:problem:stopping")
    assert app.desk.services.drain.draining


def test_a_changed_setting_is_in_force_and_audited(app: AdminApp) -> None:
    async def change() -> Reply:
        seen = await ask(app, "GET", f"{V1}/settings", key=READ)
        wanted = {"max_waiting_requests": 3, "slow_reader_timeout": 7.5, "log_level": "error"}
        etag = {"if-match": seen.headers["etag"]}
        return await ask(app, "PATCH", f"{V1}/settings", key=OPERATE, body=wanted, headers=etag)

    reply = asyncio.run(change())
    assert reply.status == 200
    values = {row["name"]: row["value"] for row in reply.json()["settings"]}
    services = app.desk.services
    assert values["max_waiting_requests"] == services.admission.most_waiting == 3
    assert services.overviews.now().max_waiting == 3
    assert values["log_level"] == "error"
    assert logging.getLogger().level == logging.ERROR
    assert ("ann", "settings", "max_waiting_requests", "3") in audited(app)
    assert len(audited(app)) == 3


def test_a_changed_objective_is_what_attainment_is_measured_against(app: AdminApp) -> None:
    async def change() -> None:
        seen = await ask(app, "GET", f"{V1}/settings", key=READ)
        etag = {"if-match": seen.headers["etag"]}
        body = {"slo_ttft": 0.5}
        await ask(app, "PATCH", f"{V1}/settings", key=OPERATE, body=body, headers=etag)

    asyncio.run(change())
    assert app.desk.services.overviews.now().slo["ttft"] == 0.5


def test_a_log_level_for_a_while(app: AdminApp) -> None:
    async def look() -> tuple[Any, int]:
        body = {"level": "debug", "seconds": 0.05}
        reply = await ask(app, "POST", f"{V1}/loglevel", key=OPERATE, body=body)
        assert logging.getLogger().level == logging.DEBUG
        while app.desk.log_level.until is not None:
            await asyncio.sleep(0.01)
        return reply.json(), logging.getLogger().level

    said, level = asyncio.run(look())
    assert (said["level"], said["then"], level) == ("debug", "info", logging.INFO)
    assert [row[:2] for row in audited(app)] == [("timer", "loglevel"), ("ann", "loglevel")]


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/loglevel", {"level": "debug", "seconds": 3601}),
        ("/loglevel", {"level": "debug", "seconds": 0}),
        ("/loglevel", {}),
        ("/tracing", {"ratio": 2}),
        ("/load", {"rate": 1e9}),
        ("/load", {"profile": "storm"}),
        ("/drain", {"force": True}),
    ],
)
def test_orders_out_of_bounds_change_nothing(app: AdminApp, path: str, body: object) -> None:
    [reply] = run(app, ("POST", path, body))
    assert reply.status == 422
    assert [row[1] for row in audited(app)] == [f"POST {V1}{path}"]


def test_without_an_exporter_there_is_no_ratio_to_change(app: AdminApp) -> None:
    [reply] = run(app, ("POST", "/tracing", {"ratio": 1.0}))
    assert reply.status == 503
    assert "OTEL_EXPORTER_OTLP_ENDPOINT" in reply.json()["detail"]


def test_cancelling_a_request_that_is_not_live(app: AdminApp) -> None:
    unknown, *_ = run(app, ("POST", "/requests/req_1/cancel", None))
    assert unknown.status == 404
    record = RequestRecord("req_1", "chat_completions", "POST", "/", 0.0, 0, outcome="stop")
    Exchange(record, NoTelemetry(), exchanges=app.desk.services.exchanges)
    [ended] = run(app, ("POST", "/requests/req_1/cancel", None))
    assert (ended.status, ended.json()["type"]) == (409, "urn:quire:problem:ended")


def test_load_runs_are_reported(app: AdminApp) -> None:
    nothing, none_to_stop = run(app, ("GET", "/load", None), ("DELETE", "/load", None))
    assert nothing.json()["run"] is None
    assert "chat" in nothing.json()["profiles"]
    assert none_to_stop.status == 404

    async def start_and_stop() -> list[Reply]:
        return [
            await ask(app, "POST", f"{V1}/load", key=OPERATE, body={"rate": 1, "seconds": 600}),
            await ask(app, "POST", f"{V1}/load", key=OPERATE, body={}),
            await ask(app, "DELETE", f"{V1}/load", key=OPERATE),
            await ask(app, "GET", f"{V1}/load", key=READ),
        ]

    started, second, stopped, last = asyncio.run(start_and_stop())
    assert (started.status, started.json()["state"]) == (202, "running")
    assert second.status == 409
    assert stopped.json()["state"] == last.json()["run"]["state"] == "stopped"
