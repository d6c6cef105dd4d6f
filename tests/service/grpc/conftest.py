from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.service.grpc.clients import GrpcService

MAX_BODY_BYTES = 200_000


@pytest.fixture(scope="package")
def service(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[GrpcService]:
    """One for all tests of gRPC that leave it as it was."""
    folder = tmp_path_factory.mktemp("grpc")
    with GrpcService(tiny_model, folder, "--max-body-bytes", str(MAX_BODY_BYTES)) as running:
        yield running
