"""The KV cache over the admin API; with an engine: tests/service/http/admin/test_server_live.py."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

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
