"""HAProxy and nginx, configured as docs/proxies.md says, serve streams of three APIs from three
replicas that are restarted one after the other: clients notice nothing."""

from __future__ import annotations

import asyncio
import json
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.e2e.quire_server import ROOT, QuireServer, free_port, until
from tests.service.running_postgres import Postgres, programs

PAGE = ROOT / "docs" / "proxies.md"
HAPROXY, NGINX = shutil.which("haproxy"), shutil.which("nginx")

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


def configuration(language: str, ports: list[int]) -> str:
    """A configuration of the page, with these ports instead of 8000 and the next ones."""
    found = re.search(rf"```{language}\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert found is not None
    text = found[1]
    for number, port in enumerate(ports):
        assert f"127.0.0.1:{8000 + number}" in text
        text = text.replace(f"127.0.0.1:{8000 + number}", f"127.0.0.1:{port}")
    return text


def haproxy(folder: Path, ports: list[int]) -> list[str]:
    assert HAPROXY is not None
    file = folder / "haproxy.cfg"
    file.write_text(configuration("haproxy", ports))
    return [HAPROXY, "-db", "-f", str(file)]


def nginx(folder: Path, ports: list[int]) -> list[str]:
    assert NGINX is not None
    file = folder / "nginx.conf"
    file.write_text(
        f"daemon off; pid {folder}/pid; error_log {folder}/errors; events {{ }}\n"
        f"http {{ access_log off; client_body_temp_path {folder}/body; "
        f"proxy_temp_path {folder}/proxy; fastcgi_temp_path {folder}/f; "
        f"uwsgi_temp_path {folder}/u; scgi_temp_path {folder}/s;\n"
        f"{configuration('nginx', ports)} }}\n"
    )
    return [NGINX, "-p", str(folder), "-c", str(file)]


PROXIES = {
    "haproxy": pytest.param(
        haproxy, marks=pytest.mark.skipif(HAPROXY is None, reason="needs Debian's haproxy")
    ),
    "nginx": pytest.param(
        nginx, marks=pytest.mark.skipif(NGINX is None, reason="needs Debian's nginx")
    ),
}


@contextmanager
def proxied(
    command: Callable[[Path, list[int]], list[str]], replicas: list[QuireServer]
) -> Iterator[str]:
    """The URL of a proxy before these replicas."""
    with tempfile.TemporaryDirectory(prefix="quire-proxy-") as folder:
        Path(folder).chmod(0o755)  # nginx's workers have another user
        port = free_port()
        ports = [port, *(replica.port for replica in replicas)]
        process = subprocess.Popen(command(Path(folder), ports))
        try:
            url = f"http://127.0.0.1:{port}"

            def answers() -> bool:
                assert process.poll() is None
                try:
                    return httpx.get(f"{url}/health/ready").status_code == 200
                except httpx.TransportError:
                    return False

            until(answers, 30, "the proxy to answer")
            yield url
        finally:
            process.terminate()
            process.wait(30)


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


class Streams:
    """Clients that send one stream after the other. ``texts``: of each API, as often as it came;
    ``failures``: what did not end as it should; ``stored``: ids of responses."""

    def __init__(self, url: str) -> None:
        self.texts: dict[str, dict[str, int]] = {api: {} for api in APIS}
        self.failures: list[str] = []
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
        assert ended, f"a stream was cut after {len(text)} characters"
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


@pytest.mark.timeout(900)
@pytest.mark.parametrize("proxy", PROXIES.values(), ids=PROXIES)
def test_no_stream_notices_that_all_replicas_are_restarted(
    proxy: Callable[[Path, list[int]], list[str]],
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
        assert served > STREAMS
        # The model is deterministic: a lost or a doubled token would make another text.
        for api, texts in streams.texts.items():
            assert len(texts) == 1, (api, {len(text): times for text, times in texts.items()})
        for replica in replicas:
            for response in streams.stored[:: len(streams.stored) // 5]:
                assert replica.get(f"/v1/responses/{response}")[0] == 200
