"""Products in integers are those of float64 on inputs rounded to int8, in any batch, to the bit."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from engine.cpu.integers import IntegerKind, kind_of, packed_integers
from engine.cpu.library import Library, LibraryUnavailableError, library
from engine.cpu.packed import PackedWeight
from engine.weights.grouped import GroupedWeight, Scales
from tests.engine.cpu.emulation import PAIRS, TILES, compiled_library
from tests.engine.cpu.random_weights import random_weight
from tests.engine.cpu.rounding import rounded

try:
    LIBRARY = library()
except LibraryUnavailableError as error:
    pytest.skip(str(error), allow_module_level=True)

ROUNDING = 2.0**-24


@pytest.fixture(scope="module", params=[None, PAIRS, TILES], ids=["machine", "vnni", "amx"])
def opened(request: pytest.FixtureRequest) -> Library:
    """This machine's; and with the layout of AVX-512, products as VNNI or AMX defines them."""
    if request.param is None:
        return LIBRARY
    return compiled_library(request.param)


def mapped(opened: Library, weight: PackedWeight, x: Tensor) -> Tensor:
    x, y = x.contiguous(), torch.empty(x.shape[0], weight.outputs)
    opened.linear(opened.team(2), weight.struct, x.data_ptr(), x.shape[0], y.data_ptr())
    return y


@pytest.mark.parametrize("inputs", [256, 512, 1536])
@pytest.mark.parametrize("outputs", [5, 32, 135])
@pytest.mark.parametrize("kind", IntegerKind)
def test_products_are_those_of_float64_on_rounded_inputs(
    opened: Library, kind: IntegerKind, outputs: int, inputs: int
) -> None:
    weight = random_weight(kind, outputs, inputs)
    assert kind_of(weight) is kind
    chance = torch.Generator().manual_seed(1)
    x, bias = torch.randn(130, inputs, generator=chance), torch.randn(outputs, generator=chance)
    x[3, :256] = 0  # a group without a scale
    x[4] *= 1e-30
    linear = PackedWeight(weight, bias, opened.panel)
    assert linear.kind is kind
    together = mapped(opened, linear, x)
    exact = weight.dequantised().double()
    expected = rounded(x, kind) @ exact.t() + bias.double()
    # Codes times scales and minimums are rounded, and then each group's sum; terms of this size.
    spread = weight.scales.values().abs().repeat_interleave(weight.group, 1)
    size = spread.double() * weight.codes.double().abs()
    if weight.minimums is not None:
        size += weight.minimums.values().abs().repeat_interleave(weight.group, 1).double()
    bound = rounded(x, kind).abs() @ size.t() + bias.double().abs()
    assert ((together.double() - expected).abs() <= bound * ROUNDING * (6 + inputs / 8)).all()
    for rows in (*range(1, 18), 97):
        assert torch.equal(mapped(opened, linear, x[:rows]), together[:rows])
    assert torch.equal(mapped(opened, linear, x.flip(0)).flip(0), together)


@pytest.mark.parametrize("inputs", [80, 256, 1536])
@pytest.mark.parametrize("outputs", [5, 83])
@pytest.mark.parametrize("kind", IntegerKind)
def test_rows_are_read_back_to_the_bit(
    opened: Library, kind: IntegerKind, outputs: int, inputs: int
) -> None:
    if kind in (IntegerKind.NIBBLES_K, IntegerKind.BYTES_K) and inputs % 256:
        inputs = 512
    weight = random_weight(kind, outputs, inputs)
    index = torch.tensor([outputs - 1, 0, 3, 3, outputs // 2])
    packed = PackedWeight(weight, None, opened.panel)
    assert packed.kind is kind
    assert torch.equal(packed.rows(opened, index), weight.dequantised()[index])


@pytest.mark.parametrize("inputs", [8, 40, 72, 80, 112])
@pytest.mark.parametrize(
    "kind",
    [
        IntegerKind.NIBBLES,
        IntegerKind.BYTES,
        IntegerKind.BYTES_FLOAT,
        IntegerKind.NIBBLES_ZERO,
        IntegerKind.NIBBLES_MX,
    ],
)
def test_the_last_group_may_be_shorter(opened: Library, kind: IntegerKind, inputs: int) -> None:
    if kind is IntegerKind.BYTES_FLOAT:
        inputs = -(-inputs // 16) * 16
    weight = random_weight(kind, 24, inputs)
    x = torch.randn(21, inputs, generator=torch.Generator().manual_seed(2))
    found = mapped(opened, PackedWeight(weight, None, opened.panel), x)
    expected = rounded(x) @ weight.dequantised().double().t()
    torch.testing.assert_close(found.double(), expected, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("kind", [IntegerKind.NIBBLES_K, IntegerKind.BYTES_K])
def test_the_largest_codes_and_scales_do_not_overflow(opened: Library, kind: IntegerKind) -> None:
    weight = random_weight(kind, 40, 512)
    assert weight.scales.fine is not None
    if kind is IntegerKind.NIBBLES_K:
        assert weight.minimums is not None
        assert weight.minimums.fine is not None
        weight.codes.fill_(15)
        weight.scales.fine.fill_(63)
        weight.minimums.fine.fill_(255)
        weight.minimums.fine[7] = 0
    else:
        weight.codes.fill_(-32)
        weight.scales.fine.fill_(-128)
        weight.codes[7] = 32
    x = torch.ones(20, 512)
    x[3] = -1
    linear = PackedWeight(weight, None, opened.panel)
    assert linear.kind is kind
    expected = x.double() @ weight.dequantised().double().t()
    for rows in (1, 4, 20):
        found = mapped(opened, linear, x[:rows])
        torch.testing.assert_close(found.double(), expected[:rows], rtol=1e-5, atol=1e-3)


@pytest.mark.parametrize("kind", [IntegerKind.BYTES, IntegerKind.NIBBLES_K])
@pytest.mark.parametrize("wrong", [float("nan"), float("inf"), -float("inf")])
def test_an_input_that_is_not_finite_makes_its_row_nan(
    opened: Library, wrong: float, kind: IntegerKind
) -> None:
    weight = PackedWeight(random_weight(kind, 20, 256), None, opened.panel)
    x = torch.randn(3, 256, generator=torch.Generator().manual_seed(3))
    right = mapped(opened, weight, x)
    x[1, 7] = wrong
    found = mapped(opened, weight, x)
    assert found[1].isnan().all()
    assert torch.equal(found[[0, 2]], right[[0, 2]])


def test_the_kind_is_the_smallest_that_loses_nothing() -> None:
    for kind, wrong in (
        (IntegerKind.NIBBLES, IntegerKind.BYTES),
        (IntegerKind.NIBBLES_K, IntegerKind.BYTES_FLOAT),
        (IntegerKind.BYTES_K, IntegerKind.BYTES_FLOAT),
        (IntegerKind.NIBBLES_ZERO, IntegerKind.BYTES_FLOAT),
        (IntegerKind.NIBBLES_MX, IntegerKind.BYTES_FLOAT),
    ):
        weight = random_weight(kind, 8, 256)
        weight.codes[3, 5] = 33
        assert kind_of(weight) is wrong
    weight = random_weight(IntegerKind.NIBBLES_K, 8, 256)
    assert weight.scales.fine is not None
    weight.scales.fine[1, 1] = 64
    assert kind_of(weight) is IntegerKind.BYTES_FLOAT
    for kind in IntegerKind:
        weight = random_weight(kind, 8, 256)
        weight.scales.coarse[2, 0] = 1 + 2**-20  # not a float16
        assert kind_of(weight) is IntegerKind.BYTES_FLOAT


@pytest.mark.parametrize("scale", [2.0**-128, float("inf"), -0.5, 0.75])
def test_only_scales_of_mxfp4_stay_in_4_bits(scale: float) -> None:
    weight = random_weight(IntegerKind.NIBBLES_MX, 8, 256)
    weight.scales.coarse[4, 3] = scale
    assert kind_of(weight) is IntegerKind.BYTES_FLOAT
    weight.codes[4, 96:128] = 0  # what a group of zeros is multiplied by does not matter
    packed = PackedWeight(weight, None, LIBRARY.panel)
    assert packed.kind is IntegerKind.NIBBLES_MX
    expected = weight.dequantised()
    expected[4, 96:128] = 0  # NaN if the scale is infinite
    assert torch.equal(packed.rows(LIBRARY, torch.arange(8)), expected)


@pytest.mark.parametrize(
    ("kind", "bits"),
    [
        (IntegerKind.NIBBLES, 4.5),
        (IntegerKind.NIBBLES_K, 4.625),
        (IntegerKind.BYTES, 8.5),
        (IntegerKind.BYTES_K, 8.5625),
        (IntegerKind.BYTES_FLOAT, 12.0),
        (IntegerKind.NIBBLES_ZERO, 4.75),
        (IntegerKind.NIBBLES_MX, 4.25),
    ],
)
def test_a_weight_takes_as_many_bits_as_documented(kind: IntegerKind, bits: float) -> None:
    weight = random_weight(kind, 64, 1024)
    assert packed_integers(weight, kind, LIBRARY.panel).nbytes * 8 == bits * 64 * 1024


@pytest.mark.parametrize("inputs", [256, 160, 80])
@pytest.mark.parametrize("group", [64, 128, 256])
def test_wide_groups_are_stored_as_narrow_ones(opened: Library, group: int, inputs: int) -> None:
    for kind in (
        IntegerKind.NIBBLES,
        IntegerKind.BYTES,
        IntegerKind.NIBBLES_ZERO,
        IntegerKind.NIBBLES_MX,
    ):
        narrow = random_weight(kind, 24, inputs)
        scales = narrow.scales.coarse[:, : -(-inputs // group)]
        minimums = Scales(scales * 7) if kind is IntegerKind.NIBBLES_ZERO else None
        wide = GroupedWeight(narrow.codes, Scales(scales), minimums, group)
        assert kind_of(wide) is kind
        x = torch.randn(5, inputs, generator=torch.Generator().manual_seed(4))
        found = mapped(opened, PackedWeight(wide, None, opened.panel), x)
        expected = rounded(x) @ wide.dequantised().double().t()
        torch.testing.assert_close(found.double(), expected, rtol=1e-5, atol=1e-4)


def test_zero_points_take_nothing_from_the_precision() -> None:
    """The products are those of the differences in 8 bits, to the bit."""
    chance = torch.Generator().manual_seed(5)
    codes = torch.randint(-8, 8, (40, 512), generator=chance, dtype=torch.int8)
    zeros = torch.randint(-8, 9, (40, 4), generator=chance, dtype=torch.int8)
    scales = torch.randn(40, 4, generator=chance).half().float()
    small = GroupedWeight(codes, Scales(scales), Scales(scales * zeros), 128)
    large = GroupedWeight(codes - zeros.repeat_interleave(128, 1), Scales(scales), None, 128)
    assert [kind_of(each) for each in (small, large)] == [
        IntegerKind.NIBBLES_ZERO,
        IntegerKind.BYTES,
    ]
    x = torch.randn(7, 512, generator=chance)
    found, expected = (
        mapped(LIBRARY, PackedWeight(each, None, LIBRARY.panel), x) for each in (small, large)
    )
    assert torch.equal(found, expected)
