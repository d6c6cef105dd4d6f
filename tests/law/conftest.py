"""The servers that all tests of the law share."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator

import pytest

from tests.law.measuring import Ask, LawServer
from tests.law.routes import Route
from tests.law.rpc import Call
from tests.service.tiny_model import write_tiny_model

# Vectors as wide as those of the largest models, with as little other work as possible.
_WIDE = {"hidden_size": 4096, "intermediate_size": 64, "num_hidden_layers": 1}

ServerOf = Callable[[Route | Call], LawServer]


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LawServer]:
    with LawServer(tmp_path_factory.mktemp("law"), "--resume-timeout", "3") as running:
        _warm_up(running, Ask("/v1/chat/completions", _LONG))
        yield running


@pytest.fixture(scope="session")
def pooling_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LawServer]:
    """With a real model, which makes vectors."""
    model = write_tiny_model(tmp_path_factory.mktemp("models") / "wide")
    config = model / "config.json"
    config.write_text(json.dumps({**json.loads(config.read_text()), **_WIDE}))
    with LawServer(tmp_path_factory.mktemp("law"), simulation=None, model=model) as running:
        _warm_up(running, Ask("/v1/embeddings", {"input": "word " * 2000}))
        yield running


@pytest.fixture
def server_of(request: pytest.FixtureRequest) -> ServerOf:
    """The server that answers the requests."""

    def found(asked: Route | Call) -> LawServer:
        name = "pooling_server" if asked.pools else "server"
        running: LawServer = request.getfixturevalue(name)
        return running

    return found


_LONG = {"messages": [{"role": "user", "content": "word " * 2000}], "max_tokens": 1}


def _warm_up(running: LawServer, ask: Ask) -> None:
    """Processes and caches that every server comes to have are not what a request costs."""
    running.cost_of([ask] * 8)
