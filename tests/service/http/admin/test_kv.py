"""The KV cache over the admin API; with an engine: tests/service/http/admin/test_server_live.py."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import msgspec
import pytest

from observability.admin_api import BlockRun, KvMap, Owner
from tests.service.http.admin.asking import admin_app, ask


@pytest.mark.parametrize("path", ["/admin/v1/kv", "/admin/v1/kv/prefixes?limit=500"])
def test_without_an_engine_it_says_so(own_template: Path, tmp_path: Path, path: str) -> None:
    app = admin_app(own_template, tmp_path, store_url="none")
    reply = asyncio.run(ask(app, "GET", path))
    assert reply.status == 503
    assert "no engine is running" in reply.json()["detail"]


@pytest.mark.parametrize("path", ["/admin/v1/kv", "/admin/v1/kv/prefixes"])
@pytest.mark.parametrize("engine", ["1", "-1", "all"])
def test_an_engine_that_is_not_there_is_refused(
    own_template: Path, tmp_path: Path, path: str, engine: str
) -> None:
    app = admin_app(own_template, tmp_path, store_url="none")
    reply = asyncio.run(ask(app, "GET", f"{path}?engine={engine}"))
    assert reply.status == 422
    assert "engine" in reply.json()["detail"]
    assert asyncio.run(ask(app, "GET", f"{path}?engine=0")).status == 503


@pytest.mark.parametrize("limit", ["0", "501", "many"])
def test_the_tree_is_bounded(own_template: Path, tmp_path: Path, limit: str) -> None:
    app = admin_app(own_template, tmp_path, store_url="none")
    assert asyncio.run(ask(app, "GET", f"/admin/v1/kv/prefixes?limit={limit}")).status == 422


def test_maps_of_the_past(own_template: Path, tmp_path: Path) -> None:
    app = admin_app(own_template, tmp_path, store_url="none")
    history = app.desk.services.overviews.kv_caches.of(0).history
    at = time.time() - 60
    found = KvMap(at, 4, 16, 1, 0, 3, (BlockRun(0, 1), BlockRun(-2, 3)), (Owner("r1", "a", 1, 9),))

    async def asked() -> None:
        await history.keep(found)
        times = await ask(app, "GET", "/admin/v1/kv/times")
        assert times.json() == {"times": [at]}
        then = await ask(app, "GET", f"/admin/v1/kv?at={at}")
        assert msgspec.json.decode(then.body, type=KvMap) == found
        assert (await ask(app, "GET", "/admin/v1/kv?at=30s")).status == 200
        before = await ask(app, "GET", "/admin/v1/kv?at=5m")
        assert (before.status, "kept for an hour" in before.json()["detail"]) == (404, True)
        assert (await ask(app, "GET", "/admin/v1/kv?at=yesterday")).status == 422

    asyncio.run(asked())
