"""Three replicas on one PostgreSQL have different names and enforce a key's limits together, within
the stated error."""

from __future__ import annotations

import json
import socket
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.e2e.quire_server import QuireServer, until
from tests.service.running_postgres import Postgres, programs

pytestmark = [pytest.mark.debian, pytest.mark.integration]

LIMIT = 200
KEY = {"authorization": "Bearer sk-of-the-team-0123456789"}
GRANT = f"""
[[keys]]
alias = "team"
key = "sk-of-the-team-0123456789"
requests_per_minute = {LIMIT}
"""
REPLICAS = 3
# Each replica is sent so many requests a second, together five times the limit.
PACE = 28
SECONDS = 12
# What one replica admits is unknown to the others for at most so long (docs/keys.md).
UNKNOWN_SECONDS = 2


@pytest.fixture(scope="module")
def replicas(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[QuireServer]]:
    binaries = programs()
    if binaries is None:
        pytest.skip("PostgreSQL is not installed (apt install postgresql)")
    file = tmp_path_factory.mktemp("keys") / "keys.toml"
    file.write_text(GRANT)
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="quire-postgres-"))
        postgres = stack.enter_context(Postgres(binaries, Path(folder)))
        arguments = ("simulated:step=0.1ms,output=4", "--store-url", postgres.url)
        yield [
            stack.enter_context(QuireServer(*arguments, "--keys-file", str(file)))
            for _ in range(REPLICAS)
        ]


@pytest.mark.proves("dashboard", "replicas")
def test_replicas_can_be_told_apart(replicas: list[QuireServer]) -> None:
    names = [json.loads(server.get("/health")[1])["server"] for server in replicas]
    assert names == [f"{socket.gethostname()}:{server.port}" for server in replicas]
    for name, server in zip(names, replicas, strict=True):
        [info] = [series for series in server.metrics() if series.startswith("quire_build_info")]
        assert f'server="{name}"' in info


def send(server: QuireServer) -> int:
    body = {"messages": [{"role": "user", "content": "hello"}], "max_tokens": 2}
    return int(server.post("/v1/chat/completions", body, KEY)[0])


@pytest.mark.proves("limits", "replicas")
def test_three_replicas_admit_the_limit_once(replicas: list[QuireServer]) -> None:
    admitted: list[Counter[int]] = [Counter() for _ in replicas]
    for server in replicas:
        until(lambda server=server: server.get("/v1/models", KEY)[0] == 200, 30, "the key")  # type: ignore[misc]

    def drive(number: int) -> None:
        start = time.monotonic()
        for turn in range(PACE * SECONDS):
            time.sleep(max(0.0, start + turn / PACE - time.monotonic()))
            admitted[number][send(replicas[number])] += 1

    threads = [threading.Thread(target=drive, args=(number,)) for number in range(REPLICAS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(set(statuses) == {200, 429} for statuses in admitted)
    total = sum(statuses[200] for statuses in admitted)
    sent = REPLICAS * PACE * SECONDS
    assert sent >= 5 * LIMIT
    print(f"{total} of {sent} requests were admitted; the limit is {LIMIT}")
    assert LIMIT <= total <= LIMIT + REPLICAS * PACE * UNKNOWN_SECONDS
