"""What the engine says of its KV cache is what its block tables say."""

from __future__ import annotations

import itertools
from collections import Counter

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from engine.inspected import CACHED, FREE, Inspect, Inspected, KnownPrefix, KvState, PrefixState
from engine.messages import SamplingParams
from engine.schedule import inspection
from engine.schedule.inspection import Inspection
from engine.schedule.scheduler import Scheduler
from engine.step.sequence import Sequence
from tests.examples import examples

BLOCK = 4
_uids = itertools.count()


def scheduler(num_blocks: int = 40) -> Scheduler:
    return Scheduler(
        num_kv_blocks=num_blocks,
        block_size=BLOCK,
        max_model_len=4 * num_blocks,
        max_num_seqs=8,
        max_num_batched_tokens=64,
    )


def sequence(token_ids: list[int], request_id: str) -> Sequence:
    params = SamplingParams(max_tokens=1000)
    return Sequence(next(_uids), request_id, list(token_ids), len(token_ids), params)


def step(of: Scheduler, now: float = 0.0) -> None:
    for item in of.schedule(now).scheduled:
        of.update(item, 7 if item.completes else None, now)


def inspected(
    of: Scheduler | None, *, prefixes: int = 0, slices: list[int] | None = None
) -> Inspected:
    one = Inspection(Inspect(1, prefixes=prefixes), of, lambda: 5.0)
    for count in itertools.count(1):
        answer = one.advance()
        if answer is not None:
            if slices is not None:
                slices.append(count)
            return answer
    raise AssertionError


def kv_of(answer: Inspected) -> KvState:
    assert answer.kv is not None
    return answer.kv


def prefixes_of(of: Scheduler, most: int = 100) -> PrefixState:
    found = inspected(of, prefixes=most).prefixes
    assert found is not None
    return found


def owners(state: KvState) -> list[tuple[int, bool]]:
    """The owner of each block, and whether it is shared."""
    runs = np.frombuffer(state.runs, "<i4").reshape(-1, 3)
    return [(int(owner), bool(shared)) for owner, count, shared in runs for _ in range(count)]


def check_map(of: Scheduler) -> None:
    state = kv_of(inspected(of))
    found = owners(state)
    assert len(found) == state.blocks == of.pool.num_blocks
    kinds = Counter(owner if owner < 0 else 0 for owner, _ in found)
    assert (kinds[0], kinds[CACHED], kinds[FREE]) == (state.active, state.cached, state.free)
    holds: dict[str, set[int]] = {}
    times: Counter[int] = Counter()
    for one in of.running:
        holds.setdefault(one.request_id, set()).update(one.block_table)
        times.update(one.block_table)
    for block, (owner, shared) in enumerate(found):
        assert shared == (times[block] > 1)
        if owner >= 0:
            assert block in holds[state.holders[owner].request_id]
        else:
            assert not times[block]
            assert (owner == CACHED) == (of.pool.some(block, block + 1, 1)[1] != [None])
    assert {one.request_id: one.blocks for one in state.holders} == {
        request_id: len(blocks) for request_id, blocks in holds.items()
    }
    assert sum(one.tokens for one in state.holders) == sum(
        one.num_computed_tokens for one in of.running
    )


ACTIONS = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.integers(0, 5), st.integers(1, 60), st.integers(0, 5)),
        st.tuples(st.just("step"), st.integers(1, 6)),
        st.tuples(st.just("finish"), st.integers(0, 7)),
    ),
    max_size=40,
)


class Model:
    """Prefix hits, worked out from what the scheduler admitted."""

    def __init__(self, num_blocks: int) -> None:
        self.scheduler = scheduler(num_blocks)
        self.now = 0.0

    def run(self, actions: list[tuple[object, ...]]) -> None:
        live: list[Sequence] = []
        for number, action in enumerate(actions):
            match action:
                case ("add", int(start), int(length), int(family)):
                    tokens = [start] * 8 + list(range(family, family + length))
                    one = sequence(tokens, f"r{number}")
                    self.scheduler.add(one)
                    live.append(one)
                case ("step", int(times)):
                    for _ in range(times):
                        self.now += 1.0
                        step(self.scheduler, self.now)
                case ("finish", int(which)) if live:
                    self.scheduler.finish(live.pop(which % len(live)))


@settings(max_examples=examples(150), deadline=None)
@given(ACTIONS)
def test_the_map_is_what_the_block_tables_say(actions: list[tuple[object, ...]]) -> None:
    model = Model(40)
    model.run(actions)
    check_map(model.scheduler)


TWICE = [("add", 0, 20, 0), ("step", 3), ("finish", 0)] * 2
OTHER_END = [("add", 0, 20, 3), ("step", 3), ("finish", 0)] * 2


@settings(max_examples=examples(150), deadline=None)
@given(ACTIONS)
@example(TWICE + OTHER_END)  # a prefix with two that follow it
def test_the_prefixes_are_blocks_of_the_cache_each_found_as_often_as_those_behind_it(
    actions: list[tuple[object, ...]],
) -> None:
    model = Model(24)
    model.run(actions)
    state = prefixes_of(model.scheduler)
    cache = model.scheduler.prefix
    assert state.cached_tokens == cache.pool.num_named * BLOCK
    assert state.left_out == 0
    # No hit of a block that still has contents is lost or counted twice.
    roots = sum(one.hits for one in state.prefixes if one.parent is None)
    assert roots == sum(cache.uses.hits)
    if actions == TWICE + OTHER_END:
        assert [one.parent for one in state.prefixes] == [None, 0, 0]
    for number, one in enumerate(state.prefixes):
        assert one.tokens % BLOCK == 0
        assert one.tokens > 0
        assert one.request_id.startswith("r")
        children = [child for child in state.prefixes if child.parent == number]
        assert one.hits >= sum(child.hits for child in children)
        assert all(one.last_used >= child.last_used for child in children)
        if one.parent is not None:
            assert one.parent < number


def fill(of: Scheduler, tokens: list[int], request_id: str, now: float) -> None:
    """Compute a prompt, and release it."""
    one = sequence(tokens, request_id)
    of.add(one)
    while one.num_computed_tokens < len(tokens):
        step(of, now)
    of.finish(one)


def test_a_shared_beginning_is_one_prefix_and_what_follows_it_two_more() -> None:
    of = scheduler(100)
    system = list(range(32))
    fill(of, [*system, *range(100, 116)], "a", 1.0)
    fill(of, [*system, *range(200, 216)], "b", 2.0)  # finds 32 tokens
    fill(of, [*system, *range(200, 217)], "c", 3.0)  # finds 48
    fill(of, [*system, *range(100, 117)], "d", 4.0)  # finds 48 others
    found = prefixes_of(of).prefixes
    assert found[0] == KnownPrefix(None, 32, 0, 3, 4.0, "a")
    rest = {one.request_id: one for one in found[1:]}
    assert rest["b"] == KnownPrefix(0, 16, 0, 1, 3.0, "b")
    assert rest["a"] == KnownPrefix(0, 16, 0, 1, 4.0, "a")


def test_only_the_most_used_prefixes_are_sent_and_the_rest_counted() -> None:
    of = scheduler(200)
    for number in range(6):
        tokens = [number] * 16
        fill(of, [*tokens, 99], f"r{number}", 1.0)
        for _ in range(number + 1):
            fill(of, [*tokens, 99], f"again{number}", 2.0)
    state = prefixes_of(of, 2)
    assert [one.hits for one in state.prefixes] == [6, 5]
    assert state.left_out == 4


def test_the_hits_of_an_evicted_end_belong_to_what_is_left_of_the_prefix() -> None:
    of = scheduler(10)
    fill(of, list(range(21)), "a", 1.0)
    fill(of, list(range(21)), "b", 2.0)  # finds 20 tokens
    fill(of, list(range(100, 128)), "c", 3.0)  # needs 7 of the 10 blocks: two of a's five are lost
    found = prefixes_of(of).prefixes
    assert [(one.tokens, one.hits) for one in found] == [(12, 1)]


def test_a_large_pool_is_sampled_and_its_work_cut_in_slices(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(inspection, "MOST_MAPPED_BLOCKS", 64)
    monkeypatch.setattr(inspection, "SLICE_BLOCKS", 16)
    of = scheduler(400)
    for number in range(3):
        of.add(sequence(list(range(number * 1000, number * 1000 + 200)), f"r{number}"))
    for _ in range(15):
        step(of)
    slices: list[int] = []
    state = kv_of(inspected(of, slices=slices))
    assert state.blocks_each == 7
    assert slices[0] > 4
    found = owners(state)
    assert len(found) == -(-400 // 7)
    for place, (owner, _) in enumerate(found):
        block = place * 7
        holders = [one.request_id for one in of.running if block in one.block_table]
        assert ([state.holders[owner].request_id] if owner >= 0 else []) == holders
    assert (state.active, state.cached, state.free) == (
        of.block_counts().active,
        of.block_counts().cached,
        of.block_counts().free,
    )


def test_blocks_that_change_hands_between_slices_are_held_by_nobody_known(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(inspection, "SLICE_BLOCKS", 16)
    of = scheduler(60)
    one = sequence(list(range(60)), "r")
    of.add(one)
    step(of)
    looking = Inspection(Inspect(1), of, lambda: 0.0)
    assert looking.advance() is None
    of.finish(one)
    answer = None
    while answer is None:
        answer = looking.advance()
    state = kv_of(answer)
    assert [holder.request_id for holder in state.holders] == [""]
    assert len(owners(state)) == 60


def test_a_model_without_a_cache_has_no_blocks_and_no_prefixes() -> None:
    answer = inspected(None, prefixes=5)
    assert kv_of(answer).blocks == 0
    assert answer.prefixes == PrefixState(prefixes=(), cached_tokens=0, left_out=0)
