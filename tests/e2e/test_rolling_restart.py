"""HAProxy and nginx, configured as docs/proxies.md says, serve streams of three APIs from three
replicas. Where those are restarted one after the other, clients notice nothing; where one is
killed, only the streams that it had begun are cut."""

from __future__ import annotations

import asyncio
import json
import re
import shutil
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx
import pytest
from websockets.sync.client import connect

from service.store.schema import NEWEST
from tests.e2e.proxies import PROXIES, SERVED_BY, Command, proxied
from tests.e2e.quire_server import ROOT, QuireServer, until
from tests.service.running_postgres import Postgres, programs

pytestmark = [
    pytest.mark.slow,
    pytest.mark.integration,
    pytest.mark.skipif(programs() is None, reason="needs Debian's postgresql"),
]

ROUNDS = 3
STREAMS = 50
OUTPUT = 100
MODEL = f"simulated:step=10ms,output={OUTPUT}"
DRAIN_SECONDS = 20
# As docs/proxies.md says: longer than the proxy's interval between checks.
DELAY_SECONDS = 3
GRACE_SECONDS = 30
UNKNOWN = "unknown"
NAMES = ("one", "two", "three")  # of the replicas, in the page

APIS: dict[str, tuple[str, dict[str, Any]]] = {
    "chat": (
        "/v1/chat/completions",
        {"messages": [{"role": "user", "content": "Tell me a story."}], "max_tokens": 2 * OUTPUT},
    ),
    "messages": (
        "/v1/messages",
        {"messages": [{"role": "user", "content": "Tell me a story."}], "max_tokens": 2 * OUTPUT},
    ),
    "responses": ("/v1/responses", {"input": "Tell me a story.", "max_output_tokens": 2 * OUTPUT}),
}


@contextmanager
def three_replicas() -> Iterator[list[QuireServer]]:
    binaries = programs()
    assert binaries is not None
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="quire-postgres-"))
        postgres = stack.enter_context(Postgres(binaries, Path(folder)))
        arguments = (
            *(MODEL, "--served-model-name", "m", "--store-url", postgres.url),
            *("--drain-delay", str(DELAY_SECONDS), "--drain-timeout", str(DRAIN_SECONDS)),
            *("--signing-key", "of-all-three-replicas"),
        )
        yield [stack.enter_context(QuireServer(*arguments)) for _ in range(3)]


def restart(replica: QuireServer) -> None:
    """Stop it as the kubelet does, and start it again."""
    assert replica.terminate(GRACE_SECONDS) == 0
    replica.start().wait_ready()


class CutError(Exception):
    """The connection broke within a stream; the text says after what."""


class Streams:
    """Clients that send one stream after the other. ``texts``: of each API, as often as it came;
    ``failures``: what did not end as it should; ``stored``: ids of responses; ``cut``: streams
    whose connection broke, by replica; ``served``: complete ones, likewise."""

    def __init__(self, url: str) -> None:
        self.texts: dict[str, dict[str, int]] = {api: {} for api in APIS}
        self.failures: list[str] = []
        self.cut: Counter[str] = Counter()
        self.served: Counter[str] = Counter()
        self.stored: list[str] = []
        self.over = False
        self._client = httpx.AsyncClient(
            base_url=url, timeout=120, limits=httpx.Limits(max_connections=STREAMS)
        )

    async def run(self) -> None:
        names = list(APIS)
        async with self._client:
            await asyncio.gather(*(self._keep(names[i % len(names)]) for i in range(STREAMS)))

    async def _keep(self, api: str) -> None:
        while not self.over:
            try:
                text = await self._stream(api)
            except CutError as cut:
                self.cut[str(cut)] += 1
                continue
            except (httpx.RemoteProtocolError, httpx.ReadError):
                self.cut[UNKNOWN] += 1  # before a byte of the answer arrived
                continue
            except (httpx.HTTPError, AssertionError) as error:
                self.failures.append(f"{api}: {error!r}")
                continue
            self.texts[api][text] = self.texts[api].get(text, 0) + 1

    async def _stream(self, api: str) -> str:
        path, body = APIS[api]
        asked = {"model": "m", "stream": True, "temperature": 0, **body}
        text, ended = "", False
        async with self._client.stream("POST", path, json=asked) as reply:
            assert reply.status_code == 200, (await reply.aread(), dict(reply.headers))
            replica = reply.headers.get(SERVED_BY, "")
            try:
                async for line in reply.aiter_lines():
                    if line == "data: [DONE]":
                        ended = True
                    elif line.startswith("data: "):
                        event = json.loads(line[6:])
                        text += text_of(event)
                        kind = event.get("type")
                        ended = ended or kind in ("message_stop", "response.completed")
                        if kind == "response.completed":
                            self.stored.append(event["response"]["id"])
            except (httpx.RemoteProtocolError, httpx.ReadError):
                raise CutError(replica) from None
        assert ended, f"a stream of {replica} ended as if complete after {len(text)} characters"
        self.served[replica] += 1
        return text


def text_of(event: dict[str, Any]) -> str:
    """The piece of text in an event of any of the three APIs."""
    match event:
        case {"type": "response.output_text.delta", "delta": str(piece)}:
            return piece
        case {"type": "content_block_delta", "delta": {"text": str(piece)}}:
            return piece
        case {"choices": [{"delta": {"content": str(piece)}}]}:
            return piece
    return ""


@pytest.mark.proves("responses", "replicas")
@pytest.mark.proves("rollout", "replicas")
@pytest.mark.timeout(900)
@pytest.mark.parametrize("proxy", PROXIES.values(), ids=PROXIES)
def test_no_stream_notices_that_all_replicas_are_restarted(
    proxy: Command,
) -> None:
    with three_replicas() as replicas, proxied(proxy, replicas) as url:
        streams = Streams(url)

        async def drive() -> None:
            running = asyncio.create_task(streams.run())
            for _ in range(ROUNDS):
                for replica in replicas:
                    await asyncio.to_thread(restart, replica)
            streams.over = True
            await running

        asyncio.run(drive())
        served = sum(sum(texts.values()) for texts in streams.texts.values())
        print(f"{served} streams, {len(streams.failures)} failed, {ROUNDS * 3} restarts")
        assert set(streams.failures) == set()
        assert streams.cut == {}
        assert served > STREAMS
        # The model is deterministic: a lost or a doubled token would make another text.
        for api, texts in streams.texts.items():
            assert len(texts) == 1, (api, {len(text): times for text, times in texts.items()})
        for replica in replicas:
            for response in streams.stored[:: len(streams.stored) // 5]:
                assert replica.get(f"/v1/responses/{response}")[0] == 200


@pytest.mark.parametrize("proxy", PROXIES.values(), ids=PROXIES)
def test_the_proxies_pass_websockets_on_and_reuse_connections(
    proxy: Command,
) -> None:
    arguments = (MODEL, "--served-model-name", "m", "--no-admin")
    with QuireServer(*arguments) as server, proxied(proxy, [server] * 3) as url:
        with connect(f"{url.replace('http', 'ws', 1)}/v1/responses") as socket:
            socket.send(json.dumps({"type": "response.create", "model": "m", "input": "Hi"}))
            while json.loads(socket.recv(30))["type"] != "response.completed":
                pass
        before = connections_to(server.port)
        with httpx.Client(base_url=url) as client:
            for _ in range(50):
                assert client.get("/v1/models").status_code == 200
        assert connections_to(server.port) - before < 20


def connections_to(port: int) -> int:
    """How many ends of them there are, open or closed a moment ago."""
    lines = Path("/proc/net/tcp").read_text().splitlines()[1:]
    return sum(f":{port:04X}" in end for line in lines for end in line.split()[1:3])


NEXT_MIGRATION = """
import sqlalchemy as sa
from alembic import op

revision, down_revision = "{next:04}", "{newest:04}"


def upgrade() -> None:
    op.add_column("quire_responses", sa.Column("of_the_next_release", sa.Text(), nullable=True))


def downgrade() -> None:
    op.drop_column("quire_responses", "of_the_next_release")
"""


@contextmanager
def next_release() -> Iterator[Path]:
    """A folder whose modules are those of the next release: it has one more migration."""
    with tempfile.TemporaryDirectory(prefix="quire-next-") as folder:
        shutil.copytree(ROOT / "service", Path(folder) / "service")
        name = f"service/store/migrations/versions/{NEWEST + 1:04}_next.py"
        text = NEXT_MIGRATION.format(next=NEWEST + 1, newest=NEWEST)
        (Path(folder) / name).write_text(text)
        yield Path(folder)


def restart_as(replica: QuireServer, release: Path | None) -> None:
    """Stop it as the kubelet does, and start this release in its place; None: the checkout."""
    assert replica.terminate(GRACE_SECONDS) == 0
    replica.source = release
    replica.start().wait_ready()


@pytest.mark.proves("migrations", "replicas")
@pytest.mark.timeout(900)
@pytest.mark.parametrize("proxy", PROXIES.values(), ids=PROXIES)
def test_a_release_with_a_newer_schema_and_its_rollback_go_unnoticed(
    proxy: Command,
) -> None:
    with next_release() as newer, three_replicas() as replicas, proxied(proxy, replicas) as url:
        streams = Streams(url)

        async def drive() -> None:
            running = asyncio.create_task(streams.run())
            # Each in turn is a migration ahead, then an older one starts, then the first goes back.
            for ahead in range(ROUNDS):
                older = (ahead + 1) % len(replicas)
                for replica, release in ((ahead, newer), (older, None), (ahead, None)):
                    await asyncio.to_thread(restart_as, replicas[replica], release)
            streams.over = True
            await running

        asyncio.run(drive())
        assert f"Running upgrade {NEWEST:04} -> {NEWEST + 1:04}" in replicas[0].output()
        says_so = "the store's schema is one migration newer"
        for replica in replicas:  # each has been started twice as the older release
            until(lambda r=replica: r.output().count(says_so) >= 2, 30, says_so)  # type: ignore[misc]
        print(
            f"{sum(streams.served.values())} streams, {len(streams.failures)} failed, "
            f"{sum(streams.cut.values())} cut, {len(streams.stored)} responses stored, "
            f"{ROUNDS * 3} restarts"
        )
        assert set(streams.failures) == set()
        assert streams.cut == {}
        for api, texts in streams.texts.items():
            assert len(texts) == 1, (api, {len(text): times for text, times in texts.items()})
        for replica in replicas:
            for response in streams.stored[:: len(streams.stored) // 10]:
                assert replica.get(f"/v1/responses/{response}")[0] == 200


def generated(replica: QuireServer) -> dict[str, float]:
    """What the replica says it has done: requests of the three APIs that ended, by outcome, and the
    tokens of their answers."""
    found: Counter[str] = Counter()
    for series, value in replica.metrics().items():
        if series.startswith("quire_requests_total{") and value:
            [outcome] = re.findall(r'outcome="([^"]*)"', series)
            found[outcome] += value
    tokens = replica.total("quire_key_tokens_total", kind="output")
    return dict(found) | {"tokens": tokens}


@pytest.mark.proves("replica-death", "replicas")
@pytest.mark.timeout(300)
@pytest.mark.parametrize("proxy", [PROXIES["haproxy"]])
def test_a_killed_replica_costs_only_the_streams_that_it_had_begun(
    proxy: Command,
) -> None:
    with three_replicas() as replicas, proxied(proxy, replicas) as url:
        streams = Streams(url)

        async def drive() -> None:
            running = asyncio.create_task(streams.run())
            while sum(streams.served.values()) < 2 * STREAMS:
                await asyncio.sleep(0.05)
            await asyncio.to_thread(replicas[0].kill)
            after = sum(streams.served.values()) + 3 * STREAMS
            while sum(streams.served.values()) < after:
                await asyncio.sleep(0.05)
            await asyncio.to_thread(lambda: replicas[0].start().wait_ready())
            before = streams.served["one"]
            while streams.served["one"] < before + 5:
                await asyncio.sleep(0.05)
            streams.over = True
            await running

        asyncio.run(drive())
        print(
            f"{sum(streams.served.values())} streams served, {dict(streams.served)}; cut: "
            f"{dict(streams.cut)}; otherwise failed: {len(streams.failures)}"
        )
        # No request was refused, no stream ended as if it were complete, and those that broke were
        # with the replica that was killed.
        assert streams.failures == []
        assert {"one"} <= set(streams.cut) <= {"one", UNKNOWN}
        # Where the replica had a request and no answer had begun, HAProxy closes the client's
        # connection without a byte. Together, no more than the replica's share of the streams.
        assert sum(streams.cut.values()) <= STREAMS / 3 + 3
        for api, texts in streams.texts.items():
            assert len(texts) == 1, (api, {len(text): times for text, times in texts.items()})
        # All answers are the same; the replica that was killed says what one of them counts.
        answer = json.loads(replicas[0].get(f"/v1/responses/{streams.stored[0]}")[1])
        each = answer["usage"]["output_tokens"]
        for name, replica in list(zip(NAMES, replicas, strict=True))[1:]:
            ledger = {"stop": streams.served[name], "tokens": streams.served[name] * each}
            with suppress(TimeoutError):
                until(lambda r=replica, e=ledger: generated(r) == e, 10, name)  # type: ignore[misc]
            assert generated(replica) == ledger
