from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from litestar import Litestar
from litestar.testing import TestClient

from pocket import MODEL_DIR
from tests.service.http.apps import KEYS, PAGE, client_of
from tests.service.tiny_model import write_tiny_model


@pytest.fixture(scope="session")
def own_template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model with the chat template that needs no preparation process."""
    model = write_tiny_model(tmp_path_factory.mktemp("models") / "own-template")
    (model / "chat_template.jinja").write_bytes((MODEL_DIR / "chat_template.jinja").read_bytes())
    return model


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("app")


@pytest.fixture(scope="module")
def client(own_template: Path, folder: Path) -> Iterator[TestClient[Litestar]]:
    """No keys, on loopback."""
    with client_of(own_template, folder) as opened:
        yield opened


@pytest.fixture(scope="module")
def paged(own_template: Path, folder: Path) -> Iterator[TestClient[Litestar]]:
    """With keys, and a page that may call."""
    with client_of(own_template, folder, api_key=("key",), allowed_origins=(PAGE,)) as opened:
        yield opened


@pytest.fixture(scope="module")
def locked(own_template: Path, folder: Path) -> Iterator[TestClient[Litestar]]:
    """With keys."""
    with client_of(own_template, folder, api_key=KEYS) as opened:
        yield opened
