from __future__ import annotations

import secrets
from pathlib import Path

import pytest

from tests.service.running_postgres import Postgres
from tests.service.store.stored import execute


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.debian)])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/deep/store.sqlite3"
    postgres: Postgres = request.getfixturevalue("postgres")
    return postgres.url


@pytest.fixture
async def empty_url(url: str) -> str:
    """A database of the test's own."""
    if url.startswith("sqlite"):
        return url
    name = f"test_{secrets.token_hex(4)}"
    await execute(url, f"CREATE DATABASE {name}")
    return url.replace("/postgres", f"/{name}")
