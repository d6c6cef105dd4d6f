from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from litestar import Litestar
from litestar.testing import TestClient

from tests.service.http.apps import KEYS, PAGE, client_of


@pytest.fixture
def client(tiny_model: Path, tmp_path: Path) -> Iterator[TestClient[Litestar]]:
    """No keys, on loopback."""
    with client_of(tiny_model, tmp_path) as opened:
        yield opened


@pytest.fixture
def paged(tiny_model: Path, tmp_path: Path) -> Iterator[TestClient[Litestar]]:
    """With keys, and a page that may call."""
    with client_of(tiny_model, tmp_path, api_key=("key",), allowed_origins=(PAGE,)) as opened:
        yield opened


@pytest.fixture
def locked(tiny_model: Path, tmp_path: Path) -> Iterator[TestClient[Litestar]]:
    """With keys."""
    with client_of(tiny_model, tmp_path, api_key=KEYS) as opened:
        yield opened
