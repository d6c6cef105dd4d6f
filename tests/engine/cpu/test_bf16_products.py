"""Products of bfloat16 pairs are those of float64 on rounded inputs, in hardware and emulated."""

from __future__ import annotations

import math
from fractions import Fraction
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from engine.architecture.config import ModelConfig, load_model_config
from engine.attention.cache import PagedKVCache
from engine.attention.layout import Rows
from engine.cpu.library import Library, LibraryUnavailableError, library, usable_levels
from engine.cpu.llama import CompiledLlama
from engine.cpu.packed import PackedWeight, WeightKind
from tests.engine.cpu.emulation import PAIRS, TILES, compiled_library
from tests.engine.tiny_models import VOCABULARY, Variant, save_model

ROUNDING = 2.0**-24  # of a float32, relative
SMALLEST = 2.0**-126  # normal float32
CPU = torch.device("cpu")


try:
    LIBRARY = library()
except LibraryUnavailableError as error:
    pytest.skip(str(error), allow_module_level=True)
HARDWARE = [level for level in usable_levels() if "avx512_bf16" in level.needs]


@pytest.fixture(scope="module", params=[PAIRS, TILES, *HARDWARE], ids=lambda level: level.name)
def opened(request: pytest.FixtureRequest) -> Library:
    return compiled_library(request.param)


def random(*shape: int, seed: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def packed_pairs(opened: Library, weight: Tensor, bias: Tensor | None = None) -> PackedWeight:
    packed = PackedWeight(weight, bias, opened.panel, pair_inputs=opened.pair_inputs)
    assert packed.kind is WeightKind.BFLOAT16_PAIRS
    return packed


def mapped(opened: Library, packed: PackedWeight, x: Tensor, threads: int = 1) -> Tensor:
    x, y = x.contiguous(), torch.empty(x.shape[0], packed.outputs)
    args = (packed.struct, x.data_ptr(), x.shape[0], y.data_ptr())
    opened.linear(opened.team(threads), *args)
    return y


def relative_error(roundings: int) -> float:
    """That so many roundings in a row may add to a float32 (Higham, "Accuracy and Stability of
    Numerical Algorithms", section 3.1)."""
    return roundings * ROUNDING / (1 - roundings * ROUNDING)


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("inputs", [8, 33, 64, 600])
@pytest.mark.parametrize("outputs", [5, 64, 83, 135])
def test_every_tile_is_within_the_bound_of_float32_sums(
    opened: Library, outputs: int, inputs: int, threads: int
) -> None:
    weight = random(outputs, inputs, seed=inputs).bfloat16().float()
    bias, x = random(outputs, seed=1), random(130, inputs, seed=2)
    packed = packed_pairs(opened, weight, bias)
    rounded = x.bfloat16().double()
    expected = rounded @ weight.double().t() + bias.double()
    size = rounded.abs() @ weight.double().abs().t() + bias.double().abs()
    together = mapped(opened, packed, x, threads)
    # One for each input, at most as many for blocks of them, and one for the bias.
    assert ((together.double() - expected).abs() <= size * relative_error(2 * inputs + 1)).all()
    for rows in (*range(1, 41), 97):
        assert torch.equal(mapped(opened, packed, x[:rows], threads), together[:rows])


@pytest.mark.parametrize("kind", [WeightKind.FLOAT32, WeightKind.BFLOAT16])
def test_other_weights_are_right_in_tiles_of_avx512(opened: Library, kind: WeightKind) -> None:
    inputs = 600
    weight, x = random(135, inputs, seed=10), random(40, inputs, seed=11)
    if kind is WeightKind.BFLOAT16:
        weight = weight.bfloat16().float()
    packed = PackedWeight(weight, None, opened.panel)
    assert packed.kind is kind
    exact = weight.double()
    size = x.double().abs() @ exact.abs().t()
    together = mapped(opened, packed, x)
    # Two for each input, at most as many for blocks of them.
    off = (together.double() - x.double() @ exact.t()).abs()
    assert (off <= size * relative_error(3 * inputs)).all()
    for rows in range(1, 41):
        assert torch.equal(mapped(opened, packed, x[:rows]), together[:rows])


def test_a_row_is_the_same_to_the_last_bit_in_any_batch(opened: Library) -> None:
    packed = packed_pairs(opened, random(96, 700, seed=3).bfloat16().float())
    x = random(50, 700, seed=4)
    alone = torch.cat([mapped(opened, packed, row[None]) for row in x])
    assert torch.equal(mapped(opened, packed, x), alone)
    assert torch.equal(mapped(opened, packed, x.flip(0)).flip(0), alone)


def test_inputs_are_rounded_as_torch_rounds_them(opened: Library) -> None:
    bits = torch.randint(-(2**31), 2**31, (4000,), generator=torch.Generator().manual_seed(5))
    ties = (bits & ~0xFFFF) | 0x8000
    special = torch.tensor([0x7F800000, 0x7FFFFFFF, 0x7F800001, 0x7F7FFFFF, 0x00800000, 0])
    x = torch.cat([bits, ties, special]).to(torch.int32).view(torch.float32)
    expected = x.bfloat16().float()
    expected[expected.abs() < SMALLEST] = 0
    one = torch.zeros(1, 16)
    one[0, 3] = 1
    rows = torch.zeros(len(x), 16)
    rows[:, 3] = x
    found = mapped(opened, packed_pairs(opened, one), rows)[:, 0]
    torch.testing.assert_close(found, expected, rtol=0, atol=0, equal_nan=True)


def nearest(value: Fraction) -> Fraction:
    """Rounded to float32, to nearest, ties to even; zero instead of what is not normal."""
    if not value:
        return value
    exponent = math.frexp(value)[1]
    unit = Fraction(2) ** (exponent - 24)
    rounded = round(value / unit) * unit
    return rounded if abs(rounded) >= SMALLEST else Fraction(0)


def total_of_pairs(products: list[Fraction]) -> Fraction:
    """VDPBF16PS: the upper of a pair first, one rounding each, no denormals."""
    total = Fraction(0)
    for lower, upper in zip(products[::2], products[1::2], strict=True):
        total = nearest(nearest(total + upper) + lower)
    return total


def total_of_tiles(products: list[Fraction]) -> Fraction:
    """TDPBF16PS: of 32 inputs, the lower of all pairs and the upper have a sum each."""
    total = Fraction(0)
    for first in range(0, len(products), 32):
        lower = upper = Fraction(0)
        some = products[first : first + 32]
        for low, high in zip(some[::2], some[1::2], strict=True):
            lower, upper = nearest(lower + low), nearest(upper + high)
        total = nearest(total + nearest(lower + upper))
    return total


@pytest.mark.parametrize(
    ("of_weights", "of_inputs"),
    [(0, 0), (-62, -63), (-126, 30), (30, -126)],
    ids=["usual", "small sums", "denormal weights", "denormal inputs"],
)
def test_sums_are_those_of_the_instruction_to_the_last_bit(
    opened: Library, of_weights: int, of_inputs: int
) -> None:
    """Its published definition."""
    inputs, outputs = 60, 33
    weight = (random(outputs, inputs, seed=6) * 2.0**of_weights).bfloat16().float()
    x = (random(2, inputs, seed=7) * 2.0**of_inputs).bfloat16().float()
    found = mapped(opened, packed_pairs(opened, weight), x)
    for row, results in zip(x, found, strict=True):
        for weights, result in zip(weight, results.tolist(), strict=True):
            products = [
                nearest(Fraction(a)) * nearest(Fraction(b))
                for a, b in zip(row.tolist(), weights.tolist(), strict=True)
            ]
            total = total_of_tiles(products) if opened.pair_inputs > 2 else total_of_pairs(products)
            assert Fraction(result) == total


def test_neighbouring_rows_do_not_affect_a_row(opened: Library) -> None:
    """An odd number of inputs leaves half a pair over: neither it nor older values count."""
    wide = packed_pairs(opened, torch.ones(3, 80))
    mapped(opened, wide, torch.full((40, 80), math.inf))
    narrow = packed_pairs(opened, torch.ones(3, 33))
    assert torch.equal(mapped(opened, narrow, torch.ones(7, 33)), torch.full((7, 3), 33.0))


# --- a model -----------------------------------------------------------------------------------


class Weights:
    def __init__(self, oracle: PreTrainedModel, dtype: torch.dtype) -> None:
        self._tensors = {name: t.to(dtype) for name, t in oracle.state_dict().items()}

    def tensor(self, name: str) -> Tensor:
        return self._tensors[name]


SHAPE = Variant(
    "qwen3",
    {"head_dim": 64, "intermediate_size": 208, "num_hidden_layers": 2, "attention_bias": True},
    dtype=torch.bfloat16,
)
SEQUENCES = ((0, 17), (17, 18), (18, 40))  # slices of the tokens


def rounding_linear_inputs(oracle: PreTrainedModel) -> PreTrainedModel:
    """Whose linear maps see bfloat16, in arithmetic of float64."""

    def rounded(_: nn.Module, inputs: tuple[Tensor]) -> tuple[Tensor]:
        return (inputs[0].bfloat16().to(inputs[0].dtype),)

    for module in oracle.modules():
        if isinstance(module, nn.Linear):
            module.register_forward_pre_hook(rounded)
    return oracle


def oracle_states(oracle: PreTrainedModel, tokens: Tensor) -> Tensor:
    with torch.inference_mode():
        parts = [oracle.model(tokens[None, a:b]).last_hidden_state[0] for a, b in SEQUENCES]
    return torch.cat(parts)


def states(
    decoder: CompiledLlama, config: ModelConfig, tokens: Tensor, cuts: tuple[int, ...]
) -> Tensor:
    """Of all tokens, each sequence computed in pieces of at most ``cuts`` tokens, in turn."""
    cache = PagedKVCache(
        num_layers=config.num_layers,
        num_blocks=20,
        num_kv_heads=config.num_kv_heads,
        block_size=8,
        head_dim=config.head_dim,
        dtype=torch.float32,
        device=CPU,
    )
    blocks = torch.arange(3 * 5).view(3, 5)
    out = torch.empty(len(tokens), config.hidden_size)
    done = [0, 0, 0]
    for cut in cuts:
        places, positions, owners = [], [], []
        for number, (first, last) in enumerate(SEQUENCES):
            for position in range(done[number], min(done[number] + cut, last - first)):
                places.append(first + position)
                positions.append(position)
                owners.append(number)
            done[number] = min(done[number] + cut, last - first)
        tables = Rows(blocks, torch.tensor(owners), max(positions) + 1)
        out[places] = decoder.hidden_states(
            tokens[places],
            torch.tensor(positions),
            cache,
            tables,
        )
    return out


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("bf16_products", [True, False])
def test_a_model_equals_float64_with_its_inputs_rounded_or_not(
    opened: Library, tmp_path: Path, bf16_products: bool, dtype: torch.dtype
) -> None:
    oracle = save_model(SHAPE, tmp_path)
    config = load_model_config(tmp_path)
    decoder = CompiledLlama(
        *(config, Weights(oracle, dtype), opened),
        max_positions=64,
        threads=2,
        bf16_products=bf16_products,
    )
    tokens = torch.randint(VOCABULARY, (40,), generator=torch.Generator().manual_seed(8))
    oracle = oracle.double()
    exact = oracle_states(oracle, tokens)
    rounded = oracle_states(rounding_linear_inputs(oracle), tokens)
    effect = (rounded - exact).abs().max()
    assert effect > 1e-2  # so that the following assertions can distinguish the two
    found = states(decoder, config, tokens, (9, 1, 7, 1, 22)).double()
    off = (found - (rounded if bf16_products else exact)).abs().amax(dim=1)
    # Where float32 ends up on the other side of a tie than float64, a row is off by a rounding.
    assert (off > 1e-5).sum() <= len(tokens) // 10
    assert off.max() <= effect


def test_logits_equal_float64_of_rounded_states(opened: Library, tmp_path: Path) -> None:
    oracle = save_model(SHAPE, tmp_path)
    decoder = CompiledLlama(
        *(load_model_config(tmp_path), Weights(oracle, torch.bfloat16), opened),
        max_positions=64,
        threads=2,
        bf16_products=True,
    )
    hidden = random(7, 64, seed=12)
    with torch.inference_mode():
        expected = oracle.double().lm_head(hidden.bfloat16().double())
    torch.testing.assert_close(decoder.logits(hidden).double(), expected, rtol=0, atol=1e-5)


def test_a_library_without_such_products_is_refused(tmp_path: Path) -> None:
    if LIBRARY.bf16_products:
        pytest.skip("this machine's library has them")
    oracle = save_model(SHAPE, tmp_path)
    with pytest.raises(ValueError, match="no products of bfloat16"):
        CompiledLlama(
            *(load_model_config(tmp_path), Weights(oracle, torch.float32), LIBRARY),
            max_positions=64,
            threads=1,
            bf16_products=True,
        )
