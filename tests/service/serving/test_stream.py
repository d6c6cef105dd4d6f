"""A generation is followed to its end: the pieces in their order, and one last event."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterator
from typing import Any

import msgspec
import pytest

from engine.messages import FinishReason, SamplingParams
from service.errors import EngineFailedError, InternalError, NotStoredError, QuireError
from service.generation.request import Generation, GenerationRequest
from service.output.events import TextDelta
from service.serving.exchange import Exchange
from service.serving.stream import Outlet, complete, outcome_of, stream_events
from service.telemetry.observer import NoTelemetry
from service.tenants.caller import ANYBODY
from tests.service.serving.by_hand import loaded, record, say, services
from tests.service.wire.chat.test_answer import Desk, fail, finish


class Told:
    """A stream in words."""

    def __init__(self, broken: str = "") -> None:
        self.broken = broken
        self.ends = 0

    def text_frame(self) -> None:
        return None

    def passed(self, choice: Any) -> None:
        raise AssertionError("there is no frame")

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


# --- pieces that are pushed -----------------------------------------------------------------------


class Words(Told):
    """One piece for each message of the engine."""

    def advance(self, choices: list[Any]) -> tuple[str]:  # type: ignore[override]  # as real ones do
        if self.broken == "advance" and len(choices[0].tokens) > 1:
            raise ValueError("no such piece")
        return (f"{len(choices[0].tokens)} tokens",)


class Window:
    """Takes pieces; ``full`` after each ``room`` of them, until ``open`` is set."""

    def __init__(self, room: int = 1000) -> None:
        self.room = room
        self.pieces: list[str] = []
        self.pushed = 0
        self.open = asyncio.Event()
        self.is_read = False  # the piece being written was read from the generator

    def write(self, piece: str) -> bool:
        self.pieces.append(piece)
        self.pushed += not self.is_read
        return bool(len(self.pieces) % self.room)

    async def drained(self) -> None:
        await self.open.wait()

    async def read(self, events: AsyncGenerator[str, None]) -> None:
        async for piece in events:
            self.is_read = True
            if not self.write(piece):
                await self.drained()
            self.is_read = False


async def until(true: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not true():
            await asyncio.sleep(0)


class Pushed:
    """A followed request whose pieces go to a window, token by token."""

    def __init__(self, followed: Followed, window: Window, stream: Told) -> None:
        outlet = Outlet[str]()
        outlet.sender = window
        events = stream_events(followed.exchange, followed.generation, stream, None, outlet)
        self.window = window
        self.reading = asyncio.ensure_future(window.read(events))
        self.sequence = followed.desk.sequences[0]

    async def token(self, expected: int) -> None:
        """The engine gives one more; wait until so many pieces have been sent."""
        self.sequence.generated.append(400)
        self.sequence.waker.wake()
        await until(lambda: len(self.window.pieces) == expected)

    async def end(self, tokens: int) -> None:
        finish(self.sequence, tokens, FinishReason.STOP)
        self.sequence.waker.wake()
        await asyncio.wait_for(self.reading, 10)


async def test_tokens_are_pushed_in_order_once_the_first_is_sent(followed: Followed) -> None:
    pushed = Pushed(followed, Window(), Words())
    for number in range(1, 6):
        await pushed.token(1 + number)
    await pushed.end(5)
    assert pushed.window.pieces[:6] == ["begin", *(f"{number} tokens" for number in range(1, 6))]
    assert pushed.window.pieces[-1] == "end 1"
    assert pushed.window.pushed >= 4
    assert followed.exchange.record.outcome == "stop"


async def test_a_full_window_holds_back_what_comes_and_loses_nothing(followed: Followed) -> None:
    window = Window(room=3)
    pushed = Pushed(followed, window, Words())
    await pushed.token(2)
    await pushed.token(3)  # now it is full
    pushed.sequence.generated += [400] * 3
    pushed.sequence.waker.wake()
    for _ in range(20):
        await asyncio.sleep(0)
    assert window.pieces[-1] == "2 tokens"
    window.open.set()
    await until(lambda: window.pieces[-1] == "5 tokens")
    await pushed.end(5)
    assert window.pieces[-1] == "end 1"


async def test_several_pieces_of_one_message_are_not_pushed_but_sent(followed: Followed) -> None:
    pushed = Pushed(followed, Window(), Told())
    for number in (1, 2, 3):
        await pushed.token(1 + 2 * number)  # two pieces each
    await pushed.end(3)
    assert pushed.window.pieces[1:7] == ["1 tokens", "more", "2 tokens", "more", "3 tokens", "more"]


class Evens(Told):
    """A piece for every second token; for the others, as of incomplete text, an empty one or
    none."""

    read = 0

    def advance(self, choices: list[Any]) -> tuple[str, ...]:  # type: ignore[override]
        count = len(choices[0].tokens)
        is_new, self.read = count > self.read, count
        if is_new and count % 2 == 0:
            return (f"{count} tokens",)
        return ("",) if count % 4 == 1 else ()


async def test_tokens_without_a_piece_are_pushed_past(followed: Followed) -> None:
    pushed = Pushed(followed, Window(), Evens())
    for number in range(1, 9):
        await pushed.token(1 + number // 2)
        await until(lambda: len(followed.generation.choices[0].tokens) == number)  # noqa: B023
    await pushed.end(8)
    assert pushed.window.pieces == [
        "begin",
        "2 tokens",
        "4 tokens",
        "6 tokens",
        "8 tokens",
        "end 1",
    ]
    assert followed.exchange.record.outcome == "stop"


async def test_what_fails_while_pieces_are_pushed_ends_the_stream(followed: Followed) -> None:
    pushed = Pushed(followed, Window(), Words("advance"))
    await pushed.token(2)
    pushed.sequence.generated.append(400)
    pushed.sequence.waker.wake()
    await asyncio.wait_for(pushed.reading, 10)
    assert pushed.window.pieces == ["begin", "1 tokens", "failed: InternalError"]
    assert followed.exchange.record.outcome == InternalError.kind.outcome


async def test_a_reader_that_leaves_ends_the_pushing(followed: Followed) -> None:
    pushed = Pushed(followed, Window(), Words())
    await pushed.token(2)
    await pushed.token(3)
    pushed.reading.cancel()
    await asyncio.wait([pushed.reading])
    pushed.sequence.generated.append(400)
    pushed.sequence.waker.wake()
    for _ in range(5):
        await asyncio.sleep(0)
    assert len(pushed.window.pieces) == 3


class Framed(Told):
    """Chunks that differ in nothing but the text."""

    def __init__(self) -> None:
        super().__init__()
        self.read = self.advanced = 0

    def text_frame(self) -> tuple[bytes, bytes]:  # type: ignore[override]  # pieces are bytes here
        return b"<", b">"

    def passed(self, choice: Any) -> None:
        self.read = len(choice.events)

    def advance(self, choices: list[Any]) -> tuple[bytes]:  # type: ignore[override]
        events = choices[0].events
        fresh, self.read = events[self.read :], len(events)
        self.advanced += len(fresh)
        texts = [event.text for event in fresh if isinstance(event, TextDelta)]
        return (b"".join(b"<%b>" % msgspec.json.encode(text) for text in texts),)


SAID = "Hi, you. Hi, you. \u00e9\u4e2d Hi, you. Hi, you. "


async def test_plain_tokens_are_sent_without_the_stream_and_logged_as_by_the_parser(
    followed: Followed,
) -> None:
    stream, window = Framed(), Window(room=7)
    window.open.set()
    pushed = Pushed(followed, window, stream)
    choice, sequence = followed.generation.choices[0], followed.desk.sequences[0]
    ids = followed.services.checkpoint.tokenizer.encode(SAID, add_special_tokens=False)
    for number, token in enumerate(ids, 1):
        sequence.generated.append(token)
        if sequence.follower is None:
            sequence.waker.wake()
        else:
            sequence.follower()
        if number % 2 or number < 3:  # else two come together
            for _ in range(5):
                await asyncio.sleep(0)
    await pushed.end(len(ids))
    assert 0 < stream.advanced < len(choice.events)
    said = b"".join(piece for piece in window.pieces if isinstance(piece, bytes))
    texts = [event.text for event in choice.events if isinstance(event, TextDelta)]
    assert said == b"".join(b"<%b>" % msgspec.json.encode(text) for text in texts)
    again = Followed()
    await again.begin()
    again.desk.sequences[0].generated += ids
    finish(again.desk.sequences[0], len(ids), FinishReason.STOP)
    again.desk.sequences[0].waker.wake()
    await again.told(Told())
    assert choice.events == again.generation.choices[0].events
    assert choice.tokens == ids


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
