"""What the death of an engine means, decided without a socket, a clock or an event loop."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import pytest
import structlog

from engine.messages import Admitted, SamplingParams
from service.engine.handover import Handover
from service.engine.open_sequences import OpenSequences
from service.engine.sequence import EngineSequence, SequenceState, Waker
from service.errors import CrashingRequestError, EngineFailedError, EngineUnavailableError
from tests.service.engine.test_link import step, submission

TIMEOUT = 30.0


class Server:
    """A handover, its sequences, and an engine that does what the test says."""

    def __init__(self, timeout: float = TIMEOUT) -> None:
        self.now = 1000.0
        self.sequences = OpenSequences()
        self.handover = Handover(self.sequences, timeout, clock=lambda: self.now)
        self._handles = 0

    def open(self, *, sent: bool = True) -> EngineSequence:
        self._handles += 1
        prompt = [1, self._handles]
        [message] = submission(prompt, SamplingParams(max_tokens=8)).messages(iter([self._handles]))
        sequence = EngineSequence(self._handles, 2, 0.0, Waker(), message)
        self.sequences.add(sequence)
        if sent:
            self.sequences.mark_sent(sequence, 0.5)
        return sequence

    def admit(self, *sequences: EngineSequence) -> None:
        admitted = [Admitted(sequence.handle, 1.0, 0) for sequence in sequences]
        self.sequences.apply(step({}, admitted=admitted), keep_aborted=True)

    def give_token(self, *sequences: EngineSequence) -> None:
        tokens = {sequence.handle: 7 for sequence in sequences}
        self.sequences.apply(step(tokens), keep_aborted=True)

    def running(self, *, tokens: bool = True) -> EngineSequence:
        sequence = self.open()
        self.admit(sequence)
        if tokens:
            self.give_token(sequence)
        return sequence

    def send(self, order: Iterator[EngineSequence | None]) -> list[EngineSequence]:
        """All that may be sent before the engine does something; they begin to run."""
        sent = []
        for sequence in order:
            if sequence is None:
                break
            self.sequences.mark_sent(sequence, 0.5)
            self.admit(sequence)
            sent.append(sequence)
        return sent


def test_sequences_go_through_their_states_and_wait_again_after_a_death() -> None:
    server = Server()
    waiting = server.open(sent=False)
    queued, running = server.open(), server.running()
    states = [SequenceState.UNSENT, SequenceState.QUEUED, SequenceState.RUNNING]
    assert [one.state for one in (waiting, queued, running)] == states
    assert server.sequences.num_waiting == 2
    server.handover.engine_lost("gone")
    assert {one.state for one in server.sequences} == {SequenceState.UNSENT}
    assert server.sequences.num_waiting == 3
    assert (waiting.deaths, queued.deaths, running.deaths) == (0, 1, 1)
    assert server.sequences.remove(running)
    assert not server.sequences.remove(running)
    assert (running.state, server.sequences.num_waiting) == (SequenceState.ENDED, 2)


def test_without_suspects_all_are_sent_in_the_order_they_came() -> None:
    server = Server()
    first, second, third = server.running(), server.open(), server.open(sent=False)
    server.handover.engine_lost("gone")
    order = server.handover.order()
    assert not server.handover.on_trial
    sent = [next(order)]
    server.sequences.mark_sent(first, 0.5)
    server.sequences.remove(second)  # its client leaves meanwhile
    late = server.open(sent=False)
    assert sent + server.send(order) == [first, third, late]


def test_a_suspect_runs_after_the_trusted_have_a_token_and_others_wait_for_its_trial() -> None:
    server = Server()
    trusted, suspect, waiting = server.running(), server.running(tokens=False), server.open()
    server.handover.engine_lost("gone")
    order = server.handover.order()
    assert server.send(order) == [trusted]
    assert server.handover.on_trial
    assert server.send(order) == []  # something happened, but not that
    server.give_token(trusted)
    assert server.send(order) == [suspect]
    server.give_token(suspect)
    assert server.send(order) == [waiting]
    assert not server.handover.on_trial
    assert suspect.trial_tokens == 0


@pytest.mark.parametrize("who", ["trusted", "suspect"])
def test_a_client_that_leaves_during_a_trial_delays_no_one(who: str) -> None:
    server = Server()
    trusted, suspect, waiting = server.running(), server.running(tokens=False), server.open()
    server.handover.engine_lost("gone")
    order = server.handover.order()
    assert server.send(order) == [trusted]
    if who == "trusted":
        server.sequences.remove(trusted)
        assert server.send(order) == [suspect]
    else:
        server.sequences.remove(suspect)
        server.give_token(trusted)
        assert server.send(order) == [waiting]


def test_the_accused_runs_alone_first_and_is_refused_after_a_second_death_on_trial() -> None:
    server = Server()
    innocent, killer = server.running(), server.running(tokens=False)
    server.handover.engine_lost("gone")
    order = server.handover.order()
    server.send(order)
    server.give_token(innocent)
    assert server.send(order) == [killer]
    server.handover.engine_lost("gone")  # accused
    order = server.handover.order()
    assert server.send(order) == []  # an engine that dies by itself does so before its first beat
    assert server.send(order) == [killer]
    with structlog.testing.capture_logs() as lines:
        server.handover.engine_lost("gone")
    assert isinstance(killer.failure, CrashingRequestError)
    assert "refused a request that kills engines" in [line["event"] for line in lines]
    assert innocent.is_open
    assert killer.message is not None
    with pytest.raises(CrashingRequestError):
        server.handover.suspects.check(killer.message)
    assert server.send(server.handover.order()) == [innocent]


def test_a_conviction_refuses_every_request_that_is_the_same() -> None:
    server = Server()
    killer, same, other = server.running(tokens=False), server.open(sent=False), server.open()
    assert killer.message is not None
    assert same.message is not None
    same.message = msgspec.structs.replace(
        same.message, prompt_token_ids=killer.message.prompt_token_ids
    )
    server.handover.engine_lost("gone")
    assert server.send(server.handover.order()) == [killer]
    server.handover.engine_lost("gone")
    order = server.handover.order()
    assert server.send(order) == []
    assert server.send(order) == [killer]
    server.handover.engine_lost("gone")
    assert isinstance(killer.failure, CrashingRequestError)
    assert isinstance(same.failure, CrashingRequestError)
    assert other.is_open


def test_one_that_has_passed_its_trial_is_not_accused_of_a_later_death() -> None:
    server = Server()
    suspect = server.running(tokens=False)
    server.handover.engine_lost("gone")
    order = server.handover.order()
    assert server.send(order) == [suspect]
    server.give_token(suspect)
    assert server.send(order) == []
    server.handover.engine_lost("gone")
    assert not server.handover.suspects.is_accused(suspect)


def test_another_engine_gets_all_but_the_suspects() -> None:
    server = Server()
    trusted, suspect, waiting = server.running(), server.running(tokens=False), server.open()
    server.handover.engine_lost("gone", has_other=True)
    assert server.handover.release() == [trusted, waiting]
    assert list(server.sequences) == [suspect]


def test_a_death_during_a_trial_ends_it() -> None:
    server = Server()
    server.running(tokens=False)
    server.handover.engine_lost("gone")
    server.send(server.handover.order())
    assert server.handover.on_trial
    server.handover.engine_lost("gone")
    assert not server.handover.on_trial


def test_the_wait_ends_a_fixed_time_after_the_first_death_unless_an_engine_ran_a_step() -> None:
    server = Server()
    server.running()
    assert server.handover.engine_lost("gone") == TIMEOUT
    server.now += 10
    assert server.handover.engine_lost("gone") == TIMEOUT - 10
    server.now += 100
    assert server.handover.engine_lost("gone") == 0
    server.handover.engine_ran_a_step()
    assert server.handover.engine_lost("gone") == TIMEOUT


@pytest.mark.parametrize(("timeout", "loading"), [(0.0, None), (5.0, 6.0)])
def test_no_sequence_waits_for_an_engine_that_cannot_start_in_time(
    timeout: float, loading: float | None
) -> None:
    server = Server(timeout)
    server.handover.load_seconds = loading
    sequence = server.running()
    assert server.handover.engine_lost("the engine failed") is None
    assert isinstance(sequence.failure, EngineFailedError)
    assert "the engine failed" in str(sequence.failure)
    assert len(server.sequences) == server.sequences.num_waiting == 0


def test_giving_up_asks_for_a_retry_only_from_those_no_engine_ever_had() -> None:
    server = Server()
    running = server.running()
    server.handover.engine_lost("gone")
    came_later = server.open(sent=False)
    server.handover.give_up(TIMEOUT)
    assert isinstance(running.failure, EngineFailedError)
    assert isinstance(came_later.failure, EngineUnavailableError)
    assert not server.sequences.handles()
