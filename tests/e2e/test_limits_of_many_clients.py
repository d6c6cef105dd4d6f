"""A thousand clients of one key arrive at once at four API workers: its limits are kept exactly."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import NamedTuple

import pytest

from tests.e2e.quire_server import QuireServer, until

pytestmark = pytest.mark.one_process

WORKERS = 4
CLIENTS = 1000
REQUESTS = 400
AT_ONCE = 50
TOKENS = 5000
EACH = 20  # tokens of an answer
SPENT = "quire_key_tokens_total"
KEYS = f"""
[[keys]]
alias = "requests"
key = "sk-requests-0123456789"
requests_per_minute = {REQUESTS}
[[keys]]
alias = "tokens"
key = "sk-tokens-0123456789"
tokens_per_minute = {TOKENS}
[[keys]]
alias = "at-once"
key = "sk-at-once-0123456789"
concurrent_requests = {AT_ONCE}
"""


class Answer(NamedTuple):
    status: int
    reader: asyncio.StreamReader


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[QuireServer]:
    file = tmp_path_factory.mktemp("keys") / "keys.toml"
    file.write_text(KEYS)
    arguments = (f"--api-workers={WORKERS}", "--keys-file", str(file), "--max-num-seqs=512")
    model = "simulated:step=1ms,context=1000000"
    with QuireServer(model, *arguments, "--num-kv-blocks=200000") as running:
        yield running


@asynccontextmanager
async def asked(server: QuireServer, alias: str, **fields: object) -> AsyncIterator[Answer]:
    """Send a request over a new connection, which stays open until the end of the block."""
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    try:
        body = json.dumps({"prompt": "Hello", "ignore_eos": True, **fields}).encode()
        head = (
            f"POST /v1/completions HTTP/1.1\r\nhost: x\r\nauthorization: Bearer sk-{alias}-"
            f"0123456789\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
        )
        writer.write(head.encode() + body)
        yield Answer(int((await reader.readline()).split()[1]), reader)
    finally:
        writer.close()


async def statuses(server: QuireServer, alias: str) -> Counter[int]:
    """Of as many requests as there are clients, sent at once and answered whole."""

    async def status() -> int:
        async with asked(server, alias, max_tokens=EACH) as answer:
            await answer.reader.readexactly(1)  # of the rest, which comes whole
            return answer.status

    return Counter(await asyncio.gather(*(status() for _ in range(CLIENTS))))


async def test_requests_per_minute_are_exact(server: QuireServer) -> None:
    async with asyncio.timeout(55):  # all within one minute
        found = await statuses(server, "requests")
    assert found == {200: REQUESTS, 429: CLIENTS - REQUESTS}


async def test_tokens_per_minute_are_exact(server: QuireServer) -> None:
    before = server.total(SPENT)
    async with asyncio.timeout(55):
        found = await statuses(server, "tokens")
    assert found.keys() == {200, 429}
    spent = server.total(SPENT) - before
    assert spent <= TOKENS
    assert spent + spent / found[200] > TOKENS  # there was no room for another


async def test_requests_at_once_are_exact_and_none_is_leaked(server: QuireServer) -> None:
    for _ in range(3):
        async with AsyncExitStack() as held:

            async def hold(held: AsyncExitStack = held) -> int:
                asking = asked(server, "at-once", max_tokens=500_000, stream=True)
                return (await held.enter_async_context(asking)).status

            found = Counter(await asyncio.gather(*(hold() for _ in range(CLIENTS))))
            assert found == {200: AT_ONCE, 429: CLIENTS - AT_ONCE}
        await asyncio.to_thread(
            until, lambda: server.total("quire_sequences_running") == 0, 60, "all to be ended"
        )
