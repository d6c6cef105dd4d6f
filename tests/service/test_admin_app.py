"""How the admin API is put together with the public application."""

from __future__ import annotations

import re
from pathlib import Path

from msgspec import inspect

from engine.options import options
from pocket import MODEL_DIR
from service.admin_app import LOG_LEVELS, create_admin_app
from service.app import create_app
from service.settings import ServiceSettings
from service.store.archive import ArchiveSources
from service.telemetry.observer import NoTelemetry
from tests.service.http.admin.asking import admin_app
from tests.service.store.archived import telemetry as telemetry_of


def test_the_settings_that_can_be_changed(tmp_path: Path) -> None:
    app = admin_app(MODEL_DIR, tmp_path, max_waiting_requests=7, slo_itl=0.25)
    rows = {row.name: row for row in app.desk.settings.current().settings}
    assert rows["max_waiting_requests"].value == 7
    assert rows["slo_itl"].default == 0.25
    assert rows["log_level"].choices == LOG_LEVELS
    for row in rows.values():
        assert row.help.endswith(".")
        bounded = row.minimum is not None and row.maximum is not None
        assert bounded or row.choices, f"{row.name} has no bounds"


def test_texts_and_bounds_are_those_of_the_settings(tmp_path: Path) -> None:
    kept = telemetry_of()
    app = create_admin_app(
        create_app(
            ServiceSettings(store_url="none"),
            model_dir=MODEL_DIR,
            socket_path=tmp_path / "no-engine.sock",
            telemetry=NoTelemetry(),
            sources=ArchiveSources(kept.ended_requests, kept.usage),
        )
    )
    rows = {row.name: row for row in app.desk.settings.current().settings}
    table = {option.name: option for option in options(ServiceSettings)}
    for name in rows.keys() - {"tracing_ratio"}:  # that one is OpenTelemetry's
        assert rows[name].help.startswith(table[name].description), name
        kind = table[name].kind
        if isinstance(kind, inspect.LiteralType):
            assert set(rows[name].choices) == set(kind.values)
        else:
            assert isinstance(kind, inspect.IntType | inspect.FloatType)
            assert rows[name].maximum == kind.le, name
            assert rows[name].minimum == (0.001 if kind.ge is None else kind.ge), name
    assert (rows["store_max_requests"].minimum, rows["store_max_requests"].maximum) == (1000, 10**9)


def test_the_page_of_the_admin_api_lists_the_settings_that_can_be_changed(tmp_path: Path) -> None:
    app = admin_app(MODEL_DIR, tmp_path)
    page = (Path(__file__).resolve().parents[2] / "docs" / "admin.md").read_text()
    listed = re.search(r"^- \*\*settings\*\*.*?(?=^- )", page, re.MULTILINE | re.DOTALL)
    assert listed
    for row in app.desk.settings.current().settings:
        assert f"`{row.name}`" in listed[0]
