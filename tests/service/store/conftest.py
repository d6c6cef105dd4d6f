from __future__ import annotations

from pathlib import Path

import pytest

from tests.service.running_postgres import Postgres


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.debian)])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/deep/store.sqlite3"
    postgres: Postgres = request.getfixturevalue("postgres")
    return postgres.url
