"""What rank 0 and the other ranks tell each other, besides the tensors of their collectives.

Frozen msgspec structs, framed as those of ``engine.messages``, over one socket for each rank.
"""

from __future__ import annotations

import msgspec

from engine.config import EngineConfig

# --- rank 0 to another -----------------------------------------------------------------------


class Begin(msgspec.Struct, frozen=True, kw_only=True, tag="begin"):
    """Load your part of the model. ``store``: the file by which the ranks find each other."""

    config: EngineConfig
    rank: int
    size: int
    store: str


class NewSequence(msgspec.Struct, frozen=True, array_like=True):
    """As much of a sequence as decides what is computed of it, but for its tokens and blocks.
    ``greedy``: it wants its most likely token and nothing else (``is_plain_greedy``)."""

    uid: int
    num_prompt_tokens: int
    greedy: bool
    reports_prompt: bool
    embeds: bool


class Planned(msgspec.Struct, frozen=True, array_like=True):
    """One ``ScheduledSequence``, and what its sequence gained since it was last planned: of its
    tokens the first ``tokens_kept`` are those of before, of its blocks ``blocks_kept``."""

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
    """Choose the tokens of the launched step ``number``, but none for ``skipped`` (uids)."""

    number: int
    skipped: list[int]


class SettleRank(msgspec.Struct, frozen=True, tag="settle"):
    """The last step failed; say where you stand."""


ToRank = Begin | RankStep | Sample | SettleRank


# --- another to rank 0 -----------------------------------------------------------------------


class Arrived(msgspec.Struct, frozen=True, tag="arrived"):
    """Started, and ready to begin."""


class RankProgress(msgspec.Struct, frozen=True, tag="progress"):
    """As ``engine.messages.Loading``, of one rank."""

    phase: str
    done: int
    total: int


class Loaded(msgspec.Struct, frozen=True, tag="loaded"):
    """Ready for the first step."""


class RankFailed(msgspec.Struct, frozen=True, tag="failed"):
    """Loading (step 0) or a step raised, when so many collective calls had begun.
    ``by_others``: a collective broke, so that the cause is most likely another rank."""

    step: int
    calls: int
    error: str
    by_others: bool


class RankSettled(msgspec.Struct, frozen=True, tag="settled"):
    """No step is running here; so many collective calls have begun."""

    calls: int


class Beat(msgspec.Struct, frozen=True, tag="beat"):
    """A sign of life, each second, and how many collective calls have begun."""

    calls: int


FromRank = Arrived | RankProgress | Loaded | RankFailed | RankSettled | Beat
