from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from engine.schedule.expected import LAPSE_SECONDS, Amount, ExpectedParts

NOTHING = Amount(0, 0)


def test_parts_count_until_they_come_or_lapse() -> None:
    expected = ExpectedParts()
    expected.add("r", "a", Amount(3, 30), 0.0)
    expected.add("s", "b", Amount(1, 10), 1.0)
    assert (expected.of("a"), expected.of("b"), expected.total) == ((3, 30), (1, 10), (4, 40))
    expected.arrived("r", Amount(2, 20))
    assert expected.of("a") == (1, 10)
    expected.lapse(LAPSE_SECONDS)
    assert (expected.of("a"), expected.total) == (NOTHING, (1, 10))
    expected.arrived("s", Amount(9, 900))  # more than was said
    expected.arrived("r", Amount(1, 10))
    assert expected.total == NOTHING


@given(
    st.lists(
        st.tuples(st.sampled_from("rst"), st.sampled_from("ab"), st.integers(0, 3), st.booleans())
    )
)
def test_nothing_is_left_of_what_lapsed(steps: list[tuple[str, str, int, bool]]) -> None:
    expected = ExpectedParts()
    for now, (request, tenant, count, arrives) in enumerate(steps):
        expected.lapse(float(now))
        if arrives:
            expected.arrived(request, Amount(count, 10 * count))
        else:
            expected.add(request, tenant, Amount(count, 10 * count), float(now))
        sums = [expected.of(one) for one in "ab"]
        assert expected.total == tuple(map(sum, zip(*sums, strict=True)))
        assert min(expected.total) >= 0
    expected.lapse(len(steps) + LAPSE_SECONDS)
    assert expected.total == NOTHING
