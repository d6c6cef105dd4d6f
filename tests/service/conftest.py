from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.service.running import RunningService
from tests.service.tiny_model import write_tiny_model


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_model(tmp_path_factory.mktemp("models") / "tiny")


@pytest.fixture(scope="session")
def service(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningService]:
    """An engine and a worker that all live tests of a session share."""
    with RunningService(tiny_model, tmp_path_factory.mktemp("service")) as running:
        yield running
