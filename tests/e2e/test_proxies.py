"""HAProxy and nginx, configured as docs/proxies.md says, before replicas some of which refuse
requests or are gone."""

from __future__ import annotations

import re
import socket
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import httpx
import pytest

from tests.e2e.proxies import PROXIES, Command, Listens, configuration, proxied
from tests.e2e.quire_server import QuireServer, free_port

pytestmark = pytest.mark.integration

CHAT = "/v1/chat/completions"
STORED = "/v1/responses/resp_x"
EVERYTHING = "/"
TIMES = 20


class Replica(ThreadingHTTPServer):
    """``refuses``: how the paths begin to which it answers 503; ``asked``: all paths so far."""

    daemon_threads = True

    def __init__(self, refuses: str) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.refuses = refuses
        self.asked: list[str] = []

    @property
    def port(self) -> int:
        return self.server_port

    def handle_error(self, request: object, client_address: object) -> None:
        """The proxy may close its connections when it ends."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Replica

    def do_GET(self) -> None:
        self.rfile.read(int(self.headers.get("content-length", 0)))
        self.server.asked.append(self.path)
        is_ready = self.path == "/health/ready"
        self.send_response(
            200 if is_ready or not self.path.startswith(self.server.refuses) else 503
        )
        self.send_header("content-length", "2")
        self.end_headers()
        self.wfile.write(b"{}")

    def do_POST(self) -> None:
        self.do_GET()

    def log_message(self, format: str, *args: object) -> None:
        pass


class Gone:
    """A port that refuses connections."""

    def __init__(self) -> None:
        self.port = free_port()


class BlackHole:
    """A port that answers nothing, not even a refusal, as that of a host without power: the system
    ignores who connects while the queue of the listener is full."""

    def __init__(self, stack: ExitStack) -> None:
        listener = stack.enter_context(socket.socket())
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        self.port = int(listener.getsockname()[1])
        for _ in range(4):
            waiting = stack.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(("127.0.0.1", self.port))


@contextmanager
def replica(refuses: str = "none") -> Iterator[Replica]:
    with Replica(refuses) as server:
        thread = Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


@contextmanager
def client_of(proxy: Command, replicas: Sequence[Listens]) -> Iterator[httpx.Client]:
    with proxied(proxy, replicas) as url, httpx.Client(base_url=url, timeout=30) as client:
        yield client


@pytest.mark.parametrize("proxy", PROXIES.values(), ids=PROXIES)
def test_what_every_replica_refuses_costs_other_clients_nothing(proxy: Command) -> None:
    with ExitStack() as stack:
        replicas = [stack.enter_context(replica(refuses=STORED)) for _ in range(3)]
        client = stack.enter_context(client_of(proxy, replicas))
        for _ in range(TIMES):
            assert client.get(STORED).status_code == 503, "the replicas' answer"
            assert client.post(CHAT, json={}).status_code == 200


@pytest.mark.parametrize("proxy", PROXIES.values(), ids=PROXIES)
def test_an_absent_store_costs_requests_without_it_nothing(proxy: Command) -> None:
    url = f"postgresql://quire@127.0.0.1:{free_port()}/postgres"
    with QuireServer("simulated:output=2", "--store-url", url, "--no-admin") as server:
        chat = {"messages": [{"role": "user", "content": "Hi"}]}
        with client_of(proxy, [server] * 3) as client:
            for _ in range(TIMES):
                assert client.get(STORED).status_code == 503
                assert client.post(CHAT, json=chat).status_code == 200


# HAProxy is informed by /health/ready: tests/e2e/test_rolling_restart.py.
@pytest.mark.parametrize("proxy", [PROXIES["nginx"]])
def test_a_replica_that_refuses_and_one_that_is_gone_go_unnoticed(proxy: Command) -> None:
    with ExitStack() as stack:
        draining = stack.enter_context(replica(refuses=EVERYTHING))
        well = stack.enter_context(replica())
        client = stack.enter_context(client_of(proxy, [draining, Gone(), well]))
        for _ in range(TIMES):
            assert client.post(CHAT, json={}).status_code == 200
        assert well.asked.count(CHAT) == TIMES


@pytest.mark.parametrize("proxy", [PROXIES["nginx"]])
def test_a_host_without_power_only_costs_time(proxy: Command) -> None:
    with ExitStack() as stack:
        well = stack.enter_context(replica())
        client = stack.enter_context(client_of(proxy, [BlackHole(stack), Gone(), well]))
        for _ in range(3):
            assert client.post(CHAT, json={}).status_code == 200


def test_nginx_repeats_no_request_that_a_replica_may_be_computing() -> None:
    found = re.findall(r"(proxy_\w+) (\d+)([smh]);", configuration("nginx", []))
    seconds = {name: int(value) * {"s": 1, "m": 60, "h": 3600}[unit] for name, value, unit in found}
    # "timeout" is what did not connect in time, too; after the other one, no replica is tried.
    assert seconds["proxy_next_upstream_timeout"] < seconds["proxy_read_timeout"]
    # A replica that starts accepts connections long before it can refuse requests.
    assert seconds["proxy_next_upstream_timeout"] >= 60
