"""A run keeps a stream within bounds: readers get every byte once; without readers it stops."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from service.checkpoint.checkpoint import load_checkpoint
from service.errors import OverloadedError, QuireError
from service.generation.request import Generation
from service.generation.run import (
    MOST_READERS,
    RUN_PIECE_BYTES,
    Run,
    RunLimits,
    RunLog,
    RunMemory,
    RunRegistry,
)
from service.tenants.caller import ANYBODY, Caller
from tests.service.wire.chat.test_answer import Played

LIMITS = RunLimits(timeout=60, run_bytes=1 << 20, total_bytes=1 << 20)


def event(number: int) -> bytes:
    return b"data: %d\n\n" % number


def numbered(numbers: range) -> bytes:
    return b"".join(b"id: %d\n%b" % (number, event(number)) for number in numbers)


def lost() -> bytes:
    return b"lost"


async def read(run: Run, number: int = 0) -> bytes:
    return b"".join([piece async for piece in run.follow(number, lost)])


@pytest.fixture
def generation(tiny_model: Path) -> Generation:
    """One that the engine has said nothing of yet."""
    played = Played(load_checkpoint(tiny_model), "", itertools.repeat(1))
    generation = played.generation
    generation.choices[0].done = False
    generation.choices[0].finished = None
    generation._open = list(generation.choices)
    return generation


class Source:
    """A stream that the test lets proceed, event by event."""

    def __init__(self) -> None:
        self.events: asyncio.Queue[bytes | None] = asyncio.Queue()

    def say(self, *numbers: int) -> None:
        self.events.put_nowait(b"".join(map(event, numbers)))

    def end(self) -> None:
        self.events.put_nowait(None)

    async def __call__(self) -> AsyncGenerator[bytes, None]:
        while (chunk := await self.events.get()) is not None:
            yield chunk


def start(
    registry: RunRegistry, generation: Generation, source: AsyncGenerator[bytes, None]
) -> tuple[Run, list[str]]:
    ends: list[str] = []
    run = registry.start("r", "me", generation, source, on_end=lambda: ends.append("r"))
    return run, ends


async def test_readers_at_any_place_get_the_same_bytes(generation: Generation) -> None:
    source = Source()
    run, ends = start(RunRegistry(LIMITS), generation, source())
    early = asyncio.create_task(read(run))
    source.say(0, 1)
    source.say(2)
    while run.log.next < 3:
        await run.log.grown()
    late = asyncio.create_task(read(run, 2))
    source.say(3)
    source.end()
    assert await early == numbered(range(4))
    assert await late == numbered(range(2, 4))
    assert await read(run, 1) == numbered(range(1, 4))
    assert await read(run, 4) == b""
    assert ends == ["r"]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.integers(1, 40), max_size=12), st.data())
def test_a_log_gives_exactly_the_rest_from_any_event_it_keeps(
    chunks: list[int], data: st.DataObject
) -> None:
    log = RunLog(data.draw(st.integers(1, 2000)))
    count = 0
    for size in chunks:
        log.append(b"".join(event(number) for number in range(count, count + size)))
        count += size
    assert log.next == count
    number = data.draw(st.integers(log.first, count))
    assert log.since(number) == numbered(range(number, count))
    assert log.size == len(log.since(log.first))


def test_a_log_stays_within_its_bytes_and_keeps_the_last_event() -> None:
    log = RunLog(100)
    for number in range(1000):
        log.append(event(number))
        assert log.size <= 100
    log.append(b"data: %b\n\n" % (b"x" * 500))
    assert log.next - log.first == 1


def test_a_released_log_counts_no_more_whatever_is_appended_or_dropped() -> None:
    memory = RunMemory()
    log = RunLog(100, memory, "me", beside=5)
    log.append(event(0))
    assert memory.of("me") == memory.used == 5 + log.size
    log.release()
    for number in range(1, 100):
        log.append(event(number))
        assert memory.of("me") == memory.used == 0


async def test_a_reader_that_fell_behind_what_is_kept_is_told(generation: Generation) -> None:
    registry = RunRegistry(RunLimits(timeout=60, run_bytes=40, total_bytes=1 << 20))
    source = Source()
    run, _ = start(registry, generation, source())
    reader = run.follow(0, lost)
    source.say(0)
    assert await anext(reader) == numbered(range(1))
    source.say(*range(1, 100))
    source.end()
    while not run.log.ended:
        await run.log.grown()
    assert await anext(reader) == b"lost"


async def test_what_nobody_reads_is_made_to_fail(generation: Generation) -> None:
    registry = RunRegistry(RunLimits(timeout=0.01, run_bytes=1000, total_bytes=1000))

    async def wait_for_engine() -> AsyncGenerator[bytes, None]:
        try:
            await generation.advance()
        except QuireError as error:
            yield b"data: %b\n\n" % error.message.encode()

    run, ends = start(registry, generation, wait_for_engine())
    while not run.log.ended:
        await run.log.grown()
    assert b"No client read" in run.log.since(0)
    assert ends == ["r"]
    assert generation.choices[0].done


async def test_a_background_run_continues_without_a_reader(generation: Generation) -> None:
    registry = RunRegistry(RunLimits(timeout=0.01, run_bytes=1000, total_bytes=1000))
    source = Source()
    run = registry.start("r", "me", generation, source(), background=True, on_end=lambda: None)
    await asyncio.sleep(0.05)  # five times the timeout
    assert generation.choices[0].sequence.failure is None
    source.end()
    assert await read(run) == b""


async def test_it_goes_on_while_somebody_reads(generation: Generation) -> None:
    loop = asyncio.get_running_loop()
    registry = RunRegistry(RunLimits(timeout=0.02, run_bytes=1000, total_bytes=1000))
    source = Source()
    run, _ = start(registry, generation, source())
    reader = asyncio.create_task(read(run))
    passed = asyncio.Event()
    loop.call_later(0.1, passed.set)
    await passed.wait()
    assert generation.choices[0].sequence.failure is None
    source.say(0)
    source.end()
    assert await reader == numbered(range(1))


async def test_an_ended_run_is_forgotten_in_time(generation: Generation) -> None:
    registry = RunRegistry(RunLimits(timeout=0.01, run_bytes=1000, total_bytes=1000))
    source = Source()
    run, _ = start(registry, generation, source())
    source.end()
    reader = asyncio.create_task(read(run))
    await reader
    assert registry.find("r", "you") is None
    for _ in range(1000):
        if registry.find("r", "me") is None:
            break
        await asyncio.sleep(0.001)
    assert registry.find("r", "me") is None


async def test_where_keys_share_the_memory_none_fills_it(generation: Generation) -> None:
    registry = RunRegistry(RunLimits(timeout=60, run_bytes=1000, total_bytes=600))
    greedy, other = Caller("greedy", shares=True), Caller("other", shares=True)

    async def filled(name: str, caller: Caller, size: int) -> tuple[Run, Source]:
        source = Source()
        run = registry.start(name, caller.owner, generation, source(), on_end=lambda: None)
        while run.log.size < size:
            number = run.log.next
            source.say(number)
            while run.log.next == number:
                await run.log.grown()
        return run, source

    registry.check(greedy)
    first, first_source = await filled("g1", greedy, 200)
    registry.check(greedy)
    second, second_source = await filled("g2", greedy, 150)
    with pytest.raises(OverloadedError, match="share"):
        registry.check(greedy)  # it has more than half
    registry.check(other)
    ended, source = await filled("o1", other, 60)
    source.end()
    await read(ended)
    first_source.end()
    await read(first)
    registry.check(greedy)  # its own ended stream made room
    assert registry.find("g1", "greedy") is None
    third, third_source = await filled("g3", greedy, 40)
    third_source.end()
    await read(third)
    second_source.say(*range(100, 150))  # more than all may have together
    second_source.end()
    await read(second)
    # Of those that had ended the greedy one's went, though the other's is older.
    assert registry.find("o1", "other") is ended
    assert registry.find("g3", "greedy") is None or registry.find("g2", "greedy") is None


async def test_a_key_s_share_is_made_room_for_by_its_own_ended_runs_only(
    generation: Generation,
) -> None:
    registry = RunRegistry(RunLimits(timeout=60, run_bytes=1000, total_bytes=600))
    runs = {}
    for name, owner, count in (("other", "other", 10), ("first", "greedy", 25)):
        source = Source()
        run = runs[name] = registry.start(name, owner, generation, source(), on_end=lambda: None)
        source.say(*range(count))
        source.end()
        await read(run)
    registry.check(Caller("greedy", shares=True))  # it has more than its half
    assert registry.find("first", "greedy") is None
    assert registry.find("other", "other") is runs["other"]


async def test_one_run_keeps_no_more_than_all_may_have_together(generation: Generation) -> None:
    registry = RunRegistry(RunLimits(timeout=60, run_bytes=1000, total_bytes=100))
    source = Source()
    run, _ = start(registry, generation, source())
    source.say(*range(100))
    source.end()
    await read(run)
    assert run.log.size <= 100
    assert registry.find("r", "me") is run


async def test_full_memory_drops_ended_runs_and_then_refuses_new_ones(
    generation: Generation,
) -> None:
    registry = RunRegistry(RunLimits(timeout=60, run_bytes=100, total_bytes=120))

    def begin(name: str) -> tuple[Run, Source]:
        source = Source()
        return registry.start(name, "me", generation, source(), on_end=lambda: None), source

    async def fill(run: Run, source: Source, size: int) -> None:
        while run.log.size < size:
            number = run.log.next
            source.say(number)
            while run.log.next == number:
                await run.log.grown()

    ended, source = begin("ended")
    await fill(ended, source, 80)
    source.end()
    await read(ended)
    registry.check(ANYBODY)
    first, first_source = begin("first")
    await fill(first, first_source, 80)
    registry.check(ANYBODY)
    assert registry.find("ended", "me") is None
    second, second_source = begin("second")
    await fill(second, second_source, 80)
    with pytest.raises(OverloadedError):
        registry.check(ANYBODY)
    first_source.end()
    await read(first)
    registry.check(ANYBODY)
    assert registry.find("second", "me") is second
    registry.forget("second")
    assert registry._memory.used == 0
    second_source.end()
    await read(second)


def test_an_event_in_several_chunks_is_one_event() -> None:
    log = RunLog(1 << 20)
    for chunk in (b"data: 0", b"", b"\n\ndata: 1\n\n", b"da", b"ta: 2\n", b"\n"):
        log.append(chunk)
    log.append(b"data: 3\n\n")
    assert log.since(0).replace(b"id: ", b"").count(b"data: ") == 4
    assert log.next == 4


async def test_a_reader_that_does_not_read_holds_one_piece_which_is_counted(
    generation: Generation,
) -> None:
    registry = RunRegistry(RunLimits(timeout=60, run_bytes=4 << 20, total_bytes=8 << 20))
    source = Source()
    run, _ = start(registry, generation, source())
    source.say(*range(100_000))
    source.end()
    while not run.log.ended:
        await run.log.grown()
    kept = registry._memory.used
    readers = [run.follow(0, lost) for _ in range(MOST_READERS)]
    held = [await anext(reader) for reader in readers]
    assert max(map(len, held)) <= RUN_PIECE_BYTES
    assert registry._memory.used == kept + sum(map(len, held))
    with pytest.raises(OverloadedError, match="readers, the limit"):
        run.check_readers()
    await readers[0].aclose()
    run.check_readers()
    rest = b"".join([piece async for piece in readers[1]])
    assert held[1] + rest == numbered(range(100_000))
    for reader in readers:
        await reader.aclose()
    assert registry._memory.used == kept


async def test_what_a_run_s_subject_keeps_counts_as_long_as_the_run_can_be_asked_for(
    generation: Generation,
) -> None:
    registry = RunRegistry(RunLimits(timeout=60, run_bytes=100, total_bytes=120))
    source = Source()
    run = registry.start("r", "me", generation, source(), held=120, on_end=lambda: None)
    with pytest.raises(OverloadedError):
        registry.check(ANYBODY)
    source.say(0)
    source.end()
    while not run.log.ended:
        await run.log.grown()
    await registry.close()
    registry.check(ANYBODY)
    assert registry.find("r", "me") is None  # it gave way
