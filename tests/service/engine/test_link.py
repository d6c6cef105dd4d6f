"""The link spreads what an engine sends, on a real socket, and survives what an engine does."""

from __future__ import annotations

import asyncio
import socket
import time
from array import array
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
import pytest_asyncio
import structlog
import uvloop

from engine.inspected import WatchSteps
from engine.messages import (
    FRAME_HEADER,
    Abort,
    Admitted,
    Copy,
    Embed,
    EngineStats,
    Fatal,
    Finished,
    FinishReason,
    Generate,
    Heartbeat,
    Loading,
    PromptLogprobs,
    Ready,
    SamplingParams,
    StepOutputs,
    Submit,
    ToEngine,
    TokenLogprobs,
    Working,
    decode_to_engine,
    encode_frame,
)
from engine.queueing import QueueBounds
from service.engine.link import EngineLink, EngineState, LinkPhase
from service.engine.sequence import EngineSequence, SequenceState, Waker
from service.engine.submission import Submission
from service.errors import CutByShutdownError, EngineFailedError, EngineUnavailableError
from service.tenants.caller import ANYBODY, Caller

PARAMS = SamplingParams(max_tokens=8)
READY = Ready(
    model="m",
    architecture="a",
    dtype="float32",
    device="cpu",
    num_parameters=1,
    vocab_size=100,
    max_model_len=64,
    max_num_seqs=4,
    max_num_batched_tokens=64,
    block_size=16,
    num_kv_blocks=8,
    kv_cache_bytes=1,
    load_seconds=0.1,
)


def generation(submit: Submit) -> Generate:
    assert isinstance(submit.task, Generate)
    return submit.task


def stats(**values: int) -> EngineStats:
    zero = dict.fromkeys(
        (
            *("running", "waiting", "kv_blocks_free", "kv_blocks_cached", "kv_blocks_active"),
            *("prompt_tokens_computed", "prompt_tokens_cached", "tokens_recomputed"),
            *("tokens_generated", "preemptions", "steps"),
        ),
        0,
    )
    return EngineStats(time=1.0, waiting_reason=None, **{**zero, **values})


def step(tokens: dict[int, int], **fields: Any) -> StepOutputs:
    return StepOutputs(
        time=5.0,
        handles=array("q", tokens).tobytes(),
        token_ids=array("i", tokens.values()).tobytes(),
        stats=stats(),
        **fields,
    )


def finished(handle: int, output_tokens: int) -> Finished:
    return Finished(
        handle=handle,
        reason=FinishReason.STOP,
        prompt_tokens=3,
        cached_tokens=0,
        output_tokens=output_tokens,
        preemptions=0,
        arrival_time=0.0,
        first_scheduled_time=1.0,
        first_token_time=2.0,
        last_token_time=3.0,
        finished_time=3.0,
    )


class OtherEnd:
    """An engine's end of the socket, in the test's hands."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._connections: asyncio.Queue[tuple[asyncio.StreamReader, asyncio.StreamWriter]]
        self._connections = asyncio.Queue()

    async def listen(self) -> None:
        async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await self._connections.put((reader, writer))

        self._path.unlink(missing_ok=True)
        self.server = await asyncio.start_unix_server(accept, self._path)

    async def accept(self) -> None:
        self.reader, self.writer = await asyncio.wait_for(self._connections.get(), 5)

    def say(self, *messages: Any) -> None:
        self.writer.write(b"".join(encode_frame(message) for message in messages))

    async def hear(self) -> ToEngine:
        (size,) = FRAME_HEADER.unpack(await self.reader.readexactly(FRAME_HEADER.size))
        return decode_to_engine(await self.reader.readexactly(size))

    async def hang_up(self) -> None:
        self.server.close()
        self.writer.close()


KEY = Caller("0a" * 32, shares=True, may_hurry=False)


def submission(
    prompt: list[int],
    task: SamplingParams | Embed = PARAMS,
    caller: Caller = ANYBODY,
    **fields: Any,
) -> Submission:
    return Submission(
        request_id=fields.pop("request_id", "r"),
        prompt_token_ids=prompt,
        task=task if isinstance(task, Embed) else Generate(task),
        caller=caller,
        arrival_time=time.monotonic(),
        **fields,
    )


class Ends:
    """A link and the other end, connected and ready."""

    def __init__(self, path: Path, restart_timeout: float = 0.0) -> None:
        self.states: list[EngineState] = []
        self.steps: list[StepOutputs | Heartbeat] = []
        self.link = EngineLink(
            path,
            on_step=self.steps.append,
            on_state=self.states.append,
            restart_timeout=restart_timeout,
        )
        self.engine = OtherEnd(path)

    def submit(
        self,
        waker: Waker | None = None,
        params: SamplingParams = PARAMS,
        caller: Caller = ANYBODY,
        **fields: Any,
    ) -> EngineSequence:
        [sequence] = self.link.submit(
            submission([1, 2, 3], params, caller, **fields), waker or Waker()
        )
        return sequence

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(5):
            while not condition():
                await asyncio.sleep(0.005)

    async def open(self) -> None:
        await self.engine.listen()
        self.link.start()
        await self.engine.accept()
        self.engine.say(Loading("weights", 1, 2), READY)
        await self.until(lambda: self.link.state.phase is LinkPhase.READY)

    async def close(self) -> None:
        await self.link.close()
        await self.engine.hang_up()

    async def die(self) -> None:
        """The engine goes, and the link has noticed."""
        await self.engine.hang_up()
        await self.until(lambda: self.link.state.phase is LinkPhase.LOST)

    async def come_back(self) -> None:
        """Another engine comes, and the link has noticed."""
        await self.engine.listen()
        await self.engine.accept()
        self.engine.say(READY)
        await self.until(lambda: self.link.state.phase is LinkPhase.READY)

    async def hear_submit(self) -> Submit:
        heard = await asyncio.wait_for(self.engine.hear(), 5)
        assert isinstance(heard, Submit)
        return heard


@pytest_asyncio.fixture
async def ends(tmp_path: Path) -> AsyncIterator[Ends]:
    """Whose sequences wait for no other engine."""
    both = Ends(tmp_path / "engine.sock")
    await both.open()
    yield both
    await both.close()


@pytest_asyncio.fixture
async def patient(tmp_path: Path) -> AsyncIterator[Ends]:
    """Whose sequences wait for the next engine."""
    both = Ends(tmp_path / "engine.sock", restart_timeout=30.0)
    await both.open()
    yield both
    await both.close()


async def test_states_are_reported_in_order(ends: Ends) -> None:
    assert [state.phase for state in ends.states] == [LinkPhase.LOADING, LinkPhase.READY]
    assert ends.link.state.ready == READY


async def test_an_engine_inside_a_long_step_is_not_silent(ends: Ends) -> None:
    begun = ends.link.last_message_time
    ends.engine.say(Working(2.5))
    await ends.until(lambda: ends.link.step_seconds == 2.5)
    assert begun is not None
    assert ends.link.last_message_time is not None
    assert ends.link.last_message_time > begun
    assert ends.steps == []  # the step's end will be counted
    ends.engine.say(step({}))
    await ends.until(lambda: ends.link.step_seconds is None)


async def test_a_step_reaches_each_sequence_and_wakes_each_reader_once(ends: Ends) -> None:
    waker = Waker()
    first, second = ends.submit(waker), ends.submit(waker)
    other = ends.submit()
    ends.engine.say(
        step(
            {first.handle: 10, second.handle: 20, 999: 30},
            admitted=[Admitted(first.handle, 4.0, 2)],
            logprobs={1: TokenLogprobs(-0.5, 1)},
        )
    )
    await asyncio.wait_for(waker.wait(), 5)
    assert (first.generated, second.generated, other.generated) == ([10], [20], [])
    assert (first.cached_tokens, first.first_scheduled_time) == (2, 4.0)
    assert [entry.logprob for entry in second.logprobs] == [-0.5]
    assert ends.link.waiting_sequences == 2
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(waker.wait(), 0.05)


async def test_the_last_token_and_the_end_are_seen_together(ends: Ends) -> None:
    sequence = ends.submit()
    ends.engine.say(step({sequence.handle: 7}, finished=[finished(sequence.handle, 1)]))
    await asyncio.wait_for(sequence.waker.wait(), 5)
    assert sequence.generated == [7]
    assert sequence.finished is not None
    assert sequence.state is SequenceState.ENDED
    ends.link.abort([sequence])  # has ended: nothing is sent
    probe = ends.submit()
    assert isinstance(await ends.engine.hear(), Submit)
    heard = await ends.engine.hear()
    assert isinstance(heard, Submit)
    assert heard.handle == probe.handle


async def test_an_abort_is_sent_once_and_its_stragglers_are_ignored(ends: Ends) -> None:
    sequence = ends.submit()
    await ends.engine.hear()
    ends.link.abort([sequence])
    ends.link.abort([sequence])
    assert await ends.engine.hear() == Abort([sequence.handle])
    ends.engine.say(step({sequence.handle: 5}), Heartbeat(stats(running=3)))
    await ends.until(lambda: len(ends.steps) == 2)
    assert sequence.generated == []
    assert ends.link.stats == stats(running=3)
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(ends.engine.hear(), 0.05)


async def test_when_the_engine_goes_all_fail_and_a_new_one_is_found(ends: Ends) -> None:
    sequences = [ends.submit(), ends.submit()]
    await ends.die()
    for sequence in sequences:
        await asyncio.wait_for(sequence.waker.wait(), 5)
        assert sequence.failure
    with pytest.raises(ConnectionError):
        ends.submit()
    await ends.come_back()
    ends.submit()


@pytest.mark.parametrize(
    "last_words",
    [
        encode_frame(Fatal("no weights in /secret/path")),
        FRAME_HEADER.pack(2**31) + b"x",
        FRAME_HEADER.pack(3) + b"\xc1\xc1\xc1",
        b"\x01",
    ],
    ids=["a fatal error", "a frame too long", "no message", "half a header"],
)
async def test_an_engine_that_fails_or_babbles_loses_its_sequences(
    ends: Ends, last_words: bytes
) -> None:
    sequence = ends.submit()
    ends.engine.writer.write(last_words)
    await ends.engine.hang_up()
    await asyncio.wait_for(sequence.waker.wait(), 5)
    assert sequence.failure
    # The engine's own message is only for the log: any client may see the state.
    for told in (str(sequence.failure), ends.link.state.detail):
        assert "/secret/path" not in told
    assert ends.link.state.phase is LinkPhase.LOST


async def test_the_pace_of_the_queue_is_measured(ends: Ends) -> None:
    assert ends.link.predicted_wait(10) is None
    sequences = [ends.submit() for _ in range(10)]
    handles = [sequence.handle for sequence in sequences]
    ends.engine.say(step({}, queued=handles))
    now = time.monotonic()
    admitted = [Admitted(handle, now + 0.1 * at, 0) for at, handle in enumerate(handles)]
    ends.engine.say(step({}, admitted=admitted))
    await ends.until(lambda: ends.link.waiting_sequences == 0)
    assert 0 < (ends.link.predicted_wait(10) or 0) < 10


async def test_a_record_is_made_for_a_sequence_that_the_engine_did_not_end(ends: Ends) -> None:
    sequence = ends.submit()
    ends.engine.say(step({sequence.handle: 9}, admitted=[Admitted(sequence.handle, 4.5, 2)]))
    await asyncio.wait_for(sequence.waker.wait(), 5)
    record = sequence.record(1, now=9.0)
    assert (record.reason, record.output_tokens, record.cached_tokens) == (FinishReason.ABORT, 1, 2)
    assert (record.first_scheduled_time, record.first_token_time) == (4.5, 5.0)


async def test_a_message_that_cannot_be_taken_in_loses_the_sequences_but_not_the_link(
    tmp_path: Path,
) -> None:
    both = Ends(tmp_path / "engine.sock")
    broken = [True]

    def on_step(message: StepOutputs | Heartbeat) -> None:
        if broken.pop():
            raise KeyError("a fault of the observer")

    both.link = EngineLink(tmp_path / "engine.sock", on_step=on_step, on_state=both.states.append)
    await both.engine.listen()
    both.link.start()
    await both.engine.accept()
    both.engine.say(READY)
    await both.until(lambda: both.link.state.phase is LinkPhase.READY)
    sequence = both.submit()
    both.engine.say(step({}))
    await asyncio.wait_for(sequence.waker.wait(), 5)
    assert sequence.failure
    await both.engine.accept()
    both.engine.say(READY)
    await both.until(lambda: both.link.state.phase is LinkPhase.READY)
    await both.link.close()
    await both.engine.hang_up()


async def test_nothing_can_be_submitted_to_a_closed_link(ends: Ends) -> None:
    await ends.link.close()
    with pytest.raises(ConnectionError):
        ends.submit()


# --- from an engine that died to the next ---------------------------------------------------------


def admitted(sequence: EngineSequence, cached: int = 0) -> Admitted:
    return Admitted(sequence.handle, 4.0, cached)


async def test_sequences_continue_in_the_next_engine_where_they_were(patient: Ends) -> None:
    params = SamplingParams(max_tokens=8, logprobs=0, prompt_logprobs=0)
    running, waiting = patient.submit(params=params), patient.submit()
    known = [TokenLogprobs(-1.0, 1)] * 2
    patient.engine.say(
        step(
            {running.handle: 7},
            admitted=[admitted(running, cached=2)],
            logprobs={0: TokenLogprobs(-0.5, 1)},
            prompt_logprobs=[PromptLogprobs(running.handle, 0, known)],
        )
    )
    await asyncio.wait_for(running.waker.wait(), 5)
    patient.engine.say(step({running.handle: 8}))
    await asyncio.wait_for(running.waker.wait(), 5)
    await patient.die()
    assert patient.link.state.kept == {running.handle, waiting.handle}
    assert patient.link.waiting_sequences == 2
    await patient.come_back()
    first, second = await patient.hear_submit(), await patient.hear_submit()
    assert (first.handle, generation(first).output_token_ids) == (running.handle, [7, 8])
    assert generation(first).params == SamplingParams(
        max_tokens=8, logprobs=0
    )  # the prompt's logprobs have been sent
    assert second == waiting.message
    patient.engine.say(
        step({}, admitted=[Admitted(running.handle, 9.0, 0)]),
        step({running.handle: 9}, finished=[finished(running.handle, 3)]),
    )
    await asyncio.wait_for(running.waker.wait(), 5)
    assert running.generated == [7, 8, 9]
    record = running.record(3, now=20.0)
    assert (record.handovers, record.output_tokens, record.cached_tokens) == (1, 3, 2)
    assert (record.first_scheduled_time, record.first_token_time) == (4.0, 5.0)
    assert running.prompt_logprobs == known
    assert patient.link.waiting_sequences == 1


async def test_sequences_that_leave_or_arrive_while_there_is_no_engine(patient: Ends) -> None:
    gone, stays = patient.submit(), patient.submit()
    await patient.die()
    patient.link.abort([gone])
    assert patient.link.expects_engine
    comes = patient.submit()
    await patient.come_back()
    assert not patient.link.expects_engine
    assert (await patient.hear_submit()).handle == stays.handle
    patient.engine.say(step({stays.handle: 7}, admitted=[admitted(stays)]))
    assert (await patient.hear_submit()).handle == comes.handle
    assert (stays.handovers, comes.handovers) == (1, 0)
    patient.link.abort([stays])
    assert await patient.engine.hear() == Abort([stays.handle])


async def test_running_requests_are_named_in_the_log(patient: Ends) -> None:
    running, _waiting = patient.submit(), patient.submit()
    patient.engine.say(step({}, admitted=[admitted(running)]))
    await patient.until(lambda: patient.link.waiting_sequences == 1)
    with structlog.testing.capture_logs() as lines:
        await patient.die()
    (told,) = [line for line in lines if line["event"] == "requests running when the engine died"]
    assert (told["count"], told["request_ids"]) == (1, "r")


async def test_a_suspect_runs_along_with_trusted_sequences_and_others_wait(patient: Ends) -> None:
    trusted, suspect, waiting = patient.submit(), patient.submit(), patient.submit()
    patient.engine.say(step({trusted.handle: 7}, admitted=[admitted(trusted), admitted(suspect)]))
    await asyncio.wait_for(trusted.waker.wait(), 5)
    await patient.die()
    await patient.come_back()
    arrives = patient.submit()
    assert (await patient.hear_submit()).handle == trusted.handle
    with pytest.raises(TimeoutError):  # which must first get a token
        await asyncio.wait_for(patient.engine.reader.readexactly(1), 0.05)
    patient.engine.say(step({trusted.handle: 8}, admitted=[admitted(trusted)]))
    assert (await patient.hear_submit()).handle == suspect.handle
    patient.engine.say(step({suspect.handle: 9}, admitted=[admitted(suspect)]))
    rest = [await patient.hear_submit(), await patient.hear_submit()]
    assert [submit.handle for submit in rest] == [waiting.handle, arrives.handle]
    later = patient.submit()  # all is as ever
    assert (await patient.hear_submit()).handle == later.handle


@pytest.mark.parametrize("who", ["trusted", "suspect"])
async def test_a_sequence_that_leaves_during_a_trial_delays_no_other(
    patient: Ends, who: str
) -> None:
    trusted, suspect, waiting = patient.submit(), patient.submit(), patient.submit()
    patient.engine.say(step({trusted.handle: 7}, admitted=[admitted(trusted), admitted(suspect)]))
    await asyncio.wait_for(trusted.waker.wait(), 5)
    await patient.die()
    await patient.come_back()
    assert (await patient.hear_submit()).handle == trusted.handle
    if who == "suspect":
        patient.engine.say(step({trusted.handle: 8}, admitted=[admitted(trusted)]))
        assert (await patient.hear_submit()).handle == suspect.handle
    patient.link.abort([trusted if who == "trusted" else suspect])
    assert isinstance(await patient.engine.hear(), Abort)
    next_one = suspect if who == "trusted" else waiting
    assert (await patient.hear_submit()).handle == next_one.handle


async def test_a_death_counts_only_against_sequences_that_the_engine_received(
    patient: Ends,
) -> None:
    prompt = [1] * 200_000  # together more than the socket buffers while it is not read
    sequences = [
        sequence for _ in range(20) for sequence in patient.link.submit(submission(prompt), Waker())
    ]
    await patient.die()
    await patient.come_back()
    await patient.die()
    await patient.come_back()
    patient.engine.say(Heartbeat(stats()))  # without which it may be the engine itself that fails
    assert (await patient.hear_submit()).prompt_token_ids == prompt
    assert sequences[0].deaths == 2
    assert sequences[-1].deaths < 2


async def test_an_engine_that_is_stopped_leaves_its_sequences_to_the_next(
    patient: Ends,
) -> None:
    sequence, aborted = patient.submit(), patient.submit()
    patient.link.abort([aborted])
    record = msgspec.structs.replace(finished(sequence.handle, 1), reason=FinishReason.ABORT)
    patient.engine.say(
        step({sequence.handle: 7}, admitted=[admitted(sequence)]),
        step({}, finished=[record, msgspec.structs.replace(record, handle=aborted.handle)]),
    )
    await patient.until(lambda: len(patient.steps) == 2)
    await patient.die()
    assert (sequence.finished, sequence.failure) == (None, None)
    await patient.come_back()
    heard = await patient.hear_submit()
    assert (heard.handle, generation(heard).output_token_ids) == (sequence.handle, [7])
    assert sequence.is_open
    assert not aborted.is_open


def test_the_link_is_the_first_to_notice_a_broken_socket(tmp_path: Path) -> None:
    """On the worker's own loop, which refuses to write to a transport that is closed."""

    async def check() -> None:
        both = Ends(tmp_path / "engine.sock", restart_timeout=30.0)
        server = socket.socket(socket.AF_UNIX)
        server.bind(str(tmp_path / "engine.sock"))
        server.listen()
        both.link.start()
        there, _ = await asyncio.to_thread(server.accept)
        there.sendall(encode_frame(READY))
        await both.until(lambda: both.link.state.phase is LinkPhase.READY)
        gone = both.submit()
        await asyncio.sleep(0.05)
        there.close()
        first = both.submit()
        await asyncio.sleep(0)
        second = both.submit()
        assert both.link.state.phase is LinkPhase.READY  # else this tests nothing
        both.link.abort([gone])
        await both.until(lambda: both.link.state.phase is LinkPhase.LOST)
        assert both.link.state.kept == {first.handle, second.handle}
        server.close()
        await both.link.close()

    uvloop.run(check())


async def test_what_is_between_two_of_its_sequences_waits_for_the_next_engine_too(
    patient: Ends,
) -> None:
    """A beam search, or a list of texts to embed."""
    first = patient.submit()
    patient.engine.say(step({first.handle: 7}, finished=[finished(first.handle, 1)]))
    await patient.die()
    assert first.finished
    second = patient.submit()
    await patient.come_back()
    assert (await patient.hear_submit()).handle == second.handle


async def test_an_engine_that_dies_before_it_is_ready_blames_no_request(patient: Ends) -> None:
    sequence = patient.submit()
    await patient.die()
    for _ in range(4):
        await patient.engine.listen()
        await patient.engine.accept()
        patient.engine.say(Loading("weights", 1, 2))
        await patient.until(lambda: patient.link.state.phase is LinkPhase.LOADING)
        await patient.die()
    await patient.come_back()
    assert (await patient.hear_submit()).handle == sequence.handle
    assert not sequence.failure


async def test_no_request_waits_if_loading_takes_longer_than_the_restart_timeout(
    tmp_path: Path,
) -> None:
    both = Ends(tmp_path / "engine.sock", restart_timeout=READY.load_seconds / 2)
    await both.open()
    sequence = both.submit()
    await both.die()
    assert sequence.failure
    assert "was not replaced" not in sequence.failure.message
    await both.close()


async def failure(sequence: EngineSequence) -> None:
    """Wait until a sequence has failed, which is not the first thing that wakes its reader."""
    while sequence.failure is None:
        await sequence.waker.wait()


async def test_no_sequence_waits_forever_for_the_next_engine(tmp_path: Path) -> None:
    both = Ends(tmp_path / "engine.sock", restart_timeout=0.25)
    await both.open()
    sequence = both.submit()
    await both.die()
    await asyncio.wait_for(failure(sequence), 5)
    assert isinstance(sequence.failure, EngineFailedError)
    assert "was not replaced within 0.25 s" in sequence.failure.message
    with pytest.raises(ConnectionError):
        both.submit()
    await both.close()


async def test_an_engine_that_is_ready_and_dies_idle_does_not_prolong_the_wait(
    tmp_path: Path,
) -> None:
    both = Ends(tmp_path / "engine.sock", restart_timeout=0.3)
    await both.open()
    sequence = both.submit()
    async with asyncio.timeout(10):
        while sequence.failure is None:
            await both.die()
            if sequence.failure is None:
                await both.come_back()
    assert "was not replaced within 0.3 s" in sequence.failure.message
    await both.close()


async def test_the_model_is_known_while_its_engine_is_gone(patient: Ends) -> None:
    """What arrives then is prepared for it."""
    await patient.die()
    assert patient.link.state.ready == READY


async def test_a_sequence_that_arrived_without_an_engine_may_be_retried(tmp_path: Path) -> None:
    both = Ends(tmp_path / "engine.sock", restart_timeout=0.25)
    await both.open()
    await both.die()
    sequence = both.submit()
    await asyncio.wait_for(sequence.waker.wait(), 5)
    assert isinstance(sequence.failure, EngineUnavailableError)
    await both.close()


async def test_at_shutdown_sequences_wait_for_a_loading_engine_as_long_as_announced(
    tmp_path: Path,
) -> None:
    both = Ends(tmp_path / "engine.sock", restart_timeout=0.5)
    await both.open()
    sequence = both.submit()
    await both.die()
    await both.engine.listen()
    await both.engine.accept()
    both.engine.say(Loading("weights", 1, 2))
    await both.until(lambda: both.link.state.phase is LinkPhase.LOADING)
    both.link.expect_no_restart()
    await asyncio.wait_for(failure(sequence), 5)
    assert sequence.failure
    assert "within 0.5 s" in sequence.failure.message
    await both.close()


@pytest.mark.parametrize("when", ["before", "after"])
async def test_at_shutdown_no_sequence_waits_for_an_engine_that_will_not_start(
    patient: Ends, when: str
) -> None:
    sequence = patient.submit()
    if when == "before":
        patient.link.expect_no_restart()
        assert not sequence.failure  # its engine is there
    await patient.die()
    if when == "after":
        patient.link.expect_no_restart()
    expected = EngineFailedError if when == "before" else CutByShutdownError
    assert isinstance(sequence.failure, expected)


async def test_a_request_for_a_vector_is_sent_again(patient: Ends) -> None:
    asked = submission([1, 2], Embed(dimensions=8), KEY, cache_salt="mine")
    [sequence] = patient.link.submit(asked, Waker())
    await patient.die()
    await patient.come_back()
    heard = await patient.engine.hear()
    assert heard == sequence.message
    assert isinstance(heard, Submit)
    assert heard.task == Embed(dimensions=8)
    assert heard.cache_salt == KEY.cache_salt("mine")


async def test_an_observer_that_fails_at_a_loss_does_not_end_the_link(tmp_path: Path) -> None:
    both = Ends(tmp_path / "engine.sock", restart_timeout=30.0)

    def fail(state: EngineState) -> None:
        raise KeyError(state.phase)

    both.link = EngineLink(
        tmp_path / "engine.sock", on_step=both.steps.append, on_state=fail, restart_timeout=30.0
    )
    await both.open()
    sequence = both.submit()
    await both.die()
    await both.come_back()
    assert (await both.hear_submit()).handle == sequence.handle
    await both.close()


async def test_a_fault_in_the_blame_fails_the_sequences_but_does_not_end_the_link(
    patient: Ends, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*arguments: object, **options: object) -> bool:
        raise TypeError("a fault of the rules")

    sequence = patient.submit()
    await patient.hear_submit()
    with monkeypatch.context() as patch:
        patch.setattr(patient.link._handover.suspects, "engine_died", fail)
        await patient.die()
        await patient.until(lambda: sequence.failure is not None)
    await patient.come_back()
    other = patient.submit()
    assert (await patient.hear_submit()).handle == other.handle


async def test_a_keys_requests_carry_its_salt_and_priority_to_every_engine(patient: Ends) -> None:
    patient.submit(caller=KEY, cache_salt="mine", priority=-5)
    first = await patient.hear_submit()
    assert (first.cache_salt, first.priority) == (KEY.cache_salt("mine"), 0)
    await patient.die()
    await patient.come_back()
    again = await patient.hear_submit()
    assert (again.cache_salt, again.priority) == (first.cache_salt, 0)
    assert patient.link.waiting_sequences == 1


async def test_the_bounds_of_the_queue_go_with_each_and_a_place_is_kept(patient: Ends) -> None:
    patient.link.bounds = QueueBounds(3, 4000)
    placed = patient.submit()
    told = await patient.hear_submit()
    assert (told.bounds, told.keeps_place) == (QueueBounds(3, 4000), False)
    assert placed.is_unanswered
    patient.engine.say(msgspec.structs.replace(step({}), queued=[placed.handle]))
    await asyncio.wait_for(placed.waker.wait(), 5)
    assert not placed.is_unanswered
    await patient.die()
    await patient.come_back()
    assert (await patient.hear_submit()).keeps_place


async def test_choices_are_sent_in_one_message_and_handed_over_separately(
    patient: Ends,
) -> None:
    first, second = patient.link.submit(submission([1, 2, 3], seeds=[5, 6]), Waker())
    told = await patient.hear_submit()
    assert (told.handle, generation(told).params.seed) == (first.handle, 5)
    assert told.copies == [Copy(second.handle, 6)]
    patient.engine.say(
        step({}, admitted=[admitted(first), admitted(second)]),
        step({first.handle: 1, second.handle: 1}),
    )
    await asyncio.wait_for(second.waker.wait(), 5)
    await patient.die()
    await patient.come_back()
    for sequence, seed in ((first, 5), (second, 6)):
        again = await patient.hear_submit()
        assert (again.handle, generation(again).params.seed, again.copies) == (
            sequence.handle,
            seed,
            [],
        )


async def test_prompt_logprobs_come_in_pieces_of_which_the_next_engine_repeats_some(
    patient: Ends,
) -> None:
    params = SamplingParams(max_tokens=8, prompt_logprobs=0)
    sequence = patient.submit(params=params)
    length = sequence.prompt_tokens - 1
    known = [TokenLogprobs(-float(place), 1) for place in range(length)]
    await patient.hear_submit()
    patient.engine.say(
        step(
            {},
            admitted=[admitted(sequence)],
            prompt_logprobs=[PromptLogprobs(sequence.handle, 0, known[:1])],
        ),
        step({sequence.handle: 1}),
    )
    await asyncio.wait_for(sequence.waker.wait(), 5)
    await patient.die()
    await patient.come_back()
    again = await patient.hear_submit()
    assert generation(again).params.prompt_logprobs == (0 if length > 1 else None)
    patient.engine.say(
        step(
            {sequence.handle: 2},
            prompt_logprobs=[PromptLogprobs(sequence.handle, 0, known)],
        )
    )
    await asyncio.wait_for(sequence.waker.wait(), 5)
    assert sequence.prompt_logprobs == known


async def test_each_engine_is_told_which_steps_to_report(patient: Ends) -> None:
    link = patient.link
    link.inspections.watch(every_step=False)
    assert await patient.engine.hear() == WatchSteps(every_step=False)
    await patient.die()
    await patient.come_back()
    assert await patient.engine.hear() == WatchSteps(every_step=False)
    link.inspections.watch(every_step=False)  # nothing new
    link.inspections.watch(every_step=True)
    assert await patient.engine.hear() == WatchSteps(every_step=True)
