"""What a step looks up on the device names the rows that the plan says."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from engine.messages import Embed, SamplingParams
from engine.run.lookups import Lookups, SentLookups
from engine.step.step import PENDING, ScheduledSequence
from tests.engine.run.plans import sequence

PIECES = st.lists(
    st.tuples(
        st.integers(1, 5),  # tokens
        st.booleans(),  # completes
        st.booleans(),  # its last token is pending
        st.booleans(),  # embeds
    ),
    min_size=1,
    max_size=6,
)


def items_of(pieces: list[tuple[int, bool, bool, bool]]) -> list[ScheduledSequence]:
    items = []
    for uid, (size, completes, pending, embeds) in enumerate(pieces):
        tokens = [1] * (size - 1) + [PENDING if pending else 1] + [1] * (not completes)
        params = SamplingParams(max_tokens=9, seed=uid, temperature=0.5 + uid, top_k=uid)
        owner = sequence(uid, tokens, [0], params)
        owner.embed = Embed() if embeds else None
        items.append(ScheduledSequence(owner, 0, size, completes))
    return items


def sent_lookups(lookups: Lookups, draws_from: int | None) -> SentLookups:
    return lookups.sent([torch.from_numpy(array) for array in lookups.arrays(draws_from)])


@given(PIECES, st.booleans(), st.booleans())
def test_rows_are_found_again(
    pieces: list[tuple[int, bool, bool, bool]], every_row: bool, by_kernel: bool
) -> None:
    items = items_of(pieces)
    ends = np.cumsum([item.num_tokens for item in items])
    places = {item.sequence.uid: 10 + item.sequence.uid for item in items}
    rows = [(uid, position) for uid, item in enumerate(items) for position in range(item.end)]
    lookups = Lookups.of(items, ends - 1, len(rows), places, every_row=every_row)
    there = sent_lookups(lookups, 100 if by_kernel else None)

    states = rows if there.kept is None else [rows[row] for row in there.kept.tolist()]
    last = [(uid, item.end - 1) for uid, item in enumerate(items)]
    assert [states[row] for row in lookups.hidden_rows.tolist()] == last
    assert states == (rows if every_row else last)

    sampling = [uid for uid, (_, completes, _, embeds) in enumerate(pieces) if completes > embeds]
    assert list(lookups.sampling) == sampling
    taken = (
        states
        if there.sampling_rows is None
        else [states[row] for row in there.sampling_rows.tolist()]
    )
    assert taken == [last[uid] for uid in sampling]

    pending = [uid for uid, item in enumerate(items) if item.sequence.token_ids[item.end - 1] < 0]
    if not pending:
        assert there.pending is None
    else:
        assert there.pending is not None
        targets, sources = there.pending
        assert [rows[row] for row in targets.tolist()] == [last[uid] for uid in pending]
        assert sources.tolist() == [10 + uid for uid in pending]

    if not by_kernel or not sampling:
        assert there.draws is None
    else:
        assert there.draws is not None
        assert there.draws.positions.tolist() == [items[uid].end for uid in sampling]
        assert there.draws.params.seeds.tolist() == sampling
        assert there.draws.params.temperature.tolist() == [0.5 + uid for uid in sampling]


def test_a_pending_token_needs_a_place() -> None:
    items = items_of([(2, True, True, False)])
    with pytest.raises(KeyError):
        Lookups.of(items, np.array([1]), 2, {}, every_row=False)
