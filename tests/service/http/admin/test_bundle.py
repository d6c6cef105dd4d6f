"""The bundle's route."""

from __future__ import annotations

import asyncio
import io
import time
import zipfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec

from observability.admin_api import BUNDLE_FILES
from service.telemetry.record import RequestRecord
from tests.service.http.admin.asking import KEYS, READ, admin_app, ask

SECRETS = {"api_key": ("bob=sk-very-secret",), "signing_key": "signs-everything-here"}


def bundle(app: Any) -> dict[str, Any]:
    reply = asyncio.run(ask(app, "GET", "/admin/v1/bundle", key=READ, leaves=False))
    assert reply.headers["content-disposition"].startswith('attachment; filename="quire-')
    archive = zipfile.ZipFile(io.BytesIO(reply.body))
    content = {name: archive.read(name) for name in archive.namelist()}
    for text in ("sk-very-secret", "signs-everything-here", READ):
        assert not [name for name, data in content.items() if text.encode() in data]
    return {
        name: msgspec.json.decode(data, type=BUNDLE_FILES[name]) for name, data in content.items()
    }


def test_it_has_every_file_and_no_secret(own_template: Path, tmp_path: Path) -> None:
    app = admin_app(own_template, tmp_path, admin_key=KEYS, store_url="none", **SECRETS)
    app.desk.audit.add("ann", "127.0.0.1", "drain")
    found = bundle(app)
    assert list(found) == list(BUNDLE_FILES)
    assert found["manifest.json"].settings["admin_host"] == "127.0.0.1"
    assert "admin_key" not in found["manifest.json"].settings
    assert found["audit.json"].rows[0].action == "drain"
    lengths = {len(values) for values in found["series.json"].values.values()}
    assert len(lengths) == 1
    assert found["series.json"].step == 1.0


def test_it_has_the_requests_of_all_pages(own_template: Path, tmp_path: Path) -> None:
    app = admin_app(own_template, tmp_path, admin_key=KEYS, store_url="none")
    records = app.desk.services.records
    for number in range(1500):
        now = time.monotonic()
        record = RequestRecord(f"req_{number}", "models", "GET", "/", now, time.time_ns())
        record.outcome, record.ended_time = "stop", now
        records.ended(record, {})
    ids = [one.request_id for one in bundle(app)["requests.json"].requests]
    assert len(ids) == len(set(ids)) == 1500


def test_one_at_a_time(own_template: Path, tmp_path: Path) -> None:
    app = admin_app(own_template, tmp_path, store_url="none")

    async def status() -> int:
        async def pieces() -> AsyncIterator[bytes]:
            yield b"PK"

        another = app.desk.bundles.one(pieces())
        await anext(another)
        reply = await ask(app, "GET", "/admin/v1/bundle")
        assert "Another bundle is being made" in reply.json()["detail"]
        await another.aclose()
        assert (await ask(app, "GET", "/admin/v1/bundle", leaves=False)).status == 200
        return reply.status

    assert asyncio.run(status()) == 429
