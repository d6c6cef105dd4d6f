"""The compiled pass equals the same model written out in float64, whatever the rows are."""

from __future__ import annotations

import copy
import random
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from transformers import DynamicCache, PreTrainedModel

from engine.architecture.config import KVLayer, load_model_config
from engine.attention.cache import PagedKVCache
from engine.attention.groups import GroupedKVCache, LayerGroup, groups_of
from engine.attention.layout import Rows
from engine.cpu.library import LibraryUnavailableError, library
from engine.cpu.llama import CompiledLlama
from engine.run.loader import DecoderOptions, LoadSettings, load_decoder
from engine.weights.quantization import quantise
from tests.engine.cpu.rounding import rounded
from tests.engine.tiny_models import VARIANTS, VOCABULARY, Variant, save_model

try:
    LIBRARY = library()
except LibraryUnavailableError as error:
    pytest.skip(str(error), allow_module_level=True)

# Products of bfloat16 in hardware round more than the oracle here; they have separate tests.
PLAIN = copy.copy(LIBRARY)
PLAIN.bf16_products = False
CPU = torch.device("cpu")
BLOCK_SIZE = 8
BLOCKS = 64


def variant(head_dim: int, heads: int, kv_heads: int, **more: Any) -> Variant:
    sizes = {"head_dim": head_dim, "num_attention_heads": heads, "num_key_value_heads": kv_heads}
    return Variant("qwen3", {**sizes, "num_hidden_layers": 2, **more})


SHAPES = {
    "16x4/4": variant(16, 4, 4),
    "16x7/1": variant(16, 7, 1),
    "64x4/2": variant(64, 4, 2, intermediate_size=208),
    "80x3/1": variant(80, 3, 1, attention_bias=True),
    "96x4/2": variant(96, 4, 2, hidden_size=128),
    "128x2/1": variant(
        *(128, 2, 1),
        use_sliding_window=True,
        sliding_window=13,
        layer_types=["sliding_attention", "full_attention"],
    ),
    **{name: VARIANTS[name] for name in ("smollm3", "phi3_partial", "granite", "olmo3", "gemma3")},
    **{name: VARIANTS[name] for name in ("ministral3", "gemma4", "gemma4_inputs")},
    # Each token has all experts, as rounding might choose others.
    "mixture": Variant(
        "olmoe", {"num_experts": 4, "num_experts_per_tok": 4, "num_hidden_layers": 2}
    ),
    "parallel_mixture": Variant(
        "gemma4", VARIANTS["gemma4_experts"].settings | {"num_experts": 4, "top_k_experts": 4}
    ),
}
# Which experts a token has may depend on rounding, but not on the other rows.
ROUTED = {name: VARIANTS[name] for name in ("mixtral", "olmoe", "qwen3_moe", "gemma4_experts")}


# By how much states, of size 1 or so, may be off: each, and their root mean square. Now and then
# two precisions round a key or value to different bfloat16 neighbours, a part in 256 from each
# other, which few states show; were they not rounded, the root mean square would be 3e-3.
TOLERANCES = {
    torch.float32: (3e-4, 1e-5),
    torch.float16: (7e-3, 2e-4),
    torch.bfloat16: (5e-2, 1e-3),
}


class RoundedCache(DynamicCache):
    """Remembers keys and values as ``dtype`` does."""

    def __init__(self, dtype: torch.dtype) -> None:
        super().__init__()
        self.dtype = dtype

    def update(self, keys: Tensor, values: Tensor, *args: Any, **more: Any) -> Any:
        rounded = [each.to(self.dtype).to(each.dtype) for each in (keys, values)]
        return super().update(*rounded, *args, **more)


@dataclass(frozen=True)
class Subject:
    decoder: CompiledLlama
    oracle: PreTrainedModel  # float64
    layers: tuple[KVLayer, ...]
    dtype: torch.dtype  # of the cache

    def cache(self) -> PagedKVCache | GroupedKVCache:
        caches = [self._cache(group) for group in groups_of(self.layers)]
        return caches[0] if len(caches) == 1 else GroupedKVCache(caches)

    def _cache(self, group: LayerGroup) -> PagedKVCache:
        return PagedKVCache(
            num_layers=len(group.layers),
            num_blocks=BLOCKS,
            num_kv_heads=group.num_kv_heads,
            block_size=BLOCK_SIZE,
            head_dim=group.head_dim,
            dtype=self.dtype,
            device=CPU,
        )

    def assert_close(self, found: list[Tensor], expected: list[Tensor]) -> None:
        error = (torch.cat(found).double() - torch.cat(expected)).abs()
        most, usual = TOLERANCES[self.dtype]
        assert float(error.max()) < most
        assert float(error.square().mean().sqrt()) < usual

    def expected(self, tokens: list[int]) -> Tensor:
        """Normalised final states of every token, float64."""
        with torch.inference_mode():
            cache = None if self.dtype == torch.float32 else RoundedCache(self.dtype)
            out = self.oracle.model(torch.tensor([tokens]), past_key_values=cache)
        states: Tensor = out.last_hidden_state[0]
        return states


SUBJECTS = [
    *((shape, torch.float32) for shape in SHAPES),
    *(
        (shape, dtype)
        for shape in ("16x4/4", "80x3/1", "128x2/1", "16x7/1")
        for dtype in (torch.bfloat16, torch.float16)
    ),
]
ROUTED_SUBJECTS = [(name, torch.float32) for name in ROUTED]


@pytest.fixture(scope="module", params=SUBJECTS, ids=str)
def subject(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Subject:
    directory: Path = tmp_path_factory.mktemp("compiled")
    shape, dtype = request.param
    oracle = save_model((SHAPES | ROUTED)[shape], directory)
    weights = torch.float32 if dtype == torch.float16 else dtype
    for parameter in oracle.parameters():
        parameter.data = parameter.data.to(weights).to(parameter.dtype)
    oracle = oracle.double()
    oracle.set_experts_implementation("eager")  # the others do not know float64
    config = load_model_config(directory)
    torch.set_num_threads(3)  # each may meet the others' work half done
    loaded = load_decoder(
        config,
        LoadSettings(directory, weights, CPU, lambda phase, done, total: None),
        DecoderOptions(max_positions=256, library=PLAIN),
    )
    torch.set_num_threads(1)
    assert isinstance(loaded.decoder, CompiledLlama)
    return Subject(loaded.decoder, oracle, config.kv_layers, dtype)


def run(
    subject: Subject,
    cache: PagedKVCache | GroupedKVCache,
    pieces: list[tuple[list[int], int, list[int]]],
    kept: list[int] | None,
) -> Tensor:
    """``pieces``: tokens, position of the first, block table."""
    tokens = [token for piece, _, _ in pieces for token in piece]
    positions = [start + i for piece, start, _ in pieces for i in range(len(piece))]
    width = max(len(table) for _, _, table in pieces)
    blocks = torch.tensor([table + [0] * (width - len(table)) for _, _, table in pieces])
    sequences = [number for number, (piece, _, _) in enumerate(pieces) for _ in piece]
    tables = Rows(blocks, torch.tensor(sequences), max(positions) + 1)
    return subject.decoder.hidden_states(
        torch.tensor(tokens),
        torch.tensor(positions),
        cache,
        tables,
        None if kept is None else torch.tensor(kept),
    )


@settings(max_examples=6, deadline=None)
@given(seed=st.integers(0, 10**9))
def test_any_mix_of_chunks_and_single_rows_equals_float64(subject: Subject, seed: int) -> None:
    chance = random.Random(seed)
    count = chance.randint(1, 4)
    texts = [chance.choices(range(VOCABULARY), k=chance.randint(2, 120)) for _ in range(count)]
    free = list(range(BLOCKS))
    chance.shuffle(free)
    tables = [[free.pop() for _ in range(-(-len(text) // BLOCK_SIZE))] for text in texts]
    expected = [subject.expected(text) for text in texts]
    cache, done = subject.cache(), [0] * count
    all_found, all_wanted = [], []
    while any(at < len(text) for at, text in zip(done, texts, strict=True)):
        pieces, wanted = [], []
        for number, text in enumerate(texts):
            left = len(text) - done[number]
            take = min(left, chance.choice([0, 1, 1, 2, 3, 7, 30, 110]))
            if take:
                start = done[number]
                pieces.append((text[start : start + take], start, tables[number]))
                wanted.append(expected[number][start : start + take])
                done[number] += take
        if not pieces:
            continue
        states = torch.cat(wanted)
        kept = None
        if chance.random() < 0.5:
            kept = sorted(chance.sample(range(len(states)), chance.randint(1, len(states))))
            states = states[kept]
        all_found.append(run(subject, cache, pieces, kept))
        all_wanted.append(states)
    subject.assert_close(all_found, all_wanted)


@pytest.mark.parametrize("subject", [*SUBJECTS, *ROUTED_SUBJECTS], ids=str, indirect=True)
def test_a_row_is_the_same_to_the_last_bit_in_any_batch(subject: Subject) -> None:
    """So a seeded request's tokens do not depend on who else is in the batch."""
    chance = random.Random(7)
    text = chance.choices(range(VOCABULARY), k=40)
    others = [chance.choices(range(VOCABULARY), k=20) for _ in range(15)]
    alone, together = subject.cache(), subject.cache()
    table = list(range(5))
    run(subject, alone, [(text[:-1], 0, table)], None)
    run(subject, together, [(text[:-1], 0, table)], None)
    [lone] = run(subject, alone, [(text[-1:], 39, table)], None)
    crowd = [(other[:1], 0, [10 + number]) for number, other in enumerate(others)]
    found = run(subject, together, [*crowd[:4], (text[-1:], 39, table), *crowd[4:]], None)
    assert torch.equal(found[4], lone)


@pytest.mark.parametrize("subject", [*SUBJECTS, *ROUTED_SUBJECTS], ids=str, indirect=True)
def test_a_row_is_the_same_to_the_last_bit_in_any_chunk(subject: Subject) -> None:
    """But for the shortest, whose rows attend one by one."""
    text = random.Random(8).choices(range(VOCABULARY), k=150)
    table = list(range(19))
    whole = run(subject, subject.cache(), [(text, 0, table)], None)
    cache, parts, at = subject.cache(), [], 0
    for size in (4, 64, 5, 37, 40):
        parts.append(run(subject, cache, [(text[at : at + size], at, table)], None))
        at += size
    assert torch.equal(torch.cat(parts), whole)


@pytest.mark.parametrize("subject", ROUTED_SUBJECTS, ids=str, indirect=True)
def test_more_rows_than_a_mixture_computes_at_a_time_are_the_same_to_the_last_bit(
    subject: Subject,
) -> None:
    chance = random.Random(9)
    texts = [chance.choices(range(VOCABULARY), k=120) for _ in range(3)]
    tables = [list(range(first, first + 15)) for first in (0, 15, 30)]
    pieces = [(text, 0, table) for text, table in zip(texts, tables, strict=True)]
    together = run(subject, subject.cache(), pieces, None)
    assert together.shape[0] > 256
    alone = [run(subject, subject.cache(), [piece], None) for piece in pieces]
    assert torch.equal(together, torch.cat(alone))


def test_logits_equal_float64(subject: Subject) -> None:
    hidden = torch.randn(7, subject.oracle.config.hidden_size)
    expected = subject.oracle.lm_head(hidden.double())
    expected /= getattr(subject.oracle.config, "logits_scaling", 1.0)
    if (cap := getattr(subject.oracle.config, "final_logit_softcapping", None)) is not None:
        expected = cap * torch.tanh(expected / cap)
    torch.testing.assert_close(subject.decoder.logits(hidden).double(), expected, rtol=0, atol=3e-4)


@pytest.mark.parametrize("bits", ["int8", "int4"])
@pytest.mark.parametrize("shape", ["64x4/2", "80x3/1"])
def test_weights_of_few_bits_are_multiplied_with_inputs_rounded_to_int8(
    bits: Literal["int8", "int4"], shape: str, tmp_path: Path
) -> None:
    """The oracle has the same weights as floats, and the inputs of its linear maps are rounded."""
    oracle = save_model(SHAPES[shape], tmp_path).double()
    for weight in oracle.parameters():
        if weight.dim() == 2:
            weight.data = quantise(weight.data.float(), bits).dequantised().double()
    config = load_model_config(tmp_path)
    settings = LoadSettings(tmp_path, torch.float32, CPU, lambda *_: None)
    options = DecoderOptions(512, PLAIN, quantization=bits)
    decoder = load_decoder(config, settings, options).decoder
    assert isinstance(decoder, CompiledLlama)
    subject = Subject(decoder, oracle, config.kv_layers, torch.float32)

    def errors() -> Tensor:
        found = []
        for seed in range(6):
            text = random.Random(seed).choices(range(VOCABULARY), k=40)
            states = run(subject, subject.cache(), [(text, 0, list(range(5)))], None)
            found.append((states.double() - subject.expected(text)).abs().mean(dim=1))
        return torch.cat(found)

    against_exact_inputs = errors()
    for module in oracle.model.modules():
        if isinstance(module, nn.Linear):
            module.register_forward_pre_hook(_round_inputs)
    # An input near the middle between two codes may get either, which later layers magnify. Most
    # tokens have no such input.
    assert errors().median() < 0.1 * against_exact_inputs.median()


def _round_inputs(module: nn.Module, inputs: tuple[Tensor]) -> Tensor:
    flat = inputs[0].reshape(-1, inputs[0].shape[-1])
    return rounded(flat.float()).view(inputs[0].shape)


def test_what_is_too_large_for_float16_becomes_its_largest_in_the_cache(tmp_path: Path) -> None:
    oracle = save_model(SHAPES["16x4/4"], tmp_path)
    for name, parameter in oracle.named_parameters():
        if "v_proj.weight" in name:
            parameter.data *= 1e6
    oracle.save_pretrained(tmp_path)
    config = load_model_config(tmp_path)
    loaded = load_decoder(
        config,
        LoadSettings(tmp_path, torch.float32, CPU, lambda phase, done, total: None),
        DecoderOptions(max_positions=256, library=PLAIN),
    )
    assert isinstance(loaded.decoder, CompiledLlama)
    subject = Subject(loaded.decoder, oracle, config.kv_layers, torch.float16)
    cache = subject.cache()
    assert isinstance(cache, PagedKVCache)
    assert bool(run(subject, cache, [([3, 4, 5, 6], 0, [0])], None).isfinite().all())
    stored = cache.layer(0)
    assert float(stored.abs().max()) == torch.finfo(torch.float16).max
