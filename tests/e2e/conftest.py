from __future__ import annotations

from collections.abc import Iterator

import openai
import pytest

from tests.e2e.quire_server import QuireServer, free_port


@pytest.fixture(scope="session")
def grpc_port() -> int:
    return free_port()


@pytest.fixture(scope="session")
def server(grpc_port: int) -> Iterator[QuireServer]:
    """The product as `make serve` starts it, with the embedded model, HTTP and gRPC."""
    with QuireServer("--grpc-port", str(grpc_port)) as running:
        yield running


@pytest.fixture
def client(server: QuireServer) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{server.url}/v1", api_key="unused", max_retries=0)
