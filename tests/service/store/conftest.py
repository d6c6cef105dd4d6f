from __future__ import annotations

import secrets
from pathlib import Path

import pytest

from tests.service.running_postgres import Postgres
from tests.service.store.stored import execute


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.debian)])
async def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """An empty database for this test alone."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/deep/store.sqlite3"
    postgres: Postgres = request.getfixturevalue("postgres")
    name = f"test_{secrets.token_hex(4)}"
    await execute(postgres.url, f"CREATE DATABASE {name}")
    return postgres.url.replace("/postgres", f"/{name}")
