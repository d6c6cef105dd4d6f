from __future__ import annotations

from engine.schedule.prefix_uses import PrefixUses


def test_a_hit_is_noted_at_the_end_of_what_was_found() -> None:
    uses = PrefixUses(4)
    uses.found(2, 1.0)
    uses.found(2, 3.0)
    assert uses.hits == [0, 0, 2, 0]
    assert uses.last[2] == 3.0


def test_an_evicted_block_leaves_its_hits_to_the_one_before_it() -> None:
    uses = PrefixUses(4)
    uses.found(1, 5.0)
    uses.found(2, 3.0)
    uses.pass_on(2, 1)
    assert uses.hits == [0, 2, 0, 0]
    assert uses.last[1] == 5.0


def test_the_hits_of_an_evicted_first_block_are_forgotten() -> None:
    uses = PrefixUses(2)
    uses.found(0, 1.0)
    uses.pass_on(0, None)
    assert uses.hits == [0, 0]
