"""A generation is followed to its end: the pieces in their order, and one last event."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from engine.messages import SamplingParams
from service.errors import EngineFailedError, InternalError, NotStoredError, QuireError
from service.generation.request import Generation, GenerationRequest
from service.serving.exchange import Exchange
from service.serving.stream import complete, outcome_of, stream_events
from service.telemetry.observer import NoTelemetry
from service.tenants.caller import ANYBODY
from tests.service.serving.by_hand import loaded, record, say, services
from tests.service.wire.chat.test_answer import Desk, fail


class Told:
    """A stream in words."""

    def __init__(self, broken: str = "") -> None:
        self.broken = broken
        self.ends = 0

    def begin(self) -> str:
        return "begin"

    def advance(self, choices: list[Any]) -> Iterator[str]:
        if self.broken == "advance":
            raise ValueError("no such piece")
        yield f"{len(choices[0].tokens)} tokens"
        yield ""
        yield "more"

    def end(self) -> str:
        self.ends += 1
        return f"end {self.ends}"

    def fail(self, error: QuireError) -> str:
        return f"failed: {type(error).__name__}"


class Followed:
    """One request for a few words, its engine in the test's hands."""

    def __init__(self) -> None:
        self.desk: Desk = loaded()
        self.services = services(self.desk)
        self.exchange = Exchange(record(), NoTelemetry())
        self.generation: Generation

    async def begin(self) -> None:
        params = SamplingParams(max_tokens=8)
        request = GenerationRequest("req_1", [[1, 2]], params, arrival_time=0.0)
        self.generation = await self.services.generator.start(request, ANYBODY)

    def say(self) -> None:
        say(self.services, self.desk, "Hello there.")

    async def told(self, stream: Told, **fields: Any) -> list[str]:
        events = stream_events(self.exchange, self.generation, stream, **fields)
        return [event async for event in events]


@pytest.fixture
async def followed() -> Followed:
    made = Followed()
    await made.begin()
    return made


async def test_pieces_come_in_order_and_empty_ones_not_at_all(followed: Followed) -> None:
    followed.say()
    told = await followed.told(Told())
    count = len(followed.generation.choices[0].tokens)
    assert told == ["begin", f"{count} tokens", "more", "end 1"]
    assert followed.exchange.record.outcome == "stop" == outcome_of(followed.generation)
    assert followed.exchange.record.first_token_time is not None


async def test_an_engine_that_fails_ends_the_stream_as_failed(followed: Followed) -> None:
    fail(followed.desk.sequences[0], "it broke", is_refusal=False)
    followed.desk.sequences[0].waker.wake()
    assert await followed.told(Told()) == ["begin", "failed: EngineFailedError"]
    assert followed.exchange.record.outcome == "error:engine"


async def test_a_fault_of_ours_ends_only_this_stream_and_is_said_to_be_one(
    followed: Followed,
) -> None:
    followed.say()
    assert await followed.told(Told("advance")) == ["begin", "failed: InternalError"]
    assert followed.exchange.record.outcome == InternalError.kind.outcome


async def test_an_end_that_has_become_untrue_is_made_anew(followed: Followed) -> None:
    async def changed() -> bool:
        return False

    followed.say()
    told = await followed.told(Told(), commit=changed)
    assert told[-1] == "end 2"


async def test_what_could_not_be_kept_is_told_as_no_success(followed: Followed) -> None:
    async def lost() -> bool:
        raise NotStoredError("gone")

    followed.say()
    told = await followed.told(Told(), commit=lost)
    assert told[-1] == "failed: NotStoredError"
    assert followed.exchange.record.outcome == "error:store"


class Kept:
    def __init__(self) -> None:
        self.seen = 0

    def follow(self, choices: list[Any]) -> None:
        self.seen = len(choices[0].tokens)


async def test_a_whole_answer_is_followed_until_all_of_it_is_there(followed: Followed) -> None:
    followed.say()
    answer = Kept()
    await complete(followed.exchange, followed.generation, answer)  # type: ignore[arg-type]  # all it uses
    assert answer.seen == len(followed.generation.choices[0].tokens) > 0
    assert followed.exchange.record.first_token_time is not None
    assert followed.exchange.record.outcome == ""  # for the one that sends it


async def test_a_whole_answer_of_a_failed_engine_is_an_error(followed: Followed) -> None:
    fail(followed.desk.sequences[0], "it broke", is_refusal=False)
    followed.desk.sequences[0].waker.wake()
    with pytest.raises(EngineFailedError):
        await complete(followed.exchange, followed.generation, Kept())  # type: ignore[arg-type]  # all it uses
