"""How the admin API is put together with the public application."""

from __future__ import annotations

import re
from pathlib import Path

from pocket import MODEL_DIR
from service.admin_app import LOG_LEVELS
from tests.service.http.admin.asking import admin_app


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


def test_the_page_of_the_admin_api_lists_the_settings_that_can_be_changed(tmp_path: Path) -> None:
    app = admin_app(MODEL_DIR, tmp_path)
    page = (Path(__file__).resolve().parents[2] / "docs" / "admin.md").read_text()
    listed = re.search(r"^- \*\*settings\*\*.*?(?=^- )", page, re.MULTILINE | re.DOTALL)
    assert listed
    for row in app.desk.settings.current().settings:
        assert f"`{row.name}`" in listed[0]
