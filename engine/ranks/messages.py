"""The messages between rank 0 and the other ranks, besides the tensors of their collectives.

Frozen msgspec structs, framed like those of ``engine.messages``, over one socket per rank; and over
one more for each other host.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from engine.config import EngineConfig

# --- rank 0 to another rank -----------------------------------------------------------------------


class Begin(msgspec.Struct, frozen=True, kw_only=True, tag="begin"):
    """Load a part of the model on this host's device ``device``. The ranks find each other through
    the file ``store``, or if there are several hosts at ``store_port`` of rank 0's. ``interface``:
    the network interface that leads to the other hosts; None: this process knows it already.
    ``model_files``: what this host's must equal (``engine.ranks.model_files``), if it is another.
    """

    config: EngineConfig
    rank: int
    size: int
    device: int
    store: str
    store_port: int = 0
    interface: str | None = None
    model_files: str = ""


class NewSequence(msgspec.Struct, frozen=True, array_like=True):
    """The facts that determine what is computed of a sequence, except for its tokens and blocks.
    ``greedy``: only its most likely token is needed (``is_plain_greedy``); ``plain``: at no time
    does it need more than the sampling kernel does (``is_always_plain``)."""

    uid: int
    num_prompt_tokens: int
    greedy: bool
    reports_prompt: bool
    embeds: bool
    plain: bool


class Planned(msgspec.Struct, frozen=True, array_like=True):
    """One ``ScheduledSequence``, and how its sequence changed since it was last planned: the first
    ``tokens_kept`` tokens and ``blocks_kept`` blocks are unchanged."""

    uid: int
    preemptions: int
    start: int
    num_tokens: int
    completes: bool
    tokens_kept: int
    tokens: list[int]
    blocks_kept: int
    blocks: list[int]


class RankStep(msgspec.Struct, frozen=True, tag="step"):
    """Run this plan, or, if ``ahead``, only launch it. ``number`` counts steps from 1.
    ``forgotten``: sequences that ended before. ``clears_blocks``: see
    ``ModelRunner.clears_blocks``."""

    number: int
    ahead: bool
    planned: list[Planned]
    new: list[NewSequence]
    forgotten: list[int]
    clears_blocks: bool


class Sample(msgspec.Struct, frozen=True, tag="sample"):
    """Sample the tokens of the launched step ``number``, except for ``skipped`` (uids)."""

    number: int
    skipped: list[int]


class SettleRank(msgspec.Struct, frozen=True, tag="settle"):
    """The last step failed; report your position."""


ToRank = Begin | RankStep | Sample | SettleRank


# --- another rank to rank 0 -----------------------------------------------------------------------


class Arrived(msgspec.Struct, frozen=True, tag="arrived"):
    """The process has started and is ready to begin."""


LoadingPhase = Literal["config", "weights", "kv_cache", "warmup"]
_Count = Annotated[int, Meta(ge=0, le=2**53)]


class RankProgress(msgspec.Struct, frozen=True, tag="progress"):
    """Like ``engine.messages.Loading``, for one rank."""

    phase: LoadingPhase
    done: _Count
    total: _Count


class Loaded(msgspec.Struct, frozen=True, tag="loaded"):
    """Ready for the first step."""


class RankFailed(msgspec.Struct, frozen=True, tag="failed"):
    """Loading (step 0) or a step raised, after this many collective calls had begun. ``by_others``:
    a collective failed, so that the cause is most likely another rank."""

    step: _Count
    calls: _Count
    error: str
    by_others: bool


class RankSettled(msgspec.Struct, frozen=True, tag="settled"):
    """No step is running here; this many collective calls have begun."""

    calls: _Count


class Beat(msgspec.Struct, frozen=True, tag="beat"):
    """Sent every second, with the number of collective calls begun."""

    calls: _Count


FromRank = Arrived | RankProgress | Loaded | RankFailed | RankSettled | Beat


# --- another host to rank 0's ---------------------------------------------------------------------

_Name = Annotated[str, Meta(max_length=253)]
_Session = Annotated[str, Meta(max_length=64)]


class JoinHost(msgspec.Struct, frozen=True, tag="join_host"):
    """A host offers its devices: the first message of its first connection. ``release``: what it
    runs, which must equal what rank 0 runs."""

    name: _Name
    release: Annotated[str, Meta(max_length=200)]
    gpus: Annotated[int, Meta(ge=0, le=4096)]


class JoinRank(msgspec.Struct, frozen=True, tag="join_rank"):
    """This connection is to be rank ``rank``'s. ``session``: that of its host."""

    session: _Session
    rank: int


class RankEnded(msgspec.Struct, frozen=True, tag="rank_ended"):
    """A rank's process has ended; negative: by this signal."""

    rank: int
    status: Annotated[int, Meta(ge=-255, le=255)]


FromHost = JoinHost | JoinRank | RankEnded


# --- rank 0's host to another ---------------------------------------------------------------------


class Welcome(msgspec.Struct, frozen=True, tag="welcome"):
    """Start ranks ``first`` to ``first + count - 1``, each with its own connection. Also confirms
    the connection of a rank, which is then the only one counted."""

    session: _Session
    first: Annotated[int, Meta(ge=1, le=64)]
    count: Annotated[int, Meta(ge=1, le=64)]


class JoinRefused(msgspec.Struct, frozen=True, tag="refused"):
    """This host cannot join, at least not now."""

    reason: Annotated[str, Meta(max_length=1000)]


ToHost = Welcome | JoinRefused
