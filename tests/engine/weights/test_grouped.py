from __future__ import annotations

import pytest
import torch

from engine.weights.grouped import GroupedWeight, Scales, joined


def random_weight(
    outputs: int, *, minimums: bool = True, factored: bool = False, group: int = 8
) -> GroupedWeight:
    codes = torch.randint(-8, 8, (outputs, 4 * group), dtype=torch.int8)

    def scales() -> Scales:
        if factored:
            fine = torch.randint(-32, 64, (outputs, 4), dtype=torch.int16)
            return Scales(torch.randn(outputs, 2), fine)
        return Scales(torch.randn(outputs, 4))

    return GroupedWeight(codes, scales(), scales() if minimums else None, group)


def test_weights_are_joined_whose_groups_do_not_divide_each_other() -> None:
    parts = [
        GroupedWeight(
            torch.randint(-8, 8, (2, 96), dtype=torch.int8),
            Scales(torch.randn(2, -(-96 // group))),
            None,
            group,
        )
        for group in (48, 32, 64)
    ]
    expected = torch.cat([part.dequantised() for part in parts])
    assert torch.equal(joined(parts).dequantised(), expected)


@pytest.mark.parametrize("factored", [True, False])
@pytest.mark.parametrize("minimums", [True, False])
def test_a_weight_is_scale_times_code_minus_minimum(minimums: bool, factored: bool) -> None:
    weight = random_weight(3, minimums=minimums, factored=factored)
    found = weight.dequantised()
    for o in range(3):
        for i in range(32):
            expected = _of(weight.scales, o, i // 8) * weight.codes[o, i]
            if weight.minimums is not None:
                expected = expected - _of(weight.minimums, o, i // 8)
            assert found[o, i] == expected


def _of(scales: Scales, o: int, g: int) -> torch.Tensor:
    if scales.fine is None:
        return scales.coarse[o, g]
    return scales.coarse[o, g // 2] * scales.fine[o, g]


def test_rows_are_taken_and_put_with_their_scales() -> None:
    weight = random_weight(4, factored=True)
    whole = weight.dequantised()
    assert torch.equal(weight.rows(torch.tensor([2, 0])).dequantised(), whole[[2, 0]])
    other = random_weight(2, factored=True)
    weight.put(1, other)
    whole[1:3] = other.dequantised()
    assert torch.equal(weight.dequantised(), whole)


@pytest.mark.parametrize("other", [{}, {"minimums": False}, {"factored": True}, {"group": 16}])
def test_joined_weights_are_the_same_in_any_forms(other: dict[str, bool]) -> None:
    weight = random_weight(4)
    second = random_weight(2, **other)
    if "group" in other:
        weight = random_weight(4, group=16).in_one_form(8)
    both = joined([weight, second])
    assert torch.equal(both.dequantised(), torch.cat([weight.dequantised(), second.dequantised()]))
    assert weight.is_like(second) == (not other)


@pytest.mark.parametrize("minimums", [True, False])
@pytest.mark.parametrize("inputs", [64, 40, 33])
def test_a_group_is_divided_into_groups_with_the_same_scale(inputs: int, minimums: bool) -> None:
    weight = random_weight(3, minimums=minimums, group=16)
    weight = GroupedWeight(
        weight.codes[:, :inputs],
        weight.scales.map(lambda part: part[:, : -(-inputs // 16)]),
        weight.minimums and weight.minimums.map(lambda part: part[:, : -(-inputs // 16)]),
        16,
    )
    divided = weight.in_groups_of(8)
    assert divided.group == 8
    assert (divided.minimums is None) == (not minimums)
    assert torch.equal(divided.dequantised(), weight.dequantised())
    assert torch.equal(weight.in_one_form(8).dequantised(), weight.dequantised())


def test_a_slice_shares_the_memory() -> None:
    weight = random_weight(4)
    part = weight.slice(1, 2)
    assert torch.equal(part.dequantised(), weight.dequantised()[1:3])
    assert part.codes.data_ptr() == weight.codes[1:].data_ptr()
