"""What happens to an engine's sequences when it dies, and to those waiting for the next engine.

This module decides which sequences wait and for how long, which fail, which are suspected of having
killed the engine, and in which order the next engine gets them. It uses no sockets:
``service.engine.link`` reports deaths and sends what ``order`` yields. The rules for suspects are
in ``service.engine.suspects``.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

from observability.logging import get_logger
from service.engine.open_sequences import OpenSequences
from service.engine.sequence import EngineSequence, SequenceState
from service.engine.suspects import Suspects, crashing_request
from service.engine.trial_turn import TrialTurn
from service.errors import EngineFailedError, EngineUnavailableError

_MOST_SUSPECTS = 100  # named in the log

_log = get_logger()


class Handover:
    """After their engine died, sequences wait ``restart_timeout`` seconds for an engine that
    completes a step. They fail at once if that is 0, or less than the last engine took to load.

    If there is another engine, only suspects wait: ``release`` returns the others. ``suspects``:
    shared by all engines of a worker; ``turn``: by the workers of one engine."""

    def __init__(
        self,
        sequences: OpenSequences,
        restart_timeout: float,
        clock: Callable[[], float] = time.monotonic,
        *,
        suspects: Suspects | None = None,
        turn: TrialTurn | None = None,
    ) -> None:
        self.restart_timeout = restart_timeout
        self.load_seconds: float | None = None  # the last engine's load time
        self.on_trial = False  # suspects run one at a time: new sequences have to wait
        self.waits_for_turn = False  # for another worker's trial to end
        self.suspects = Suspects(clock) if suspects is None else suspects
        self._turn = turn or TrialTurn()
        self._sequences = sequences
        self._clock = clock
        self._lost_since: float | None = None  # None: an engine has completed a step since
        self._tried: EngineSequence | None = None
        self._tried_alone = False
        self._were_running: list[EngineSequence] = []  # when the last engine died

    @property
    def is_hopeless(self) -> bool:
        """True if an engine that dies now will not be replaced in time."""
        return self.restart_timeout == 0 or (self.load_seconds or 0.0) > self.restart_timeout

    # --- engine events ----------------------------------------------------------------------------

    def engine_ran_a_step(self) -> None:
        self._lost_since = None

    def engine_lost(self, what: str, *, has_other: bool = False) -> float | None:
        """Return how many seconds to wait for the next engine; None if there is no waiting and all
        sequences have failed, or with ``has_other``, all suspects: there is another engine."""
        running = self._sequences.in_state(SequenceState.RUNNING)
        _log_running(running)
        self.end_trials()
        self._blame(running)
        self._were_running = running
        if self.is_hopeless:
            lost = [one for one in self._sequences if one.trial_tokens or not has_other]
            self._sequences.fail(lost, EngineFailedError(what))
        self._sequences.take_back()
        self._announce_accused()
        if self.is_hopeless:
            return None
        now = self._clock()
        if self._lost_since is None:
            self._lost_since = now
        return max(0.0, self.restart_timeout - (now - self._lost_since))

    def give_up(self, seconds: float) -> None:
        """Fail all sequences, because no engine came within ``seconds``."""
        what = f"the engine died and was not replaced within {seconds:g} s"
        never_begun = [sequence for sequence in self._sequences if sequence.deaths == 0]
        self._sequences.fail(never_begun, EngineUnavailableError(f"{what}; retry."))
        self._sequences.fail(self._sequences, EngineFailedError(what))

    def _blame(self, running: list[EngineSequence]) -> None:
        """Mark sequences that may have killed the engine as suspects; fail the one proved
        guilty."""
        tried, self._tried = self._tried, None
        convicted = self.suspects.engine_died(
            running,
            self._sequences.in_state(SequenceState.QUEUED),
            tried=tried if tried is not None and tried.is_open else None,
            alone=self._tried_alone,
        )
        if convicted:
            same = [one for one in self._sequences if self.suspects.is_convicted(one)]
            ids = dict.fromkeys(one.message.request_id for one in same if one.message is not None)
            _log.error("refused a request that kills engines", request_ids=" ".join(ids))
            self._sequences.fail(same, crashing_request())

    def _announce_accused(self) -> None:
        if any(self.suspects.is_accused(one) for one in self._sequences if one.trial_tokens):
            self._turn.announce()

    def release(self) -> list[EngineSequence]:
        """Remove and return the sequences that another engine may have at once: those that wait,
        but for suspects."""
        free = [one for one in self._unsent() if not one.trial_tokens]
        for sequence in free:
            self._sequences.give_away(sequence)
        return free

    # --- the order of the hand-over ---------------------------------------------------------------

    def prepare(self) -> None:
        """Set ``on_trial`` if an engine that is now ready has to hold trials first."""
        suspects = any(sequence.trial_tokens for sequence in self._unsent())
        self.on_trial = suspects or self._turn.is_announced()

    def order(self) -> Iterator[EngineSequence | None]:
        """Yield the sequences to send in order of arrival, except for suspects; None when the next
        one depends on what the engine or a client does first."""
        if any(sequence.trial_tokens for sequence in self._unsent()):
            self.on_trial = True
            yield from self._trials()
        else:
            yield from self._others_trials()
        while unsent := self._unsent():  # more may arrive meanwhile
            for sequence in unsent:
                if sequence.state is SequenceState.UNSENT:
                    yield sequence
        self.on_trial = False

    def _trials(self) -> Iterator[EngineSequence | None]:
        """Yield the accused alone first, then trusted sequences that were running, and then, while
        those run, the other suspects one at a time."""
        suspects = [sequence for sequence in self._unsent() if sequence.trial_tokens]
        _log.info("suspects run one at a time", count=len(suspects))
        accused = [sequence for sequence in suspects if self.suspects.is_accused(sequence)]
        if accused:
            yield None  # an engine that dies on its own does so before its first message
            yield from self._take_turn()
        for sequence in accused:
            yield from self._trial(sequence, alone=True)
        self._end_turn()
        yield from self._others_trials()
        trusted = [
            sequence
            for sequence in self._were_running
            if sequence in self._sequences
            and sequence.state is SequenceState.UNSENT
            and not sequence.trial_tokens
        ]
        for sequence in trusted:
            if sequence.state is SequenceState.UNSENT:  # its client may have left meanwhile
                yield sequence
        for sequence in trusted:
            while sequence.is_open and sequence.life_tokens == 0:
                yield None
        if any(sequence.is_open and sequence.trial_tokens for sequence in suspects):
            yield from self._take_turn()
        for sequence in suspects:
            if sequence.trial_tokens:
                yield from self._trial(sequence, alone=False)
        self._end_turn()

    def _take_turn(self) -> Iterator[None]:
        self.waits_for_turn = True
        while not self._turn.take():
            yield None
        self.waits_for_turn = False

    def _others_trials(self) -> Iterator[None]:
        """Leave the engine to the accused sequences of other workers."""
        self.waits_for_turn = True
        while self._turn.is_announced():
            self.on_trial = True
            yield None
        self.waits_for_turn = False

    def _end_turn(self) -> None:
        self._turn.leave()
        self._turn.withdraw()

    def _trial(self, sequence: EngineSequence, *, alone: bool) -> Iterator[EngineSequence | None]:
        """Run a suspect until it has enough tokens to be trusted again."""
        if not sequence.is_open:
            return
        self._tried, self._tried_alone = sequence, alone
        yield sequence
        while sequence.is_open and sequence.life_tokens < sequence.trial_tokens:
            yield None
        self._tried = None
        self.suspects.acquit(sequence)

    def _unsent(self) -> list[EngineSequence]:
        return self._sequences.in_state(SequenceState.UNSENT)

    def end_trials(self) -> None:
        """Let new sequences be sent again, whatever a trial may still be waiting for."""
        self.on_trial = self.waits_for_turn = False
        self._end_turn()


def _log_running(running: list[EngineSequence]) -> None:
    """Log the running requests, which helps to find the one that kills engines."""
    messages = (sequence.message for sequence in running)
    ids = list(dict.fromkeys(message.request_id for message in messages if message is not None))
    if ids:
        _log.warning(
            "requests running when the engine died",
            count=len(ids),
            request_ids=" ".join(ids[:_MOST_SUSPECTS]),
        )
