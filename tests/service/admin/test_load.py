"""Load runs."""

from __future__ import annotations

import asyncio
import itertools
import time

import msgspec
import pytest

from observability.admin_api import LoadRun, Quantiles
from service.admin.load import LOAD_PROFILES, LoadPlan, LoadRuns, request_body
from service.admin.problem import ProblemError
from service.telemetry.record import RequestRecord


def record(outcome: str = "length") -> RequestRecord:
    made = RequestRecord("req_1", "chat_completions", "POST", "/", 10.0, 0)
    made.outcome, made.output_tokens = outcome, 11
    made.first_token_time, made.last_token_time, made.ended_time = 10.5, 11.5, 11.75
    return made


class Server:
    def __init__(self, seconds: float = 0.0) -> None:
        self.seconds = seconds
        self.open = self.most_open = self.cancelled = 0
        self.bodies: list[bytes] = []

    async def send(self, body: bytes) -> RequestRecord | None:
        self.bodies.append(body)
        self.open += 1
        self.most_open = max(self.most_open, self.open)
        try:
            await asyncio.sleep(self.seconds)
            return record()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        finally:
            self.open -= 1


async def ended(runs: LoadRuns) -> LoadRun:
    while (last := runs.last()) is None or last.state == "running":
        await asyncio.sleep(0.01)
    return last


def test_a_run_ends_with_what_its_requests_were() -> None:
    async def run() -> LoadRun:
        runs = LoadRuns(Server().send, "tiny")
        assert runs.last() is None
        assert runs.start(LoadPlan(rate=100, seconds=0.3)).state == "running"
        return await ended(runs)

    result = asyncio.run(run())
    assert result.state == "done"
    assert result.sent > 0
    assert result.ended == {"length": result.sent}
    assert result.tokens_out == 11 * result.sent
    assert (result.ttft.p50, result.itl.p99, result.total.p95) == (0.5, 0.1, 1.75)
    assert result.ttft.count == result.sent
    assert 0 < result.elapsed < 60


def test_quantiles_are_those_of_one_request_by_nearest_rank() -> None:
    sent = itertools.count(1)

    async def send(body: bytes) -> RequestRecord | None:
        if (number := next(sent)) > 20:
            return None
        made = record()
        made.first_token_time = made.received_time + number
        return made

    async def run() -> LoadRun:
        runs = LoadRuns(send, "tiny")
        runs.start(LoadPlan(rate=100, seconds=1))
        return await ended(runs)

    assert asyncio.run(run()).ttft == Quantiles(10.0, 19.0, 20.0, 20)


def test_no_more_than_the_concurrency_are_in_flight() -> None:
    async def run() -> Server:
        server = Server(seconds=0.05)
        runs = LoadRuns(server.send, "tiny")
        runs.start(LoadPlan(rate=100, seconds=0.3, concurrency=2))
        await ended(runs)
        return server

    assert asyncio.run(run()).most_open == 2


def test_one_run_at_a_time_and_stopping_cancels_its_requests() -> None:
    async def run() -> None:
        server = Server(seconds=3600)
        runs = LoadRuns(server.send, "tiny")
        runs.start(LoadPlan(rate=100, seconds=600))
        with pytest.raises(ProblemError) as caught:
            runs.start(LoadPlan())
        assert caught.value.status == 409
        while not server.open:
            await asyncio.sleep(0.01)
        stopped = await runs.stop()
        assert stopped is not None
        assert stopped.state == "stopped"
        await asyncio.sleep(0.01)
        assert runs.last() == stopped  # also its seconds
        assert (server.open, server.cancelled) == (0, stopped.sent)
        runs.start(LoadPlan(rate=100, seconds=600))
        await runs.stop()

    begin = time.monotonic()
    asyncio.run(run())
    assert time.monotonic() - begin < 60


def test_an_unknown_profile_is_refused() -> None:
    with pytest.raises(ProblemError) as caught:
        LoadRuns(Server().send, "tiny").start(LoadPlan(profile="storm"))
    assert caught.value.field == "profile"


@pytest.mark.parametrize(
    "wrong", [{"rate": 0}, {"rate": 101}, {"seconds": 601}, {"concurrency": 257}, {"more": 1}]
)
def test_a_plan_is_bounded(wrong: dict[str, object]) -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert(wrong, LoadPlan)


@pytest.mark.parametrize("profile", LOAD_PROFILES)
def test_bodies_share_what_the_profile_shares_and_differ_after_that(profile: str) -> None:
    plan = LoadPlan(profile=profile)
    first, second = words(request_body(plan, 7, 0, "tiny")), words(request_body(plan, 7, 1, "tiny"))
    shared = LOAD_PROFILES[profile].shared_words
    assert first[:shared] == second[:shared]
    assert first[shared] != second[shared]
    assert len(first) == shared + 1 + LOAD_PROFILES[profile].words


@pytest.mark.parametrize("profile", LOAD_PROFILES)
def test_two_runs_share_no_prompts(profile: str) -> None:
    async def run() -> list[list[str]]:
        server = Server()
        runs = LoadRuns(server.send, "tiny")
        for _ in range(2):
            runs.start(LoadPlan(profile=profile, rate=100, seconds=0.3))
            await ended(runs)
        return [words(body) for body in server.bodies]

    beginnings = [" ".join(prompt[:6]) for prompt in asyncio.run(run())]
    shared = LOAD_PROFILES[profile].shared_words
    assert len(set(beginnings)) == (2 if shared else len(beginnings))


def words(body: bytes) -> list[str]:
    content: str = msgspec.json.decode(body)["messages"][0]["content"]
    return content.split()
