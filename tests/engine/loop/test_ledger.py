"""Which sequences are in an engine and what their connections receive, without scheduler or
runner."""

from __future__ import annotations

import struct

import msgspec
import pytest

from engine.loop.errors import ProtocolError
from engine.loop.ledger import QUIET_SECONDS, Entry, Ledger
from engine.loop.outbox import StepFigures
from engine.messages import EngineStats, FinishReason, SamplingParams, StepOutputs, TokenLogprobs
from engine.step.sequence import Sequence
from engine.step.step import PooledVector, SampledToken

ALICE, BOB = 1, 2
STATS = EngineStats(
    time=1.0,
    running=0,
    waiting=0,
    waiting_reason=None,
    kv_blocks_free=0,
    kv_blocks_cached=0,
    kv_blocks_active=0,
    prompt_tokens_computed=0,
    prompt_tokens_cached=0,
    tokens_recomputed=0,
    tokens_generated=0,
    preemptions=0,
    steps=0,
)


@pytest.fixture
def ledger() -> Ledger:
    ledger = Ledger(lambda: 9.0)
    ledger.open(ALICE)
    ledger.open(BOB)
    return ledger


def entry(ledger: Ledger, connection: int, handle: int, uid: int) -> Entry:
    sequence = Sequence(uid, f"r{uid}", [1, 2, 3], 2, SamplingParams(max_tokens=5))
    entered = Entry(connection, handle, sequence)
    ledger.enter(entered)
    return entered


def collect(ledger: Ledger) -> dict[int, StepOutputs]:
    return ledger.collect(StepFigures(), STATS)


def tokens(outputs: StepOutputs) -> list[tuple[int, int]]:
    count = len(outputs.handles) // 8
    return list(
        zip(
            struct.unpack(f"<{count}q", outputs.handles),
            struct.unpack(f"<{count}i", outputs.token_ids),
            strict=True,
        )
    )


def test_each_connection_gets_its_own_sequences_once(ledger: Ledger) -> None:
    hers, his = entry(ledger, ALICE, 7, 0), entry(ledger, BOB, 7, 1)
    ledger.token(hers, SampledToken(11))
    ledger.token(his, SampledToken(12))
    ledger.token(hers, SampledToken(13))
    outputs = collect(ledger)
    assert tokens(outputs[ALICE]) == [(7, 11), (7, 13)]
    assert tokens(outputs[BOB]) == [(7, 12)]
    assert ledger.is_silent
    assert tokens(collect(ledger)[ALICE]) == []


def test_connections_without_news_share_a_message(ledger: Ledger) -> None:
    ledger.open(3)
    ledger.vector(entry(ledger, ALICE, 1, 0), PooledVector(b"1234"))
    ledger.end(ledger[0], FinishReason.STOP)
    outputs = collect(ledger)
    assert [one.vector for one in outputs[ALICE].embedded] == [b"1234"]
    assert outputs[BOB] is outputs[3]


def test_the_load_is_reported_only_to_those_that_choose_among_engines(ledger: Ledger) -> None:
    several = Ledger(lambda: 9.0, reports_load=True)
    several.open(ALICE)
    for one in (ledger, several):
        running = entry(one, ALICE, 1, 0).sequence
    assert ledger.load([running]) is None
    load = several.load([running])
    assert load is not None
    assert load.tokens == running.num_prompt_tokens + running.num_output_tokens == 3


def test_a_handle_in_use_is_a_broken_protocol_on_its_own_connection(ledger: Ledger) -> None:
    entered = entry(ledger, ALICE, 7, 0)
    with pytest.raises(ProtocolError, match="handle 7"):
        ledger.require_unused(ALICE, 7)
    with pytest.raises(ProtocolError, match="handle 7"):
        ledger.reject(ALICE, 7, "malformed")
    ledger.require_unused(BOB, 7)
    ledger.leave(entered)
    ledger.require_unused(ALICE, 7)


def test_live_sequences_are_found_by_uid_by_handle_and_by_connection(ledger: Ledger) -> None:
    first, second = entry(ledger, ALICE, 1, 0), entry(ledger, BOB, 2, 1)
    assert (ledger[0], ledger[1]) == (first, second)
    assert ledger.entries() == [first, second]
    assert ledger.named(ALICE, [1, 1, 2, 99]) == [first]
    ledger.leave(first)
    assert 0 not in ledger
    assert ledger.entries_of(ALICE) == []


def test_an_end_is_counted_and_a_rejection_is_not(ledger: Ledger) -> None:
    ledger.end(entry(ledger, ALICE, 1, 0), FinishReason.LENGTH)
    ledger.reject(BOB, 5, "malformed")
    assert ledger.num_ended == 1
    outputs = collect(ledger)
    [ended], [rejected] = outputs[ALICE].finished, outputs[BOB].finished
    assert (ended.reason, ended.prompt_tokens, ended.output_tokens) == (FinishReason.LENGTH, 2, 1)
    assert (rejected.reason, rejected.error) == (FinishReason.ERROR, "malformed")
    assert rejected.arrival_time == rejected.finished_time == 9.0


def test_admitted_sequences_can_be_collected_before_the_rest(ledger: Ledger) -> None:
    hers = entry(ledger, ALICE, 7, 0)
    ledger.answer((hers.sequence,), [], 2.0)
    ledger.token(hers, SampledToken(11))
    [(connection, outputs)] = ledger.collect_admitted(STATS)
    assert (connection, [one.handle for one in outputs.admitted]) == (ALICE, [7])
    later = collect(ledger)[ALICE]
    assert (later.admitted, tokens(later)) == ([], [(7, 11)])


def test_prompt_logprobs_that_come_again_are_reported_once(ledger: Ledger) -> None:
    hers = entry(ledger, ALICE, 7, 0)
    pieces = [TokenLogprobs(-float(place), 1) for place in range(5)]
    ledger.prompt_logprobs(hers, 0, pieces[:3])
    ledger.prompt_logprobs(hers, 0, pieces[:2])
    ledger.prompt_logprobs(hers, 2, pieces[2:])
    told = collect(ledger)[ALICE].prompt_logprobs
    assert [(one.start, one.tokens) for one in told] == [(0, pieces[:3]), (3, pieces[3:])]


def test_a_closed_connection_gets_no_messages(ledger: Ledger) -> None:
    ledger.leave(entry(ledger, ALICE, 7, 0))
    ledger.close(ALICE)
    assert set(collect(ledger)) == {BOB}


def test_a_connection_without_sequences_hears_of_some_steps_if_it_does_not_watch_all(
    ledger: Ledger,
) -> None:
    def at(moment: float) -> set[int]:
        stats = msgspec.structs.replace(STATS, time=moment)
        return set(ledger.collect(StepFigures(), stats))

    ledger.watch(BOB, every_step=False)
    assert at(1.0) == {ALICE, BOB}
    assert at(1.0 + QUIET_SECONDS / 2) == {ALICE}
    assert at(1.0 + QUIET_SECONDS) == {ALICE, BOB}
    mine = entry(ledger, BOB, 7, 1)
    assert at(1.01 + QUIET_SECONDS) == {ALICE, BOB}  # one that waits hears of each step
    ledger.end(mine, FinishReason.STOP)
    ledger.leave(mine)
    assert at(1.02 + QUIET_SECONDS) == {ALICE, BOB}  # its end
    assert at(1.03 + QUIET_SECONDS) == {ALICE}
    ledger.watch(BOB, every_step=True)
    assert at(1.04 + QUIET_SECONDS) == {ALICE, BOB}
    ledger.watch(BOB, every_step=False)
    ledger.close(BOB)
    assert at(1.05 + QUIET_SECONDS) == {ALICE}
