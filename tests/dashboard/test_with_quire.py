"""The client and the poller against a running Quire."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest

from dashboard import server
from dashboard.answer import Ending
from dashboard.apis.ask import Ask, Message
from dashboard.apis.table import APIS
from dashboard.client import Generation, Request
from dashboard.exposition import parse
from dashboard.play.figures import cost, record
from dashboard.poller import Poller
from dashboard.reading import FAMILIES, SHOWN
from dashboard.words import duration, number
from observability import catalogue
from tests.e2e.quire_server import QuireServer, until

MODEL = "tiny"


def request(max_tokens: int, model: str = MODEL) -> Request:
    messages = (Message("user", "Hello"),)
    return Request(APIS[0], Ask(model, messages, temperature=0.0, max_tokens=max_tokens))


@pytest.fixture
def poller(quire: QuireServer) -> Iterator[Poller]:
    poller = Poller(quire.url, interval=0.1)
    yield poller
    poller.close()


def test_the_server_lists_its_model(quire: QuireServer) -> None:
    assert server.list_models(quire.url, "") == [MODEL]


def test_an_answer_comes_with_what_it_cost(quire: QuireServer) -> None:
    generation = Generation(quire.url, request(8))
    until(lambda: not generation.running, 60, "the answer to end")
    answer = generation.answer()
    assert (answer.ending, answer.error) == (Ending.COMPLETE, "")
    assert answer.text == "Hello" * 8
    assert answer.finish_reason == "length"
    assert answer.usage is not None
    assert answer.usage.completion_tokens == 8
    assert answer.usage.cached_tokens is not None
    assert answer.timings is not None


class Starved:
    """Keeps this process from doing anything else, as a busy dashboard does."""

    def __enter__(self) -> None:
        self._over = threading.Event()
        self._threads = [threading.Thread(target=self._spin) for _ in range(4)]
        for thread in self._threads:
            thread.start()

    def _spin(self) -> None:
        while not self._over.is_set():
            sum(range(20_000))

    def __exit__(self, *_: object) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join()


def logged(quire: QuireServer, request_id: str) -> dict[str, Any]:
    def line() -> dict[str, Any] | None:
        lines = (line for line in quire.log_lines() if line.get("request_id") == request_id)
        return next(lines, None)

    found = until(line, 60, "the request's log line")
    assert found is not None
    return found


def is_inverse(rate: float, gap_ms: float) -> bool:
    """The rate is rounded to a tenth, the gap to a thousandth."""
    return 1000 / (gap_ms + 0.0005) - 0.05 <= rate <= 1000 / (gap_ms - 0.0005) + 0.05


def test_an_answers_figures_are_those_of_the_servers_log_line_however_busy_we_are(
    quire: QuireServer,
) -> None:
    for _ in range(3):
        with Starved():
            generation = Generation(quire.url, request(64))
            until(lambda: not generation.running, 60, "the answer to end")  # noqa: B023
        answer = generation.answer()
        line = logged(quire, answer.request_id)
        told = answer.timings
        assert told is not None
        assert told.queue_ms == line["queue_ms"]
        assert told.time_to_first_token_ms == line["ttft_ms"]
        assert told.mean_itl_ms == line["itl_mean_ms"]
        assert told.output_tokens_per_second is not None
        assert is_inverse(told.output_tokens_per_second, line["itl_mean_ms"])
        shown = cost(answer)
        assert f"first token {duration(line['ttft_ms'] / 1000)}" in shown
        assert f"{number(told.output_tokens_per_second)} tok/s" in shown
        assert answer.trace_id == line["trace_id"]
        assert f'"time_to_first_token_ms": {line["ttft_ms"]}' in record(answer)


def test_stopping_aborts_in_the_engine(quire: QuireServer) -> None:
    gone = quire.total(catalogue.REQUESTS.name, outcome="client_gone")
    generation = Generation(quire.url, request(30_000))
    until(lambda: generation.answer().text, 60, "the first token")
    until(lambda: quire.total(catalogue.SEQUENCES_RUNNING.name) == 1, 60, "it to run")
    generation.cancel()
    until(lambda: quire.total(catalogue.SEQUENCES_RUNNING.name) == 0, 60, "the abort")
    until(
        lambda: quire.total(catalogue.REQUESTS.name, outcome="client_gone") == gone + 1,
        60,
        "the outcome",
    )
    # A worker without a stream hears of an engine only now and then.
    until(
        lambda: quire.total(catalogue.KV_BLOCKS.name, state="active") == 0, 10, "blocks to be free"
    )
    assert generation.answer().ending is Ending.STOPPED


def test_an_unknown_model_is_refused_in_the_servers_words(quire: QuireServer) -> None:
    generation = Generation(quire.url, request(8, model="nobody"))
    until(lambda: not generation.running, 60, "the refusal")
    answer = generation.answer()
    assert answer.ending is Ending.FAILED
    assert answer.error.startswith("The server refused (404): ")
    assert "nobody" in answer.error


def test_quire_exposes_every_metric_the_page_shows(quire: QuireServer) -> None:
    page = parse(quire.get("/metrics")[1].decode(), FAMILIES)
    names = {series.name.removesuffix("_bucket") for series in (*page.gauges, *page.cumulative)}
    assert names >= {metric.name for metric in SHOWN}


def test_the_poller_sees_an_answer_being_generated(quire: QuireServer, poller: Poller) -> None:
    generation = Generation(quire.url, request(30_000))
    try:

        def seen() -> bool:
            generation.answer()
            latest = poller.view().latest
            return latest is not None and latest.running == 1 and latest.generated > 0

        until(seen, 60, "a running sequence and a rate of tokens")
        view = poller.view()
        assert view.latest is not None
        assert 0 < view.latest.kv_ratio <= 1
        assert view.health.state is server.State.READY
        assert view.health.model == view.engine["model"] == MODEL
        assert view.problem == ""
        until(lambda: poller.view().latest.itl.p50 > 0, 60, "gaps between tokens")  # type: ignore[union-attr]
    finally:
        generation.cancel()
    until(lambda: poller.view().latest.running == 0, 60, "the end to show")  # type: ignore[union-attr]
