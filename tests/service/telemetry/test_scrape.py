"""The metrics page costs a bounded share of the event loop, however often clients scrape it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from observability import catalogue
from observability.metrics import MetricRegistry
from service.telemetry import scrape
from service.telemetry.scrape import ScrapePages


class Counted:
    """A page of 50 pieces that says what had been counted when it was begun."""

    def __init__(self) -> None:
        self.count = 0

    def render(self, accept: str) -> tuple[Iterator[bytes], str]:
        def pieces() -> Iterator[bytes]:
            yield b"%d" % self.count
            for _ in range(49):
                yield b"."

        return pieces(), accept


async def test_what_was_counted_before_the_request_is_on_its_page() -> None:
    counted = Counted()
    pages = ScrapePages(counted.render)

    async def ask(number: int) -> None:
        counted.count = number
        page, _ = await pages.page("text")
        assert int(page.rstrip(b".")) >= number

    for number in range(5):
        await ask(number)
    await asyncio.gather(*(ask(number) for number in range(5, 50)))
    assert pages.made < 50


async def test_all_who_wait_get_one_page_and_other_work_goes_on_meanwhile() -> None:
    pages = ScrapePages(Counted().render)
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    working = asyncio.create_task(others())
    answers = await asyncio.gather(*(pages.page("text") for _ in range(100)))
    working.cancel()
    assert len({page for page, _ in answers}) == 1
    assert pages.made == 1
    assert turns >= 50


async def test_one_who_leaves_does_not_take_the_page_from_others() -> None:
    pages = ScrapePages(Counted().render)
    leaver = asyncio.create_task(pages.page("text"))
    stayer = asyncio.create_task(pages.page("text"))
    await asyncio.sleep(0)
    leaver.cancel()
    page, _ = await stayer
    assert page == b"0" + 49 * b"."


async def test_pages_beyond_a_burst_wait_their_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scrape, "BURST", 3)
    monkeypatch.setattr(scrape, "PAGES_PER_SECOND", 100.0)
    pages = ScrapePages(Counted().render)
    loop = asyncio.get_running_loop()
    begin = loop.time()
    for _ in range(13):
        await pages.page("text")
    assert loop.time() - begin >= 0.09  # ten pages at 100 a second


@pytest.mark.parametrize("accept", ["", "application/openmetrics-text"])
def test_a_page_in_pieces_is_the_page(accept: str) -> None:
    metrics = MetricRegistry(["m"])
    metrics[catalogue.REQUESTS].labels("m", "chat_completions", "stop").inc()
    pieces, _ = metrics.exposition_pieces(accept)
    made = list(pieces)
    assert max(map(len, made)) < 32_768
    page = b"".join(made).decode()
    heads = [line for line in page.splitlines() if line.startswith("# TYPE")]
    assert len(heads) == len(set(heads))
    assert page.count("# EOF") == (1 if accept else 0)


def test_no_accept_header_makes_a_format_of_its_own() -> None:
    """Otherwise a client that makes up versions would delay the next scrape by a page each."""
    metrics = MetricRegistry(["m"])
    plain = "text/plain;version=%s;escaping=allow-utf-8"
    accepts = [
        *(f"application/openmetrics-text;version=1.0.{n}" for n in range(50)),
        *(f"application/openmetrics-text; version={n}.0.0,{plain % n}" for n in range(50)),
        *(plain % f"{n}.0.0" for n in range(50)),
        *("application/openmetrics-text;version=x", "", "*/*"),
    ]
    assert len({metrics.exposition_pieces(accept)[1] for accept in accepts}) == 2


PROMETHEUS = {
    "2": "application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;"
    "q=0.75,text/plain;version=0.0.4;q=0.5,*/*;q=0.1",
    "3": "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.5,"
    "application/openmetrics-text;version=0.0.1;q=0.4,text/plain;version=1.0.0;"
    "escaping=allow-utf-8;q=0.3,text/plain;version=0.0.4;q=0.2,*/*;q=0.1",
}


@pytest.mark.parametrize("accept", PROMETHEUS.values(), ids=PROMETHEUS)
def test_prometheus_gets_openmetrics(accept: str) -> None:
    _, content_type = MetricRegistry(["m"]).exposition_pieces(accept)
    assert content_type.startswith("application/openmetrics-text; version=1.0.0")
