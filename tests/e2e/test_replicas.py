"""Two replicas on one PostgreSQL enforce a key's limits together, within the stated error."""

from __future__ import annotations

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

LIMIT = 300
KEY = {"authorization": "Bearer sk-of-the-team-0123456789"}
GRANT = f"""
[[keys]]
alias = "team"
key = "sk-of-the-team-0123456789"
requests_per_minute = {LIMIT}
"""
# Each replica is sent so many requests a second, together more than twice the limit.
PACE = 30
SECONDS = 12
# What one replica admits is unknown to the other for at most so long (docs/keys.md).
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
            stack.enter_context(QuireServer(*arguments, "--keys-file", str(file))) for _ in range(2)
        ]


def send(server: QuireServer) -> int:
    body = {"messages": [{"role": "user", "content": "hello"}], "max_tokens": 2}
    return int(server.post("/v1/chat/completions", body, KEY)[0])


def test_two_replicas_admit_the_limit_once(replicas: list[QuireServer]) -> None:
    admitted: list[Counter[int]] = [Counter(), Counter()]
    for server in replicas:
        until(lambda server=server: server.get("/v1/models", KEY)[0] == 200, 30, "the key")  # type: ignore[misc]

    def drive(number: int) -> None:
        start = time.monotonic()
        for turn in range(PACE * SECONDS):
            time.sleep(max(0.0, start + turn / PACE - time.monotonic()))
            admitted[number][send(replicas[number])] += 1

    threads = [threading.Thread(target=drive, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert set(admitted[0]) == set(admitted[1]) == {200, 429}
    total = admitted[0][200] + admitted[1][200]
    print(f"{total} of {2 * PACE * SECONDS} requests were admitted; the limit is {LIMIT}")
    assert LIMIT <= total <= LIMIT + 2 * PACE * UNKNOWN_SECONDS
