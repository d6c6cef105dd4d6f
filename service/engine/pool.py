"""Several engines, as one to the rest of the service (``service.engine.engines.Engines``).

Each engine has its own link. The pool chooses one for each request (``service.engine.routing``);
tokens go from a link to their readers as if it were the only one. When an engine dies, the others
take over its sequences at once, except for those that may have killed it: these wait for the next
engine in its place (``service.engine.suspects``), so that they cannot kill another one.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Protocol

import msgspec

from engine.messages import EngineCounters, EngineStats, Heartbeat, Ready, StepOutputs
from engine.queueing import QueueBounds
from observability.logging import get_logger
from service.engine.engines import Engines
from service.engine.inspections import Inspections
from service.engine.link import EngineLink, EngineState, LinkPhase, Siblings, silence_since
from service.engine.routing import Candidate, choose
from service.engine.sequence import EngineSequence, Waker
from service.engine.sibling import Sibling, cached_tokens
from service.engine.submission import Submission


class OnStep(Protocol):
    def __call__(self, message: StepOutputs | Heartbeat, engine: int = 0) -> None: ...


class OnState(Protocol):
    def __call__(self, state: EngineState, engine: int = 0) -> None: ...


_SUMS = ("max_num_seqs", "num_kv_blocks", "kv_cache_bytes")
_MAY_DIFFER = {
    *_SUMS,
    *("device", "num_parameters", "max_num_batched_tokens", "load_seconds"),
    *("tensor_parallel_size", "identity"),
}
# What the engines of one server have in common.
_SAME = tuple(field for field in Ready.__struct_fields__ if field not in _MAY_DIFFER)
_GAUGES = ("running", "waiting", "kv_blocks_free", "kv_blocks_cached", "kv_blocks_active")

_log = get_logger()


def connect_engines(
    socket_paths: Sequence[Path],
    *,
    on_step: OnStep,
    on_state: OnState,
    restart_timeout: float = 0.0,
    silence_timeout: float = float("inf"),
) -> Engines:
    """Return the engines on these sockets. ``on_step`` and ``on_state`` are called with an engine's
    index. An engine without a message for ``silence_timeout`` s gets no request while another is
    ready."""
    if len(socket_paths) == 1:
        return EngineLink(
            socket_paths[0], on_step=on_step, on_state=on_state, restart_timeout=restart_timeout
        )
    pool = EnginePool(on_state, silence_timeout, socket_paths[0].parent)
    for number, path in enumerate(socket_paths):
        pool.add(
            EngineLink(
                path,
                on_step=partial(on_step, engine=number),
                on_state=pool.hears(number),
                restart_timeout=restart_timeout,
                number=number,
                siblings=pool,
            )
        )
    return pool


class EnginePool(Siblings):
    """Links are added before ``start``; call all methods on one event loop."""

    def __init__(self, on_state: OnState, silence_timeout: float, folder: Path) -> None:
        super().__init__(folder)
        self.state = EngineState()
        self.links: list[EngineLink] = []
        self._bounds: QueueBounds | None = None
        self.on_submit: Callable[[Submission], None] | None = None
        self._siblings: list[Sibling] = []
        self._on_state = on_state
        self._silence_timeout = silence_timeout
        self._num_chosen = 0

    def add(self, link: EngineLink) -> None:
        self.links.append(link)
        self._siblings.append(Sibling(link))

    def start(self) -> None:
        for link in self.links:
            link.start()

    async def close(self) -> None:
        await asyncio.gather(*(link.close() for link in self.links))

    def expect_no_restart(self) -> None:
        for link in self.links:
            link.expect_no_restart()

    def watch(self, *, every_step: bool) -> None:
        """See ``Engines``."""
        for link in self.links:
            link.inspections.watch(every_step=every_step)

    # --- requests -------------------------------------------------------------------------------

    def submit(
        self, submission: Submission, waker: Waker, *, beside: EngineSequence | None = None
    ) -> list[EngineSequence]:
        """See ``Engines``."""
        if self.on_submit is not None:
            self.on_submit(submission)
        chosen = self._choose(submission, beside)
        if submission.following is not None:  # other engines get their part of it
            following = submission.following.part(len(self.links))
            submission = dataclasses.replace(submission, following=following)
        opened = chosen.link.submit(submission, waker)
        self._num_chosen += 1
        chosen.chosen = self._num_chosen
        chosen.sent(len(submission.prompt_token_ids) * len(opened))
        return opened

    def _choose(self, submission: Submission, beside: EngineSequence | None) -> Sibling:
        """Raises ConnectionError."""
        siblings = self._candidates()
        if beside is not None:
            for one in siblings:
                if one.link.number == beside.engine:
                    return one
        if len(siblings) == 1:
            return siblings[0]
        cached = cached_tokens(siblings, submission)
        best = choose(
            [
                Candidate(place, one.load(), tokens, one.chosen)
                for place, (one, tokens) in enumerate(zip(siblings, cached, strict=True))
            ]
        )
        return siblings[best.number]

    def _candidates(self) -> list[Sibling]:
        """Return the engines that a request may go to, of the first kind that there is: those that
        run it at once; those without a recent message; those that run suspects first; those whose
        successor is expected. Raises ConnectionError."""
        accepting = [one for one in self._siblings if one.link.accepts]
        speaking = [one for one in accepting if one.link.silence <= self._silence_timeout]
        if found := speaking or accepting:
            return found
        for is_there in (_is_ready, _is_expected):
            if found := [one for one in self._siblings if is_there(one.link)]:
                return found
        raise ConnectionError(self.state.detail)

    def abort(self, sequences: list[EngineSequence]) -> None:
        """Stop and remove these sequences; those that have ended are ignored."""
        for link in self.links:
            if own := [one for one in sequences if one.engine == link.number]:
                link.abort(own)

    # --- links (Siblings) -----------------------------------------------------------------------

    def have_engine(self, number: int) -> bool:
        """True if another engine than this one can continue its sequences."""
        return any(_is_ready(link) for link in self.links if link.number != number)

    def lost(self, number: int) -> None:
        """Have other engines continue what this one has left."""
        self._siblings[number].lost()
        if any(link.accepts for link in self.links):
            self._distribute(self.links[number])
        elif not any(_is_ready(link) for link in self.links):
            for link in self.links:
                link.abandon()

    def free(self, number: int) -> None:
        """Have this engine continue what dead ones have left."""
        for link in self.links:
            if link.number != number and not _is_ready(link):
                self._distribute(link)

    def _distribute(self, dead: EngineLink) -> None:
        """Give the sequences that wait for a dead engine's successor to engines that accept, all of
        a request to the same one. If none accepts, they stay where they wait."""
        parts: dict[int, list[EngineSequence]] = {}
        loads = {one.link.number: one.load() for one in self._siblings if one.link.accepts}
        if not loads:  # an engine became free and died, which its link will notice
            return
        requests: dict[str, int] = {}
        for sequence in dead.release():
            message = sequence.message
            request = "" if message is None else message.request_id
            number = requests.setdefault(request, min(loads, key=loads.__getitem__))
            loads[number] += sequence.prompt_tokens + len(sequence.generated)
            parts.setdefault(number, []).append(sequence)
        for number, sequences in parts.items():
            self._siblings[number].sent(sum(one.prompt_tokens for one in sequences))
            self.links[number].adopt(sequences)
            _log.info(
                "moving sequences to another engine",
                count=len(sequences),
                engine=number,
                of_engine=dead.number,
            )

    def objection(self, number: int, ready: Ready) -> str | None:
        """Return why an engine that has loaded cannot be used along with the others."""
        for link in self.links:
            other = link.state.ready
            if link.number == number or other is None:
                continue
            for field in _SAME:
                own, theirs = getattr(ready, field), getattr(other, field)
                if own != theirs:
                    return (
                        f"engine {number} has {field} {own!r} and engine {link.number} "
                        f"{theirs!r}; all engines of a server must have the same"
                    )
        return None

    def hears(self, number: int) -> Callable[[EngineState], None]:
        """Return what the link of this engine calls when its state changes."""

        def on_state(state: EngineState) -> None:
            if state.phase is LinkPhase.READY:
                self._siblings[number].ready()
            self.state = _state_of_all([link.state for link in self.links])
            # The sequences that continue, in any engine.
            kept = state.kept.union(*(link.open_sequences.handles() for link in self.links))
            self._on_state(dataclasses.replace(state, kept=kept), engine=number)

        return on_state

    # --- all engines as one ---------------------------------------------------------------------

    @property
    def stats(self) -> EngineStats | None:
        """The sum of all engines' figures."""
        known = [link.stats for link in self.links if link.stats is not None]
        if not known:
            return None
        most = max(known, key=lambda one: one.waiting)
        fields = (*EngineCounters.__struct_fields__, *_GAUGES)
        sums = {field: sum(getattr(one, field) for one in known) for field in fields}
        return EngineStats(
            **sums, time=max(one.time for one in known), waiting_reason=most.waiting_reason
        )

    @property
    def last_message_time(self) -> float | None:
        """The latest of any engine, or of those that are ready if any is."""
        links = [link for link in self.links if _is_ready(link)] or self.links
        times = [t for link in links if (t := link.last_message_time) is not None]
        return max(times, default=None)

    @property
    def step_seconds(self) -> float | None:
        return max((s for link in self.links if (s := link.step_seconds) is not None), default=None)

    @property
    def silence(self) -> float:
        """Seconds since the last message of any engine; 0 before the first."""
        return silence_since(self.last_message_time)

    @property
    def load_seconds(self) -> float | None:
        """Of the engine that loads fastest."""
        return min((s for link in self.links if (s := link.load_seconds) is not None), default=None)

    @property
    def expects_engine(self) -> bool:
        """True if there is no engine but one is expected, so that new sequences wait for it."""
        if any(_is_ready(link) for link in self.links):
            return False
        return any(link.expects_engine for link in self.links)

    @property
    def waiting_sequences(self) -> int:
        """The number of sequences submitted here that no engine has started to run."""
        return sum(link.waiting_sequences for link in self.links)

    @property
    def bounds(self) -> QueueBounds | None:
        """Of all queues together; each engine's has an equal part."""
        return self._bounds

    @bounds.setter
    def bounds(self, bounds: QueueBounds | None) -> None:
        self._bounds = bounds
        for link in self.links:
            link.bounds = None if bounds is None else bounds.part(len(self.links))

    def predicted_wait(self, waiting: int) -> float | None:
        """Return the seconds until as many waiting sequences have started, at the recent pace of
        all engines; None if none started recently."""
        if not waiting:
            return 0.0
        paces = [link.open_sequences.admissions_per_second() for link in self.links]
        pace = sum(filter(None, paces))
        return waiting / pace if pace else None

    @property
    def open_sequences(self) -> PooledSequences:
        """Those that have not ended, running or waiting, to be looked at only."""
        return PooledSequences(self.links)

    @property
    def inspections(self) -> Inspections:
        """Of the first engine that is ready."""
        return next((link for link in self.links if _is_ready(link)), self.links[0]).inspections


class PooledSequences:
    """The open sequences of several engines."""

    def __init__(self, links: Sequence[EngineLink]) -> None:
        self._links = links

    def __len__(self) -> int:
        return sum(len(link.open_sequences) for link in self._links)

    def __iter__(self) -> Iterator[EngineSequence]:
        for link in self._links:
            yield from link.open_sequences

    def longest_gap(self, now: float) -> float:
        return max(link.open_sequences.longest_gap(now) for link in self._links)


def _is_ready(link: EngineLink) -> bool:
    return link.state.phase is LinkPhase.READY


def _is_expected(link: EngineLink) -> bool:
    return link.expects_engine


def _state_of_all(states: Sequence[EngineState]) -> EngineState:
    """Return the state of the engines as a whole: ready as soon as one is. ``ready`` has the
    capacity of those that are."""
    ready = [state for state in states if state.phase is LinkPhase.READY]
    known = ready or [state for state in states if state.ready is not None]
    kept = frozenset[int]().union(*(state.kept for state in states))
    model = _capacity([state.ready for state in known if state.ready is not None])
    if ready:
        detail = "ready" if len(ready) == len(states) else f"{len(ready)} of {len(states)} ready"
        return EngineState(LinkPhase.READY, detail, model, kept)
    for phase in (LinkPhase.LOADING, LinkPhase.LOST, LinkPhase.CONNECTING):
        for state in states:
            if state.phase is phase:
                return EngineState(phase, state.detail, model, kept)
    raise ValueError("no engines")


def _capacity(engines: Sequence[Ready]) -> Ready | None:
    if not engines:
        return None
    sums = {field: sum(getattr(one, field) for one in engines) for field in _SUMS}
    return msgspec.structs.replace(engines[0], **sums)
