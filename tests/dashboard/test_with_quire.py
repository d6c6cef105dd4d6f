"""The client and the poller against a running Quire."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from dashboard import server
from dashboard.answer import Ending
from dashboard.client import ChatRequest, Generation
from dashboard.exposition import parse
from dashboard.poller import Poller
from dashboard.reading import FAMILIES
from observability import catalogue
from tests.e2e.quire_server import QuireServer, until

MODEL = "tiny"


def request(max_tokens: int, model: str = MODEL) -> ChatRequest:
    return ChatRequest(model, (("user", "Hello"),), 0.0, 1.0, max_tokens)


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
    assert answer.time_to_first_token is not None
    assert answer.time_to_first_token > 0
    assert answer.tokens_per_second is not None


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
    assert quire.total(catalogue.KV_BLOCKS.name, state="active") == 0
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
    assert names >= FAMILIES


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
