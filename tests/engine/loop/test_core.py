"""What the engine does with submissions, aborts and failures, and what it reports about them."""

from __future__ import annotations

import logging

import pytest

from engine.errors import UNTOLD
from engine.loop.core import EngineCore
from engine.loop.errors import EngineDeadError, ProtocolError
from engine.messages import FinishReason, StepPhase
from engine.queueing import WaitingReason
from tests.engine.checking_runner import EOS, CheckingRunner, continue_alone, prompt_logprobs_alone
from tests.engine.loop.listening import ALICE, BOB, Listener, engine, submit, tokens


def test_each_connection_gets_its_own_sequences_and_the_state_of_all() -> None:
    core = engine()
    core.add(ALICE, submit(7, [1, 2, 3]))
    core.add(BOB, submit(7, [4, 5]))
    outputs = core.step()
    assert tokens(outputs[ALICE]) == [(7, continue_alone([1, 2, 3], 1, 1000)[0])]
    assert tokens(outputs[BOB]) == [(7, continue_alone([4, 5], 1, 1000)[0])]
    assert outputs[ALICE].stats == outputs[BOB].stats
    assert outputs[ALICE].stats.running == 2


def test_the_first_step_admits_prefills_and_samples() -> None:
    core = engine()
    core.add(ALICE, submit(7))
    first = core.step()[ALICE]
    assert [(a.handle, a.cached_tokens) for a in first.admitted] == [(7, 0)]
    assert (first.phase, first.step_tokens, first.step_sequences) == (StepPhase.PREFILL, 3, 1)
    second = core.step()[ALICE]
    assert second.admitted == []
    assert (second.phase, second.step_tokens, second.step_sequences) == (StepPhase.DECODE, 1, 1)
    core.add(BOB, submit(7))
    assert core.step()[BOB].phase is StepPhase.MIXED


def test_admitted_sequences_can_be_sent_before_a_step_that_kills_the_engine() -> None:
    told: list[tuple[int, int]] = []
    core = EngineCore(
        CheckingRunner(vocab_size=1000, broken=True),
        max_num_seqs=8,
        max_num_batched_tokens=4,
        on_admitted=lambda connection, outputs: told.extend(
            (connection, admitted.handle) for admitted in outputs.admitted
        ),
    )
    for connection in (ALICE, BOB):
        core.connect(connection)
        core.add(connection, submit(7))
    core.add(BOB, submit(8))
    with pytest.raises(EngineDeadError):
        core.step()
    assert told == [(ALICE, 7), (BOB, 7)]  # the third finds no room in this step


def test_the_record_has_what_the_sequence_cost_and_when() -> None:
    core = engine()
    core.add(ALICE, submit(7))
    finished = Listener(core).finished[ALICE, 7]
    assert finished.reason is FinishReason.LENGTH
    assert (finished.prompt_tokens, finished.output_tokens, finished.preemptions) == (3, 4, 0)
    assert finished.arrival_time == 5.0
    times = [
        finished.first_scheduled_time,
        finished.first_token_time,
        finished.last_token_time,
        finished.finished_time,
    ]
    assert None not in times
    assert times == sorted(times)  # type: ignore[type-var]  # no None, as just asserted


def test_the_last_token_comes_with_the_end() -> None:
    core = engine()
    core.add(ALICE, submit(7, max_tokens=1))
    outputs = core.step()[ALICE]
    assert len(tokens(outputs)) == 1
    assert outputs.finished[0].handle == 7
    assert not core.has_work


# --- where a sequence stops ---------------------------------------------------------------------


def first_eos(prompt: list[int]) -> int:
    """How many tokens the model generates up to the first end-of-sequence token, inclusive."""
    return continue_alone(prompt, 60, 5).index(EOS) + 1


def test_an_end_of_sequence_token_stops_it_and_is_named() -> None:
    core = engine(CheckingRunner(vocab_size=5))
    core.add(ALICE, submit(7, max_tokens=60, ignore_eos=False))
    heard = Listener(core)
    assert len(heard.tokens[ALICE, 7]) == first_eos([1, 2, 3])
    assert heard.finished[ALICE, 7].reason is FinishReason.STOP
    assert heard.finished[ALICE, 7].stop_token_id == EOS


def test_ignore_eos_continues_but_stop_tokens_still_stop() -> None:
    core = engine(CheckingRunner(vocab_size=5))
    expected = continue_alone([1, 2, 3], 60, 5)
    core.add(ALICE, submit(7, max_tokens=60, stop_token_ids=frozenset((4,))))
    heard = Listener(core)
    assert heard.tokens[ALICE, 7] == expected[: expected.index(4) + 1]
    assert heard.finished[ALICE, 7].stop_token_id == 4


def test_nothing_stops_a_sequence_below_min_tokens() -> None:
    core = engine(CheckingRunner(vocab_size=5))
    stops = first_eos([1, 2, 3])
    core.add(ALICE, submit(7, max_tokens=60, min_tokens=stops + 1, ignore_eos=False))
    assert len(Listener(core).tokens[ALICE, 7]) > stops


def test_the_context_length_ends_a_sequence_regardless_of_max_tokens() -> None:
    core = engine(CheckingRunner(vocab_size=1000, max_model_len=10))
    core.add(ALICE, submit(7, max_tokens=10**9))
    heard = Listener(core)
    assert len(heard.tokens[ALICE, 7]) == 7
    assert heard.finished[ALICE, 7].reason is FinishReason.LENGTH


def test_the_size_of_the_cache_ends_a_sequence_that_would_outgrow_it() -> None:
    core = engine(CheckingRunner(vocab_size=1000, num_kv_blocks=2, block_size=4))
    core.add(ALICE, submit(7, max_tokens=10**9))
    assert len(Listener(core).tokens[ALICE, 7]) == 5


def test_tokens_generated_before_a_restart_are_continued_not_repeated() -> None:
    expected = continue_alone([1, 2, 3], 6, 1000)
    core = engine()
    core.add(ALICE, submit(7, max_tokens=6, output_token_ids=expected[:4]))
    heard = Listener(core)
    assert heard.tokens[ALICE, 7] == expected[4:]
    assert heard.finished[ALICE, 7].output_tokens == 6


def test_a_sequence_resumed_at_its_limit_ends_without_running() -> None:
    core = engine()
    core.add(ALICE, submit(7, max_tokens=2, output_token_ids=[5, 6]))
    outputs = core.step()[ALICE]
    assert outputs.phase is None
    assert outputs.finished[0].reason is FinishReason.LENGTH
    assert outputs.finished[0].output_tokens == 2


# --- what is refused ----------------------------------------------------------------------------


def test_a_handle_in_use_is_a_broken_protocol_and_free_again_after_the_end() -> None:
    core = engine()
    core.add(ALICE, submit(7))
    with pytest.raises(ProtocolError, match="handle 7"):
        core.add(ALICE, submit(7))
    with pytest.raises(ProtocolError, match="handle 7"):
        core.reject(ALICE, 7, "malformed")
    core.add(BOB, submit(7))
    Listener(core)
    core.add(ALICE, submit(7))


# --- aborts -------------------------------------------------------------------------------------


def test_an_abort_ends_running_and_waiting_sequences_and_frees_their_blocks() -> None:
    core = engine(max_num_seqs=1)
    core.add(ALICE, submit(1))
    core.add(ALICE, submit(2))
    core.step()
    core.abort(ALICE, [1, 2, 99])
    outputs = core.step()[ALICE]
    assert {f.handle: f.reason for f in outputs.finished} == {
        1: FinishReason.ABORT,
        2: FinishReason.ABORT,
    }
    assert outputs.phase is None
    assert outputs.stats.kv_blocks_active == 0
    assert not core.has_work


def test_an_abort_reaches_only_the_own_connections_sequences() -> None:
    core = engine()
    core.add(BOB, submit(1))
    core.abort(ALICE, [1])
    assert Listener(core).finished[BOB, 1].reason is FinishReason.LENGTH


def test_a_connection_that_goes_takes_its_sequences_with_it() -> None:
    runner = CheckingRunner(vocab_size=1000)
    core = engine(runner)
    core.add(ALICE, submit(1))
    core.add(BOB, submit(1))
    core.step()
    core.disconnect(ALICE)
    outputs = core.step()
    assert set(outputs) == {BOB}
    assert outputs[BOB].stats.running == 1
    assert runner.forgotten == [0]


def test_the_runner_is_notified_of_every_end_once() -> None:
    runner = CheckingRunner(vocab_size=1000)
    core = engine(runner)
    for handle in range(5):
        core.add(ALICE, submit(handle))
    core.step()
    core.abort(ALICE, [2])
    Listener(core)
    assert sorted(runner.forgotten) == [0, 1, 2, 3, 4]


# --- the blast radius of one --------------------------------------------------------------------


def test_a_sequence_whose_sampling_fails_ends_alone() -> None:
    core = engine(CheckingRunner(vocab_size=1000, poison={"bad"}))
    core.add(ALICE, submit(1))
    core.add(ALICE, submit(2, request_id="bad"))
    heard = Listener(core)
    assert heard.finished[ALICE, 2].error == UNTOLD
    assert (ALICE, 2) not in heard.tokens
    assert heard.tokens[ALICE, 1] == continue_alone([1, 2, 3], 4, 1000)


def test_clients_cannot_fill_the_log_with_what_is_refused(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    core = engine(CheckingRunner(vocab_size=1000, poison={"bad"}, refuse={"impossible"}))
    core.add(ALICE, submit(1, request_id="impossible"))
    refused = Listener(core).finished[ALICE, 1]
    assert (refused.error, refused.is_refusal) == ("nothing is left to choose from", True)
    assert caplog.records == []
    core.add(ALICE, submit(2, request_id="bad"))
    assert not Listener(core).finished[ALICE, 2].is_refusal
    assert [record.levelname for record in caplog.records] == ["ERROR"]


# --- prompt logprobs ----------------------------------------------------------------------------


def test_prompt_logprobs_are_complete_and_sent_once_however_the_prompt_was_computed() -> None:
    prompt = [3, 1, 4, 1, 5, 9, 2, 6, 5, 3]
    core = engine(max_num_batched_tokens=4)
    core.add(ALICE, submit(7, prompt, prompt_logprobs=0))
    # Eight of ten tokens are computed, and sent as soon as they are.
    before = [one for _ in range(2) for one in core.step()[ALICE].prompt_logprobs]
    core.scheduler.preempt(core.scheduler.running[0])
    heard = Listener(core)
    told = [logprobs for step in heard.steps for logprobs in step[ALICE].prompt_logprobs]
    assert [(one.handle, one.start, len(one.tokens)) for one in told] == [(7, 8, 1)]
    reported = [*before, *told]
    assert [one.start for one in reported] == [0, 4, 8]
    assert [entry for one in reported for entry in one.tokens] == prompt_logprobs_alone(prompt)


# --- state --------------------------------------------------------------------------------------


def test_the_stats_follow_the_sequences() -> None:
    core = engine(max_num_seqs=1)
    core.add(ALICE, submit(1, [1] * 9))
    core.add(ALICE, submit(2))
    stats = core.step()[ALICE].stats
    assert (stats.running, stats.waiting) == (1, 1)
    assert stats.waiting_reason is WaitingReason.SLOTS
    assert (stats.kv_blocks_active, stats.kv_blocks_cached, stats.kv_blocks_free) == (3, 0, 13)
    heard = Listener(core)
    stats = heard.steps[-1][ALICE].stats
    assert (stats.running, stats.waiting, stats.waiting_reason) == (0, 0, None)
    assert stats.kv_blocks_active == 0
    assert stats.kv_blocks_free + stats.kv_blocks_cached == 16
    assert stats.prompt_tokens_computed == 12
    assert stats.tokens_generated == 8
    assert stats.steps == 8
