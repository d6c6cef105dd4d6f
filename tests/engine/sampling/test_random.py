"""Random numbers come from Philox4x32-10 and depend on seed and position only."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.sampling.random import philox4x32, uniforms


def words(text: str) -> tuple[np.ndarray, ...]:
    return tuple(np.array([int(word, 16)], dtype=np.uint64) for word in text.split())


# The philox4x32 lines, 10 rounds, of Random123's tests/kat_vectors.
KNOWN_ANSWERS = [
    (
        "00000000 00000000 00000000 00000000",
        "00000000 00000000",
        "6627e8d5 e169c58d bc57ac4c 9b00dbd8",
    ),
    (
        "ffffffff ffffffff ffffffff ffffffff",
        "ffffffff ffffffff",
        "408f276d 41c83b0e a20bc7c6 6d5451fd",
    ),
    (
        "243f6a88 85a308d3 13198a2e 03707344",
        "a4093822 299f31d0",
        "d16cfe09 94fdcceb 5001e420 24126ea1",
    ),
]


@pytest.mark.parametrize(("counter", "key", "expected"), KNOWN_ANSWERS)
def test_philox_gives_the_published_answers(counter: str, key: str, expected: str) -> None:
    result = philox4x32(words(counter), words(key))
    assert [f"{int(word[0]):08x}" for word in result] == expected.split()


def test_a_uniform_takes_its_53_bits_from_the_first_two_words() -> None:
    seed, position = 0x299F31D0A4093822, 0x85A308D3243F6A88
    zero = np.zeros(1, dtype=np.uint64)
    first, second, _, _ = philox4x32(
        (*words("243f6a88 85a308d3"), zero, zero), words("a4093822 299f31d0")
    )
    bits = (int(first[0]) >> 5) * 2**26 + (int(second[0]) >> 6)
    found = uniforms(np.array([seed], np.uint64), np.array([position], np.uint64))
    assert found.tolist() == [bits / 2**53]


@given(
    st.lists(st.tuples(st.integers(0, 2**63 - 1), st.integers(0, 2**24)), min_size=1, max_size=40)
)
def test_a_uniform_does_not_depend_on_its_neighbours(pairs: list[tuple[int, int]]) -> None:
    seeds, positions = (np.array(column, np.uint64) for column in zip(*pairs, strict=True))
    together = uniforms(seeds, positions)
    apart = [uniforms(seeds[i : i + 1], positions[i : i + 1])[0] for i in range(len(pairs))]
    assert together.tolist() == apart
    assert ((together >= 0) & (together < 1)).all()


@pytest.mark.parametrize("axis", ["positions of one seed", "seeds at one position"])
def test_uniforms_are_uniform_and_uncorrelated(axis: str) -> None:
    from scipy import stats  # slow to import

    varying, fixed = np.arange(20_000, dtype=np.uint64), np.full(20_000, 77, dtype=np.uint64)
    values = uniforms(fixed, varying) if axis.startswith("positions") else uniforms(varying, fixed)
    assert stats.kstest(values, "uniform").pvalue > 1e-3
    assert abs(np.corrcoef(values[1:], values[:-1])[0, 1]) < 0.03
