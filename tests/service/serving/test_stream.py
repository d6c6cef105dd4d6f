"""A generation is followed to its end: the pieces in their order, and one last event."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator
from functools import cache
from typing import Any, cast

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.messages import FinishReason, SamplingParams, TokenLogprobs, packed_top
from service.checkpoint.vocabulary import Vocabulary
from service.errors import EngineFailedError, InternalError, NotStoredError, QuireError
from service.generation.choice import Choice
from service.generation.request import Generation, GenerationRequest
from service.output.events import Event, ReasoningDelta, TextDelta
from service.serving.exchange import Exchange
from service.serving.stream import Outlet, complete, outcome_of, stream_events
from service.telemetry.observer import NoTelemetry
from service.tenants.caller import ANYBODY
from service.wire.messages.answer import MessagesAnswer, MessagesStream
from service.wire.messages.signatures import Signer
from tests.service.serving.by_hand import loaded, record, say, services
from tests.service.tokenizers_at_hand import vocabulary
from tests.service.wire.chat.test_answer import CALL, Desk, fail, finish


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

    def __init__(self, vocabulary: Vocabulary | None = None) -> None:
        """``vocabulary``: read the tokens of a parsed answer by this one, not by pocket's."""
        self.desk: Desk = loaded()
        self.services = services(self.desk)
        if vocabulary is not None:
            self.services.generator._parsed_vocabulary = vocabulary
        self.exchange = Exchange(record(), NoTelemetry())
        self.generation: Generation

    async def begin(self, **fields: Any) -> None:
        params = SamplingParams(max_tokens=8)
        request = GenerationRequest("req_1", [[1, 2]], params, arrival_time=0.0, **fields)
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


@pytest.mark.parametrize("read", [0, 1, 2])
async def test_a_reader_that_leaves_an_unfinished_stream_is_noticed(
    followed: Followed, read: int
) -> None:
    left: list[bool] = []
    followed.say()
    events = stream_events(
        followed.exchange, followed.generation, Told(), left=lambda: left.append(True)
    )
    for _ in range(read):
        await anext(events)
    await events.aclose()
    assert left == [True] * (read > 0)  # what has not begun has shown nothing
    assert followed.exchange.record.outcome == ""


async def test_a_reader_that_leaves_while_it_waits_is_noticed(followed: Followed) -> None:
    left: list[bool] = []
    events = stream_events(
        followed.exchange, followed.generation, Told(), left=lambda: left.append(True)
    )
    await anext(events)
    waiting = asyncio.ensure_future(anext(events))
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.wait([waiting])
    assert left == [True]


async def test_a_reader_that_stays_to_the_end_has_not_left(followed: Followed) -> None:
    left: list[bool] = []
    followed.say()
    assert (await followed.told(Told(), left=lambda: left.append(True)))[-1] == "end 1"
    assert left == []


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

    def give(self, tokens: list[int]) -> None:
        """The engine gives these in one message."""
        self.sequence.generated += tokens
        if self.sequence.follower is None:
            self.sequence.waker.wake()
        else:
            self.sequence.follower()

    async def end(self, tokens: int, reason: FinishReason = FinishReason.STOP) -> None:
        finish(self.sequence, tokens, reason)
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
        if not choices:  # a search that is not over
            return (b"",)
        events = choices[0].events
        fresh, self.read = events[self.read :], len(events)
        self.advanced += len(fresh)
        texts = [event.text for event in fresh if isinstance(event, TextDelta)]
        return (b"".join(b"<%b>" % msgspec.json.encode(text) for text in texts),)


SAID = "Hi, you. Hi, you. \u00e9\u4e2d Hi, you. Hi, you. "


def ids_of(text: str) -> list[int]:
    return _pocket_tokenizer().encode(text, add_special_tokens=False)


@cache
def _pocket_tokenizer() -> Any:
    return services(loaded()).checkpoint.tokenizer


async def turns(number: int) -> None:
    for _ in range(number):
        await asyncio.sleep(0)


async def at_once(
    ids: list[int], reason: FinishReason, vocabulary: Vocabulary | None = None, **fields: Any
) -> list[Event]:
    """What a choice's log holds if all tokens come in one message."""
    one = Followed(vocabulary)
    await one.begin(**fields)
    one.desk.sequences[0].generated += ids
    finish(one.desk.sequences[0], len(ids), reason)
    one.desk.sequences[0].waker.wake()
    await one.told(Told())
    return one.generation.choices[0].events


def framed(events: list[Event]) -> bytes:
    texts = [event.text for event in events if isinstance(event, TextDelta)]
    return b"".join(b"<%b>" % msgspec.json.encode(text) for text in texts)


def said(window: Window) -> bytes:
    return b"".join(piece for piece in window.pieces if isinstance(piece, bytes))


async def test_plain_tokens_are_sent_without_the_stream_and_logged_as_by_the_parser(
    followed: Followed,
) -> None:
    stream, window = Framed(), Window(room=7)
    window.open.set()
    pushed = Pushed(followed, window, stream)
    choice, ids = followed.generation.choices[0], ids_of(SAID)
    for number, token in enumerate(ids, 1):
        pushed.give([token])
        if number % 2 or number < 3:  # else two come together
            await turns(5)
    await pushed.end(len(ids))
    assert 0 < stream.advanced < len(choice.events)
    assert said(window) == framed(choice.events)
    assert choice.events == await at_once(ids, FinishReason.STOP)
    assert choice.tokens == ids


_TOKENS = st.integers(0, 600) | st.deferred(lambda: st.sampled_from(ids_of(SAID + "\U0001f680")))


@settings(max_examples=60, deadline=None)
@given(
    messages=st.lists(st.tuples(st.lists(_TOKENS, max_size=3), st.integers(0, 5)), max_size=30),
    room=st.integers(2, 9),
    reason=st.sampled_from([FinishReason.STOP, FinishReason.LENGTH]),
    fields=st.sampled_from([{}, {"parse": True, "tools": {}}]),  # the latter: white space waits
)
def test_any_tokens_in_any_messages_are_sent_once_and_in_order(
    messages: list[tuple[list[int], int]], room: int, reason: FinishReason, fields: dict[str, Any]
) -> None:
    """A message without tokens wakes the stream for another cause."""

    async def run() -> None:
        followed, window = Followed(), Window(room)
        await followed.begin(**fields)
        window.open.set()
        pushed = Pushed(followed, window, Framed())
        for tokens, pause in messages:
            pushed.give(tokens) if tokens else pushed.sequence.waker.wake()
            await turns(pause)
        ids = [token for tokens, _ in messages for token in tokens]
        await pushed.end(len(ids), reason)
        events = followed.generation.choices[0].events
        assert events == await at_once(ids, reason, **fields)
        assert said(window) == framed(events)
        assert followed.generation.output_tokens == len(ids)

    asyncio.run(run())


class Blocks(MessagesStream):
    """Counts how often it was asked to encode tokens."""

    advanced = 0

    def advance(self, choices: list[Choice]) -> Iterable[bytes]:
        self.advanced += 1
        return super().advance(choices)


_PIECES = st.integers(0, 2) | st.integers(3 + 0x20, 3 + 0x7E) | st.integers(259, 271)
_CHARACTERS = st.sampled_from(
    [[3 + byte for byte in text.encode()] for text in "\U0001f680\n\u00e9"]
)


@settings(max_examples=150, deadline=None)
@given(
    name=st.sampled_from(["llama", "gemma", "metaspace"]),
    parts=st.lists(_PIECES.map(lambda token: [token]) | _CHARACTERS, min_size=1, max_size=30),
    sizes=st.lists(st.integers(1, 2), min_size=1, max_size=7),
)
def test_tokens_that_are_single_bytes_are_sent_once_and_in_order(
    name: str, parts: list[list[int]], sizes: list[int]
) -> None:
    """As those of SentencePiece are, whose spaces may be tokens, too."""

    async def run() -> None:
        known, fields = vocabulary(name), {"parse": True, "tools": {}}
        followed, window = Followed(known), Window()
        await followed.begin(**fields)
        pushed = Pushed(followed, window, Framed())
        ids, given, size = [token for part in parts for token in part], 0, itertools.cycle(sizes)
        while given < len(ids):
            count = next(size)
            pushed.give(ids[given : given + count])
            given += count
            await turns(4)
        await pushed.end(len(ids))
        events = followed.generation.choices[0].events
        assert events == await at_once(ids, FinishReason.STOP, known, **fields)
        assert said(window) == framed(events)

    asyncio.run(run())


def texts_of(events: list[Event]) -> list[Event]:
    return [event for event in events if isinstance(event, TextDelta | ReasoningDelta)]


async def blocks_of_a_message(text: str, sizes: list[int], room: int) -> tuple[int, int]:
    """Stream it in messages of so many tokens, and compare it with its encoding at once; return
    how often the stream was asked to encode, and the number of tokens."""
    followed, window = Followed(), Window(room)
    await followed.begin(parse=True, tools={})
    window.open.set()
    answer = MessagesAnswer(followed.generation, Signer("s"), message_id="m", model="tiny")
    stream = Blocks(answer)
    pushed = Pushed(followed, window, cast(Any, stream))
    ids, given, size = ids_of(text), 0, itertools.cycle(sizes)
    while given < len(ids):
        count = next(size)
        pushed.give(ids[given : given + count])
        given += count
        await turns(4)
    await pushed.end(len(ids))
    events = followed.generation.choices[0].events
    assert texts_of(events) == texts_of(await at_once(ids, FinishReason.STOP, parse=True, tools={}))
    again = answer.stream()
    assert said(window) == b"".join(again.advance(followed.generation.choices)) + again.end()
    return stream.advanced, len(ids)


async def test_plain_tokens_of_a_message_are_sent_without_its_stream() -> None:
    advanced, tokens = await blocks_of_a_message(SAID * 8, [1], room=1000)
    assert advanced < tokens / 2


_PARTS = st.sampled_from(["<think>", "</think>", SAID, "\n\n", " \U0001f680", CALL, CALL[:20]])


@settings(max_examples=60, deadline=None)
@given(
    parts=st.lists(_PARTS, min_size=1, max_size=5),
    sizes=st.lists(st.integers(1, 2), min_size=1, max_size=7),
    room=st.integers(2, 9),
)
def test_blocks_of_a_message_are_the_same_whoever_sends_them(
    parts: list[str], sizes: list[int], room: int
) -> None:
    asyncio.run(blocks_of_a_message("".join(parts), sizes, room))


async def test_a_character_cut_off_in_one_stream_spoils_none_in_others(followed: Followed) -> None:
    part, *_ = ids_of("\u4e2d")
    assert await at_once([part], FinishReason.LENGTH)
    window = Window()
    pushed = Pushed(followed, window, Framed())
    for token in ids_of(SAID):
        pushed.give([token])
        await turns(3)
    await pushed.end(len(ids_of(SAID)))
    assert "\ufffd" not in said(window).decode()
    assert "\u4e2d" in said(window).decode()


async def test_a_wake_up_that_brings_nothing_does_not_hide_the_end(followed: Followed) -> None:
    """Such as that of a request with a deadline for which another engine has a place."""
    window = Window()
    pushed = Pushed(followed, window, Framed())
    for token in ids_of("Hi, you. Hi, you."):
        pushed.give([token])
        await turns(3)
    pushed.sequence.waker.wake()
    await turns(3)
    fail(pushed.sequence, "it broke", is_refusal=False)
    pushed.sequence.waker.wake()
    await asyncio.wait_for(pushed.reading, 10)
    assert window.pieces[-1] == "failed: EngineFailedError"


async def test_what_is_sent_without_the_stream_counts_while_it_runs(followed: Followed) -> None:
    pushed, ids = Pushed(followed, Window(), Framed()), ids_of("Hi, you. Hi, you.")
    for number, token in enumerate(ids, 1):
        pushed.give([token])
        await turns(3)
        assert followed.generation.output_tokens == number
        assert [one.output_tokens for one in followed.generation.records()] == [number]
    await pushed.end(len(ids))


async def test_a_search_with_one_beam_is_streamed_to_its_end(followed: Followed) -> None:
    await followed.begin(length_penalty=1.0)
    sequences, before = followed.desk.sequences, len(followed.desk.sequences)
    pushed = Pushed(followed, Window(), Framed())
    for number in range(before, before + 8):
        await until(lambda: len(sequences) == number)  # noqa: B023
        likely = [(400, -0.1), (401, -2.0)]
        sequences[-1].logprobs = [TokenLogprobs(-0.1, 1, packed_top(likely))]
        finish(sequences[-1], 1, FinishReason.LENGTH)
        sequences[-1].waker.wake()
    await asyncio.wait_for(pushed.reading, 10)
    assert followed.generation.choices[0].tokens == [400] * 8
    assert pushed.window.pieces[-1] == "end 1"


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
