"""Files over the admin API."""

from __future__ import annotations

from pathlib import Path

from service.http.admin.application import AdminApp
from tests.service.http.admin.asking import KEYS as ADMIN_KEYS
from tests.service.http.admin.asking import OPERATE, READ, admin_app, ask

V1 = "/admin/v1"


def app(model: Path, folder: Path) -> AdminApp:
    return admin_app(model, folder, admin_key=ADMIN_KEYS)


async def test_a_load_trace_is_recorded_by_operators_only(
    own_template: Path, tmp_path: Path
) -> None:
    server = app(own_template, tmp_path)
    missing = await ask(server, "GET", f"{V1}/loadtrace", key=READ)
    assert missing.status == 404
    refused = await ask(server, "POST", f"{V1}/loadtrace", key=READ, body={"seconds": 5})
    assert refused.status == 403
    too_long = await ask(server, "POST", f"{V1}/loadtrace", key=OPERATE, body={"seconds": 1e6})
    assert too_long.status == 422
    begun = await ask(server, "POST", f"{V1}/loadtrace", key=OPERATE, body={"seconds": 60})
    assert begun.status == 200
    stopped = await ask(server, "DELETE", f"{V1}/loadtrace", key=OPERATE)
    assert stopped.json()["until"] < begun.json()["until"]
    trace = await ask(server, "GET", f"{V1}/loadtrace", key=READ, leaves=False)
    assert (trace.status, trace.body) == (200, b"")
    assert "quire-load.jsonl" in trace.headers["content-disposition"]


async def test_without_a_store_there_are_no_files(own_template: Path, tmp_path: Path) -> None:
    server = app(own_template, tmp_path)
    for name in ("requests.csv", "requests.parquet", "usage.csv", "usage.parquet"):
        reply = await ask(server, "GET", f"{V1}/{name}", key=READ)
        assert reply.status == 503, name
