"""What the whole app does without an engine, and how it is imported."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from litestar import Litestar
from litestar.testing import TestClient
from structlog.testing import capture_logs

from service.app import create_app
from service.records.records import Records
from service.records.row import row_of
from service.settings import ServiceSettings
from service.store.archive import ArchiveSources
from service.supervision.page import Supervision
from service.telemetry.observer import NoTelemetry
from tests.service.http.apps import client_of
from tests.service.store.archived import kept
from tests.service.store.archived import telemetry as telemetry_of
from tests.service.store.stored import execute, until


@pytest.fixture
def open_client(tiny_model: Path, tmp_path: Path) -> Iterator[TestClient[Litestar]]:
    with client_of(tiny_model, tmp_path) as client:
        yield client


def test_the_app_is_imported_without_what_takes_seconds_to_import() -> None:
    program = (
        "import sys; import service.app;"
        "print([m for m in ('torch', 'transformers', 'engine.model') if m in sys.modules])"
    )
    run = [sys.executable, "-c", program]
    assert subprocess.run(run, capture_output=True, text=True, check=True).stdout.strip() == "[]"


SMALLEST: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": {"messages": [{"role": "user", "content": "a"}]},
    "/v1/completions": {"prompt": "a"},
    "/v1/embeddings": {"input": "a"},
    "/v1/rerank": {"query": "a", "documents": ["b"]},
    "/v1/score": {"text_1": "a", "text_2": "b"},
    "/tokenize": {"prompt": "a"},
    "/detokenize": {"tokens": [1]},
    "/v1/responses": {"input": "a"},
    "/v1/messages": {"max_tokens": 1, "messages": [{"role": "user", "content": "a"}]},
    "/v1/messages/count_tokens": {"messages": [{"role": "user", "content": "a"}]},
}


def test_unknown_fields_are_reported_on_every_route(open_client: TestClient[Litestar]) -> None:
    for path, body in SMALLEST.items():
        answer = open_client.post(path, json={"model": "m", **body, "mirostat": 2})
        assert "mirostat" not in answer.text, path  # what it says is that there is no such model
        assert answer.headers["x-quire-ignored"] == "mirostat", path


def test_unknown_fields_are_refused_on_every_route_where_that_is_set(
    tiny_model: Path, tmp_path: Path
) -> None:
    with client_of(tiny_model, tmp_path, unknown_fields="refuse") as client:
        for path, body in SMALLEST.items():
            answer = client.post(path, json={"model": "m", **body, "mirostat": 2})
            assert answer.status_code == 400, path
            assert "Unrecognized request argument supplied: mirostat" in answer.text


def test_the_app_looks_at_the_records_that_telemetry_reports_to(
    tiny_model: Path, tmp_path: Path
) -> None:
    records = Records()  # empty, and so false
    app = create_app(
        ServiceSettings(store_url="none"),
        model_dir=tiny_model,
        socket_path=tmp_path / "no-engine.sock",
        telemetry=NoTelemetry(),
        records=records,
    )
    assert app.state.services.records is records
    assert records.limited_by() == "loading"


def test_a_default_of_the_model_that_cannot_be_used_is_logged(
    tiny_model: Path, tmp_path: Path
) -> None:
    model = shutil.copytree(tiny_model, tmp_path / "model")
    (model / "generation_config.json").write_text('{"temperature": -1}', encoding="utf-8")
    with capture_logs() as logs:
        create_app(
            ServiceSettings(store_url="none"),
            model_dir=model,
            socket_path=tmp_path / "s",
            telemetry=NoTelemetry(),
        )
    [line] = [line for line in logs if line["log_level"] == "warning"]
    named = line["file"], line["field"], line["value"]
    assert named == ("generation_config.json", "temperature", "-1")


def test_the_store_notes_its_file_in_the_memory_of_all_workers(
    tiny_model: Path, tmp_path: Path
) -> None:
    app = create_app(
        ServiceSettings(store_url=f"sqlite:///{tmp_path}/store.sqlite3"),
        model_dir=tiny_model,
        socket_path=tmp_path / "no-engine.sock",
        telemetry=NoTelemetry(),
        supervision=Supervision(None, store_memory=4711),
    )
    assert app.state.services.store.place.memory == 4711


async def test_the_overview_says_what_the_store_cannot_do(tiny_model: Path, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/store.sqlite3"
    telemetry = telemetry_of()
    services = create_app(
        ServiceSettings(store_url=url),
        model_dir=tiny_model,
        socket_path=tmp_path / "no-engine.sock",
        telemetry=telemetry,
        sources=ArchiveSources(telemetry.ended_requests, telemetry.usage),
    ).state.services

    def said() -> str:
        services.overviews.look()
        return str(services.overviews.now().parts["store"])

    assert said() == "not available"
    services.store.open()
    services.archive.open()
    await until(lambda: said() == "ok")
    await execute(url, "ALTER TABLE quire_requests RENAME TO elsewhere")
    with telemetry.metrics.ledger:
        telemetry.ended_requests.put(row_of(kept(1)))
    await until(lambda: said() == "requests and usage cannot be written")
    await execute(url, "ALTER TABLE elsewhere RENAME TO quire_requests")
    await services.archive.close()
    assert said() == "ok"
    await services.store.close()
