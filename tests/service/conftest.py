from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.service.running import RunningService
from tests.service.running_postgres import Postgres, programs
from tests.service.tiny_model import write_tiny_model


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_model(tmp_path_factory.mktemp("models") / "tiny")


@pytest.fixture(scope="session")
def service(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningService]:
    """An engine and a worker that all live tests of a session share."""
    with RunningService(tiny_model, tmp_path_factory.mktemp("service")) as running:
        yield running


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    """For tests marked ``debian``."""
    binaries = programs()
    if binaries is None:
        pytest.skip("PostgreSQL is not installed (apt install postgresql)")
    with (
        tempfile.TemporaryDirectory(prefix="quire-postgres-") as folder,
        Postgres(binaries, Path(folder)) as server,
    ):
        yield server
