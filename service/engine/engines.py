"""What the rest of the service sees of its engines: a link to the only one, or a pool of links."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

from engine.messages import EngineStats
from engine.queueing import QueueBounds
from service.engine.inspections import Inspections
from service.engine.link import EngineLink, EngineState
from service.engine.sequence import EngineSequence, Waker
from service.engine.submission import Submission


class SequencesView(Protocol):
    """Open sequences, to be looked at only. See ``service.engine.open_sequences``."""

    def __len__(self) -> int: ...

    def __iter__(self) -> Iterator[EngineSequence]: ...

    def longest_gap(self, now: float) -> float: ...


class Engines(Protocol):
    """See ``service.engine.link`` and ``service.engine.pool``. Times are monotonic seconds."""

    on_submit: Callable[[Submission], None] | None  # to be called with each
    bounds: QueueBounds | None  # of the engines' waiting queues

    @property
    def links(self) -> Sequence[EngineLink]:
        """One for each engine, by index."""
        ...

    @property
    def state(self) -> EngineState: ...

    @property
    def stats(self) -> EngineStats | None:
        """As last reported; None while no engine is ready."""
        ...

    @property
    def last_message_time(self) -> float | None: ...

    @property
    def step_seconds(self) -> float | None:
        """How long a long step has run, as last reported."""
        ...

    @property
    def silence(self) -> float: ...

    @property
    def load_seconds(self) -> float | None: ...

    @property
    def expects_engine(self) -> bool: ...

    @property
    def waiting_sequences(self) -> int: ...

    @property
    def open_sequences(self) -> SequencesView: ...

    @property
    def inspections(self) -> Inspections: ...

    def predicted_wait(self, waiting: int) -> float | None: ...

    def submit(
        self, submission: Submission, waker: Waker, *, beside: EngineSequence | None = None
    ) -> list[EngineSequence]:
        """Open a sequence for each choice, all in one engine. ``beside``: preferably in the one
        that has or had this sequence. Raises ConnectionError when there is no engine and none is
        expected, ValueError when the message is too long to send, CrashingRequestError for a
        request that has killed engines."""
        ...

    def abort(self, sequences: list[EngineSequence]) -> None: ...

    def watch(self, *, every_step: bool) -> None:
        """See ``Inspections.watch``; of all engines."""
        ...

    def start(self) -> None: ...

    async def close(self) -> None: ...

    def expect_no_restart(self) -> None: ...
