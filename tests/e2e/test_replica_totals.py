"""Three replicas, each restarted in turn: Prometheus and the dashboard count what clients received,
to the token."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from dashboard.exposition import parse
from dashboard.histories import Histories
from dashboard.reading import FAMILIES
from observability import catalogue
from observability.boards.requests import KEYS_BOARD
from tests.e2e.prometheus_server import exact_increase, prometheus_scraping, query, results
from tests.e2e.quire_server import QuireServer, until
from tests.observability.boards.test_table import filled

pytestmark = [pytest.mark.one_process, pytest.mark.debian, pytest.mark.integration]

MODEL = "simulated:step=5ms,output=20-60"
REPLICAS = 3
CLIENTS = 2  # of each replica
GENERATED = catalogue.GENERATED_TOKENS.name


class Clients:
    """Send requests to one replica, one after the other each, and add up what its answers say."""

    def __init__(self, server: QuireServer, number: int) -> None:
        self.server = server
        self.ledger: Counter[str] = Counter()
        self._number = number
        self._sent = 0
        self._lock = threading.Lock()

    @contextmanager
    def sending(self) -> Iterator[None]:
        over = threading.Event()
        threads = [threading.Thread(target=self._send, args=(over,)) for _ in range(CLIENTS)]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            over.set()
            for thread in threads:
                thread.join()

    def _send(self, over: threading.Event) -> None:
        while not over.is_set():
            with self._lock:
                self._sent += 1
                text = f"Request {self._sent} to replica {self._number}."
            body = {"messages": [{"role": "user", "content": text}], "max_tokens": 100}
            status, reply = self.server.post("/v1/chat/completions", body)
            assert status == 200, reply
            with self._lock:
                self.ledger["requests"] += 1
                self.ledger["output"] += reply["usage"]["completion_tokens"]
                self.ledger["prompt"] += reply["usage"]["prompt_tokens"]


class Dashboard:
    """The dashboard's own reading of the servers' pages, once a second, over a whole test."""

    def __init__(self, servers: list[QuireServer]) -> None:
        self._servers = servers
        self._histories = [Histories(3600.0) for _ in servers]
        self._scrapes = 0

    def scrape(self) -> None:
        self._scrapes += 1
        for server, histories in zip(self._servers, self._histories, strict=True):
            page = server.get("/metrics")[1].decode()
            histories.append(self._scrapes, parse(page, FAMILIES))

    def total(self, metric: str, **match: str) -> float:
        """What was counted since the first scrape, of all servers together."""
        self._scrapes += 1
        total = 0.0
        for server, histories in zip(self._servers, self._histories, strict=True):
            page = parse(server.get("/metrics")[1].decode(), FAMILIES)
            total += histories.append(self._scrapes, page).increase(metric, 3600, match)
        return total


@pytest.mark.proves("counters", "replicas")
def test_totals_are_the_clients_through_restarts_of_each(tmp_path: Path) -> None:
    with ExitStack() as stack:
        servers = [stack.enter_context(QuireServer(MODEL)) for _ in range(REPLICAS)]
        ports = [server.port for server in servers]
        prometheus = stack.enter_context(
            prometheus_scraping(ports[0], tmp_path, replicas=ports[1:])
        )
        dashboard = Dashboard(servers)
        dashboard.scrape()
        everyone = [Clients(server, number) for number, server in enumerate(servers)]
        for down, clients in enumerate(everyone):
            with ExitStack() as load:
                for other in everyone[:down] + everyone[down + 1 :]:
                    load.enter_context(other.sending())
                with clients.sending():
                    before = clients.ledger["requests"]
                    until(
                        lambda c=clients, b=before: c.ledger["requests"] > b + 20,  # type: ignore[misc]
                        60,
                        "requests",
                    )
                _seen(prometheus, clients)
                dashboard.scrape()
                assert clients.server.terminate() == 0
                clients.server.start().wait_ready()
                dashboard.scrape()  # as it does each second: it sees counters that begin again
                with clients.sending():
                    before = clients.ledger["requests"]
                    until(
                        lambda c=clients, b=before: c.ledger["requests"] > b + 10,  # type: ignore[misc]
                        60,
                        "requests of the next process",
                    )
        ledger = sum((clients.ledger for clients in everyone), Counter())
        until(
            lambda: exact_increase(prometheus, GENERATED) == ledger["output"],
            15,
            f"{ledger['output']} tokens in Prometheus, not {exact_increase(prometheus, GENERATED)}",
        )
        counted = {
            "requests": exact_increase(prometheus, catalogue.REQUESTS.name),
            "output": exact_increase(prometheus, GENERATED),
            "prompt": exact_increase(prometheus, catalogue.PROMPT_TOKENS.name),
        }
        print(f"clients: {dict(ledger)}; Prometheus: {counted}")
        assert counted == dict(ledger)
        _board_shows(prometheus, ledger)
        assert dashboard.total(GENERATED) == ledger["output"]
        assert dashboard.total(catalogue.PROMPT_TOKENS.name) == ledger["prompt"]
        assert dashboard.total(catalogue.REQUESTS.name) == ledger["requests"]
        # Each replica is a series of the boards' own, named by what the scrape calls it.
        instances = {each["metric"]["instance"] for each in results(prometheus, "quire_build_info")}
        assert instances == {f"127.0.0.1:{port}" for port in ports}
        names = {each["metric"]["server"] for each in results(prometheus, "quire_build_info")}
        assert len(names) == REPLICAS


def _board_shows(prometheus: str, ledger: Counter[str]) -> None:
    """The board's table of tokens in a time range is a query with increase(), which extrapolates
    from the last sample to now by at most 1.1 times the mean interval between samples. It does not
    before the first sample, which is 0."""
    [panel] = [each for each in KEYS_BOARD.panels if each.title == "Tokens in the time range"]
    samples = query(prometheus, f"min(count_over_time({catalogue.KEY_TOKENS.name}[1h]))")
    assert samples is not None
    most = 1.1 / (samples - 1)
    shown = {
        each.legend: query(prometheus, f"sum({filled(each.expr)})") or 0.0 for each in panel.queries
    }
    prompt = shown["prompt computed"] + shown["prompt cached"]
    for name, found in (("output", shown["output"]), ("prompt", prompt)):
        error = found / ledger[name] - 1
        print(f"{name}: the board shows {found:.0f}, {error:+.3%}; at most {most:+.3%}")
        assert -1e-9 <= error <= most


def _seen(prometheus: str, clients: Clients) -> None:
    """Wait until Prometheus has what this replica has counted: a restart would lose it."""
    instance = f'{GENERATED}{{instance="127.0.0.1:{clients.server.port}"}}'
    own = clients.server.total(GENERATED)
    until(lambda: query(prometheus, instance) == own, 15, "a scrape of all tokens")
