"""Workers take turns with trials; a lock of a worker that dies is free."""

from __future__ import annotations

import fcntl
import itertools
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from service.engine.handover import Handover
from service.engine.open_sequences import OpenSequences
from service.engine.sequence import EngineSequence, SequenceState, Waker
from service.engine.trial_turn import TrialTurn
from service.errors import CrashingRequestError
from tests.service.engine.test_link import submission

HOLD = """
import sys, time
from pathlib import Path
from service.engine.trial_turn import TrialTurn
turn = TrialTurn(Path(sys.argv[1]))
turn.announce()
assert turn.take()
print("held", flush=True)
time.sleep(60)
"""


def test_one_worker_at_a_time_has_the_turn(tmp_path: Path) -> None:
    first, second = (TrialTurn(tmp_path / "engine.sock") for _ in range(2))
    assert first.take()
    assert first.take()
    assert not second.take()
    first.leave()
    assert second.take()
    other = TrialTurn(tmp_path / "engine-1.sock")
    assert other.take()


def test_several_may_have_accused_sequences_and_others_see_it(tmp_path: Path) -> None:
    first, second, third = (TrialTurn(tmp_path / "engine.sock") for _ in range(3))
    assert not third.is_announced()
    first.announce()
    second.announce()
    assert third.is_announced()
    first.withdraw()
    assert third.is_announced()
    second.withdraw()
    assert not third.is_announced()
    first.announce()  # which a look at it does not prevent
    assert second.is_announced()


def test_a_single_worker_is_never_in_another_s_way() -> None:
    alone = TrialTurn()
    alone.announce()
    assert alone.take()
    assert not alone.is_announced()
    alone.leave()
    alone.withdraw()


def test_a_folder_that_cannot_be_written_to_does_not_stop_trials(tmp_path: Path) -> None:
    turn = TrialTurn(tmp_path / "missing" / "engine.sock")
    with capture_logs() as lines:
        for _ in range(3):
            assert turn.take()
            assert not turn.is_announced()
    files = [line["file"] for line in lines]  # each once
    assert files == [str(tmp_path / "missing" / f"engine.{kind}") for kind in ("trial", "accused")]


def test_what_cannot_be_announced_is_logged(tmp_path: Path) -> None:
    turn = TrialTurn(tmp_path / "engine.sock")
    with (tmp_path / "engine.accused").open("w") as file, capture_logs() as lines:
        fcntl.flock(file, fcntl.LOCK_EX)
        turn.announce()
        assert ["could not be announced" in line["event"] for line in lines] == [True]
        fcntl.flock(file, fcntl.LOCK_UN)
        turn.announce()
    assert len(lines) == 1


def test_the_locks_of_a_killed_worker_are_free(tmp_path: Path) -> None:
    mine = TrialTurn(tmp_path / "engine.sock")
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path / "engine.sock")], stdout=subprocess.PIPE
    )
    assert holder.stdout is not None
    assert holder.stdout.readline() == b"held\n"
    assert mine.is_announced()
    assert not mine.take()
    os.kill(holder.pid, signal.SIGKILL)
    holder.wait()
    assert not mine.is_announced()
    assert mine.take()


class Worker:
    """One worker's part of hand-overs, with a single sequence. The engine is the test's."""

    def __init__(self, turn: TrialTurn, request_id: str, token: int) -> None:
        self.sequences = OpenSequences()
        self.handover = Handover(self.sequences, restart_timeout=30.0, turn=turn)
        [message] = submission([token], request_id=request_id).messages(itertools.count(1))
        self.sequence = EngineSequence(1, 1, 0.0, Waker(), message)
        self.sequences.add(self.sequence)
        self.is_sent = False
        self.send()

    def send(self) -> None:
        self.sequences.mark_sent(self.sequence, 0.0)
        self.sequence.state = SequenceState.RUNNING
        self.is_sent = True

    def engine_died(self) -> None:
        self.handover.engine_lost("it died")
        self.is_sent = False

    def engine_is_ready(self) -> None:
        self.handover.prepare()
        self._order = self.handover.order()

    def turn(self) -> None:
        """Send what the hand-over sends next, if anything."""
        if next(self._order, None) is not None:
            self.send()


def deaths_until_convicted(guilty: Worker, workers: Sequence[Worker]) -> int:
    """The engine dies in the step in which it runs the guilty sequence; any other gets its token in
    the step after the one that admitted it."""
    deaths = 0
    while guilty.sequence.is_open:
        deaths += 1
        for one in workers:
            one.engine_died()
        for one in workers:
            one.engine_is_ready()
        while guilty.sequence.is_open and not guilty.is_sent:
            running = [one for one in workers if one.is_sent]
            for one in workers:
                one.turn()
            if not guilty.is_sent:
                for one in running:
                    one.sequence.generated.append(1)
        assert deaths < 10
    return deaths


@pytest.mark.parametrize("guilty_first", [True, False])
def test_trials_of_one_worker_accuse_no_sequence_of_another(
    tmp_path: Path, guilty_first: bool
) -> None:
    turns = [TrialTurn(tmp_path / "engine.sock") for _ in range(3)]
    guilty = Worker(turns[0], "poison", 6)
    innocent = [Worker(turns[1], "a", 1), Worker(turns[2], "b", 2)]
    workers = [guilty, *innocent] if guilty_first else [*innocent, guilty]
    assert deaths_until_convicted(guilty, workers) == 3
    assert isinstance(guilty.sequence.failure, CrashingRequestError)
    assert [one.sequence.failure for one in innocent] == [None, None]


def test_without_turns_an_innocent_sequence_is_convicted() -> None:
    """What the turns are for."""
    guilty, innocent = Worker(TrialTurn(), "poison", 6), Worker(TrialTurn(), "a", 1)
    deaths_until_convicted(guilty, [guilty, innocent])
    assert isinstance(innocent.sequence.failure, CrashingRequestError)
