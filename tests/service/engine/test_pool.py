"""A worker with several engines, on real sockets: the engines' ends are the test's."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
import pytest_asyncio

from engine.block_names import block_names
from engine.messages import Abort, Admitted, Finished, Heartbeat, StepOutputs, StepPhase
from engine.prefix_table import PrefixTableWriter, prefix_table_path
from engine.queueing import EngineLoad, QueueBounds, ServiceClass
from service.engine.link import EngineLink, EngineState, LinkPhase
from service.engine.pool import EnginePool, connect_engines
from service.engine.sequence import EngineSequence, SequenceState, Waker
from service.engine.waits import waits
from service.errors import CrashingRequestError, EngineFailedError
from tests.service.engine.test_link import (
    READY,
    OtherEnd,
    admitted,
    finished,
    generation,
    stats,
    step,
    submission,
)

BLOCK = READY.block_size


class Two:
    """A pool of engines that are connected and ready."""

    def __init__(self, folder: Path, restart_timeout: float = 30.0, count: int = 2) -> None:
        paths = [folder / f"engine-{number}.sock" for number in range(count)]
        self.states: list[tuple[int, EngineState]] = []
        self.heard: list[int] = []
        pool = connect_engines(
            paths,
            on_step=self._on_step,
            on_state=self._on_state,
            restart_timeout=restart_timeout,
            silence_timeout=5.0,
        )
        assert isinstance(pool, EnginePool)
        self.pool = pool
        self.engines = [OtherEnd(path) for path in paths]

    def _on_step(self, message: StepOutputs | Heartbeat, engine: int = 0) -> None:
        self.heard.append(engine)

    def _on_state(self, state: EngineState, engine: int = 0) -> None:
        self.states.append((engine, state))

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(5):
            while not condition():
                await asyncio.sleep(0.005)

    async def open(self) -> None:
        for engine in self.engines:
            await engine.listen()
        self.pool.start()
        for number in range(len(self.engines)):
            await self.engines[number].accept()
            await self.ready(number)

    async def ready(self, number: int, **fields: Any) -> None:
        self.engines[number].say(msgspec.structs.replace(READY, **fields))
        await self.until(lambda: self.pool.links[number].state.phase is LinkPhase.READY)

    async def die(self, number: int) -> None:
        await self.engines[number].hang_up()
        await self.until(lambda: self.pool.links[number].state.phase is LinkPhase.LOST)

    async def come_back(self, number: int) -> None:
        await self.engines[number].listen()
        await self.engines[number].accept()
        await self.ready(number)

    def submit(self, prompt: list[int] | None = None, **fields: Any) -> EngineSequence:
        return self.submit_all(prompt, **fields)[0]

    def submit_all(
        self, prompt: list[int] | None = None, beside: EngineSequence | None = None, **fields: Any
    ) -> list[EngineSequence]:
        return self.pool.submit(submission(prompt or [1, 2, 3], **fields), Waker(), beside=beside)

    async def hear(self, number: int) -> Any:
        return await asyncio.wait_for(self.engines[number].hear(), 5)

    async def hears_nothing(self, number: int) -> None:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(self.engines[number].reader.readexactly(1), 0.1)

    async def run(self, *sequences: EngineSequence, waited: bool = False) -> None:
        """The engines have admitted these."""
        for one in sequences:
            await self.hear(one.engine)
            at = Admitted(one.handle, time.monotonic(), 0)
            self.engines[one.engine].say(step({}, queued=[one.handle] if waited else []))
            self.engines[one.engine].say(step({}, admitted=[at]))
        await self.until(lambda: all(one.state is SequenceState.RUNNING for one in sequences))

    async def give(self, sequence: EngineSequence, token: int) -> None:
        """Its engine generates a token."""
        count = len(sequence.generated)
        self.engines[sequence.engine].say(
            step({sequence.handle: token}, phase=StepPhase.DECODE, step_seconds=0.01)
        )
        await self.until(lambda: len(sequence.generated) > count)


@contextlib.asynccontextmanager
async def opened(folder: Path, **fields: Any) -> AsyncIterator[Two]:
    two = Two(folder, **fields)
    await two.open()
    try:
        yield two
    finally:
        await two.pool.close()
        for engine in two.engines:
            await engine.hang_up()


@pytest_asyncio.fixture
async def two(tmp_path: Path) -> AsyncIterator[Two]:
    async with opened(tmp_path) as both:
        yield both


def test_a_single_engine_has_no_pool(tmp_path: Path) -> None:
    def ignore(_: object, engine: int = 0) -> None:
        pass

    link = connect_engines([tmp_path / "engine.sock"], on_step=ignore, on_state=ignore)
    assert type(link) is EngineLink
    assert list(link.links) == [link]


async def test_the_server_is_ready_as_soon_as_one_engine_is(tmp_path: Path) -> None:
    two = Two(tmp_path)
    for engine in two.engines:
        await engine.listen()
    two.pool.start()
    for engine in two.engines:
        await engine.accept()
    with pytest.raises(ConnectionError):
        two.submit()
    await two.ready(1)
    assert (two.pool.state.phase, two.pool.state.detail) == (LinkPhase.READY, "1 of 2 ready")
    assert two.pool.state.ready == READY
    assert two.submit().engine == 1
    await two.ready(0)
    assert two.pool.state.detail == "ready"
    ready = two.pool.state.ready
    assert ready is not None
    assert (ready.max_num_seqs, ready.num_kv_blocks) == (
        2 * READY.max_num_seqs,
        2 * READY.num_kv_blocks,
    )
    assert ready.max_model_len == READY.max_model_len
    await two.die(1)
    assert two.pool.state.detail == "1 of 2 ready"
    assert not two.pool.expects_engine
    await two.die(0)
    assert two.pool.state.phase is LinkPhase.LOST
    assert two.pool.expects_engine
    await two.pool.close()


# --- which engine -----------------------------------------------------------------------------


async def test_requests_are_spread_and_a_request_s_choices_stay_together(two: Two) -> None:
    choices = two.submit_all(seeds=[1, 2, 3, 4])
    assert len({one.engine for one in choices}) == 1
    # As many tokens as the four choices.
    others = [two.submit() for _ in range(4)]
    assert {one.engine for one in others} == {1 - choices[0].engine}
    assert len((await two.hear(choices[0].engine)).copies) == 3
    assert len({one.handle for one in choices + others}) == 8


async def test_the_load_of_all_workers_counts_and_what_was_sent_since(two: Two) -> None:
    now = time.monotonic()
    two.engines[0].say(Heartbeat(msgspec.structs.replace(stats(), load=EngineLoad(100, now))))
    await two.until(lambda: two.heard == [0])
    prompt = [1] * 60
    assert [two.submit(prompt).engine for _ in range(4)] == [1, 1, 0, 1]
    # The second engine has them in its queue, and has done most of them.
    later = time.monotonic() + 1.0
    two.engines[1].say(Heartbeat(msgspec.structs.replace(stats(), load=EngineLoad(10, later))))
    await two.until(lambda: two.heard == [0, 1])
    assert [two.submit(prompt).engine for _ in range(2)] == [1, 1]


async def test_a_request_goes_where_its_prefix_is_unless_that_engine_is_too_busy(
    tmp_path: Path,
) -> None:
    tables = [
        PrefixTableWriter(prefix_table_path(tmp_path / f"engine-{number}.sock"), 64, BLOCK)
        for number in range(2)
    ]
    async with opened(tmp_path) as two:
        prompt = list(range(64))
        for name in block_names("", prompt[:48], BLOCK):
            tables[1].add(name)
        # It is worth 96 tokens; each of these has 64, of which 48 are known.
        assert [two.submit(prompt).engine for _ in range(4)] == [1, 1, 0, 1]
        assert two.submit(prompt, cache_salt="other").engine == 0


async def test_another_engine_s_prefix_table_is_read_after_a_restart(tmp_path: Path) -> None:
    async with opened(tmp_path) as two:
        table = PrefixTableWriter(prefix_table_path(tmp_path / "engine-1.sock"), 64, BLOCK)
        prompt = list(range(64))
        for name in block_names("", prompt, BLOCK):
            table.add(name)
        await two.die(1)
        await two.come_back(1)
        assert two.submit(prompt).engine == 1


async def test_a_search_stays_in_the_engine_where_it_began(two: Two) -> None:
    first = two.submit([1] * 50)
    assert [two.submit([1] * 50, beside=first).engine for _ in range(3)] == [first.engine] * 3
    await two.die(first.engine)
    assert two.submit(beside=first).engine == 1 - first.engine


async def test_an_engine_that_is_silent_gets_no_request_while_another_speaks(two: Two) -> None:
    two.pool.links[0].last_message_time = time.monotonic() - 10.0
    assert {two.submit().engine for _ in range(4)} == {1}
    two.pool.links[1].last_message_time = time.monotonic() - 10.0
    assert {two.submit().engine for _ in range(6)} == {0, 1}


async def test_an_engine_that_differs_is_not_used(tmp_path: Path) -> None:
    two = Two(tmp_path)
    for engine in two.engines:
        await engine.listen()
    two.pool.start()
    for engine in two.engines:
        await engine.accept()
    await two.ready(0)
    two.engines[1].say(msgspec.structs.replace(READY, max_model_len=32))
    await two.until(lambda: two.pool.links[1].state.phase is LinkPhase.LOST)
    assert "engine 1 has max_model_len 32 and engine 0 64" in two.pool.links[1].state.detail
    two.engines[1].say(Heartbeat(stats()))
    assert {two.submit().engine for _ in range(4)} == {0}
    assert two.heard == []
    await two.engines[1].hang_up()
    await two.come_back(1)  # one that is like the first
    assert {two.submit().engine for _ in range(4)} == {1}
    await two.pool.close()


# --- when one dies ----------------------------------------------------------------------------


async def test_streams_of_a_dead_engine_continue_in_the_other_at_once(two: Two) -> None:
    stream, other = two.submit(), two.submit()
    await two.run(stream, other)
    dead = stream.engine
    await two.give(stream, 7)
    await two.give(other, 20)
    queued = two.submit(beside=stream)
    await two.die(dead)
    assert (stream.engine, queued.engine) == (1 - dead, 1 - dead)
    resumed, later = await two.hear(1 - dead), await two.hear(1 - dead)
    assert (resumed.handle, generation(resumed).output_token_ids) == (stream.handle, [7])
    assert (later.handle, generation(later).output_token_ids) == (queued.handle, [])
    assert two.pool.waiting_sequences == 2
    two.engines[1 - dead].say(
        step({}, admitted=[admitted(stream)]),
        step({stream.handle: 8, other.handle: 21}, finished=[finished(stream.handle, 1)]),
    )
    await two.until(lambda: stream.state is SequenceState.ENDED)
    assert (stream.generated, other.generated) == ([7, 8], [20, 21])
    assert stream.handovers == 1
    assert isinstance(stream.finished, Finished)
    assert other.handovers == 0
    assert two.pool.waiting_sequences == 1  # ``queued``
    two.pool.abort([queued])
    assert await two.hear(1 - dead) == Abort([queued.handle])
    assert len(two.pool.open_sequences) == 1


async def test_what_is_kept_spans_all_engines(two: Two) -> None:
    first, second = two.submit(), two.submit()
    await two.run(first, second)
    await two.give(first, 1)
    await two.give(second, 1)
    await two.die(first.engine)
    lost = [state for _, state in two.states if state.phase is LinkPhase.LOST]
    assert [state.kept for state in lost] == [{first.handle, second.handle}]


async def test_suspects_wait_for_the_next_engine_in_place_of_the_dead_one(two: Two) -> None:
    suspect = two.submit()
    stream = two.submit(beside=suspect)
    await two.run(suspect, stream)
    await two.give(stream, 7)
    dead = suspect.engine
    await two.die(dead)
    assert (suspect.engine, suspect.state) == (dead, SequenceState.UNSENT)
    assert (await two.hear(1 - dead)).handle == stream.handle
    await two.hears_nothing(1 - dead)
    await two.come_back(dead)
    assert (await two.hear(dead)).handle == suspect.handle
    # During the trial new requests go to the engine that runs others.
    assert {two.submit().engine for _ in range(4)} == {1 - dead}
    await two.hears_nothing(dead)
    two.engines[dead].say(step({}, admitted=[admitted(suspect)]))
    await two.give(suspect, 9)
    await two.until(lambda: two.pool.links[dead].accepts)
    assert dead in {two.submit().engine for _ in range(4)}


async def test_a_request_that_kills_dies_alone_and_is_refused_by_all_engines(two: Two) -> None:
    poison = two.submit([6, 6, 6])
    stream = two.submit(beside=poison)
    await two.run(poison, stream)
    await two.give(stream, 1)
    dead = poison.engine
    for _ in range(2):
        await two.die(dead)
        await two.come_back(dead)
        two.engines[dead].say(Heartbeat(stats()))
        assert (await two.hear(dead)).handle == poison.handle
        two.engines[dead].say(step({}, admitted=[admitted(poison)]))
        await two.until(lambda: poison.state is SequenceState.RUNNING)
    await two.die(dead)
    assert isinstance(poison.failure, CrashingRequestError)
    assert stream.engine == 1 - dead
    assert stream.deaths == 1
    with pytest.raises(CrashingRequestError):
        two.submit([6, 6, 6], beside=stream)
    two.submit([6, 6, 7], beside=stream)


async def test_when_all_are_dead_the_first_to_come_back_continues_everything(two: Two) -> None:
    sequences = [two.submit() for _ in range(4)]
    assert {one.engine for one in sequences} == {0, 1}
    await two.run(*sequences)
    for one in sequences:
        await two.give(one, 5)
    await two.die(0)
    for one in sequences[:2]:
        assert one.engine == 1
    await two.die(1)
    arrives = two.submit()
    await two.come_back(0)
    heard = {(await two.hear(0)).handle for _ in range(5)}
    assert heard == {one.handle for one in [*sequences, arrives]}
    assert {one.engine for one in [*sequences, arrives]} == {0}


async def test_engines_that_are_not_replaced_leave_their_streams_to_the_last_one(
    tmp_path: Path,
) -> None:
    async with opened(tmp_path, restart_timeout=0.0) as two:
        stream = two.submit()
        suspect = two.submit(beside=stream)
        await two.run(stream, suspect)
        await two.give(stream, 5)
        await two.die(stream.engine)
        assert isinstance(suspect.failure, EngineFailedError)
        assert stream.is_open
        assert (await two.hear(stream.engine)).handle == stream.handle
        await two.die(stream.engine)
        assert isinstance(stream.failure, EngineFailedError)
        with pytest.raises(ConnectionError):
            two.submit()


async def test_streams_wait_while_the_only_other_engine_holds_a_trial(tmp_path: Path) -> None:
    async with opened(tmp_path) as two:
        suspect = two.submit()
        stream = two.submit()
        trial, live = suspect.engine, stream.engine
        assert trial != live
        await two.run(suspect, stream)
        await two.give(stream, 5)
        await two.die(trial)
        await two.come_back(trial)
        assert (await two.hear(trial)).handle == suspect.handle
        await two.die(live)
        await two.hears_nothing(trial)
        two.engines[trial].say(step({}, admitted=[admitted(suspect)]))
        await two.give(suspect, 9)
        assert (await two.hear(trial)).handle == stream.handle
        assert stream.engine == trial


async def test_streams_stay_where_they_wait_if_the_engine_that_became_free_has_died(
    two: Two,
) -> None:
    sequence = two.submit()
    await two.run(sequence)
    await two.give(sequence, 7)
    other = 1 - sequence.engine
    await two.die(other)
    await two.die(sequence.engine)
    two.pool.free(other)  # as if its end had not been noticed yet
    assert sequence in two.pool.links[1 - other].open_sequences
    await two.come_back(other)
    assert (await two.hear(other)).handle == sequence.handle


async def test_closing_ends_every_sequence(two: Two) -> None:
    sequences = [two.submit() for _ in range(4)]
    await two.pool.close()
    assert all(one.failure is not None for one in sequences)


# --- all as one -------------------------------------------------------------------------------


async def test_figures_are_sums(two: Two) -> None:
    assert two.pool.stats is None
    two.engines[0].say(Heartbeat(stats(running=2, tokens_generated=10, kv_blocks_free=5)))
    two.engines[1].say(Heartbeat(stats(running=1, tokens_generated=4, waiting=3)))
    await two.until(lambda: sorted(two.heard) == [0, 1])
    total = two.pool.stats
    assert total is not None
    assert (total.running, total.waiting, total.tokens_generated) == (3, 3, 14)
    assert total.kv_blocks_free == 5
    await two.die(1)
    assert two.pool.stats == stats(running=2, tokens_generated=10, kv_blocks_free=5)


async def test_each_engine_has_its_part_of_the_queue(two: Two) -> None:
    assert two.pool.bounds is None
    two.pool.bounds = QueueBounds(5, 1000)
    assert two.pool.bounds == QueueBounds(5, 1000)
    assert [link.bounds for link in two.pool.links] == [QueueBounds(3, 500)] * 2


async def test_waiting_sequences_are_counted_over_all_engines(two: Two) -> None:
    sequences = [two.submit() for _ in range(4)]
    assert two.pool.waiting_sequences == 4
    assert two.pool.predicted_wait(3) is None
    await two.run(*sequences, waited=True)
    assert two.pool.waiting_sequences == 0
    wait = two.pool.predicted_wait(8)
    assert wait is not None
    assert wait > 0
    now = time.monotonic()
    assert waits(two.pool.open_sequences, now)[ServiceClass.STANDARD] == (0, 0.0)
    assert two.pool.open_sequences.longest_gap(now) == 0.0
    assert set(two.pool.open_sequences) == set(sequences)
