"""Rotary frequencies and rotations equal those of transformers."""

from __future__ import annotations

import pytest
import torch
from transformers import LlamaConfig, Phi3Config
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding, apply_rotary_pos_emb

from engine.architecture import rotary
from engine.architecture.fields import ConfigFields
from engine.architecture.rope import RopeConfig, read_long_rope, read_proportional, read_rope
from engine.architecture.rotary import RotaryEmbedding, inverse_frequencies, pair_order, rotate_
from tests.engine.architecture.rope_settings import POSITIONS, SETTINGS


@pytest.mark.parametrize("name", [n for n in SETTINGS if n != "yarn without a factor"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_rotating_adjacent_pairs_equals_rotating_halves_as_transformers_does(
    name: str, dtype: torch.dtype
) -> None:
    head_dim = 64
    config = LlamaConfig(
        hidden_size=head_dim,
        num_attention_heads=1,
        max_position_embeddings=POSITIONS,
        rope_parameters=dict(SETTINGS[name]),
    )
    positions = torch.tensor([0, 1, 2, 7, 100, 511, 513, 2000, POSITIONS - 1])
    x = torch.randn(len(positions), 3, head_dim)
    cos, sin = LlamaRotaryEmbedding(config)(x, positions[None])
    expected, _ = apply_rotary_pos_emb(x.transpose(0, 1)[None], x.transpose(0, 1)[None], cos, sin)
    expected = expected[0].transpose(0, 1)

    rope = read_rope(
        ConfigFields("test", {"rope_parameters": SETTINGS[name]}), max_position_embeddings=POSITIONS
    )
    table = RotaryEmbedding(rope, head_dim, POSITIONS, torch.device("cpu"))
    order = pair_order(head_dim)
    ours = x[..., order].to(dtype)
    rotate_(ours, table.rotations(positions))
    tolerance = 2e-4 if dtype == torch.float32 else 5e-2
    torch.testing.assert_close(ours.float(), expected[..., order], atol=tolerance, rtol=0)


def test_the_table_grows_with_the_longest_sequence(monkeypatch: pytest.MonkeyPatch) -> None:
    cpu = torch.device("cpu")
    rope = RopeConfig(share=0.5)
    whole = RotaryEmbedding(rope, 64, 1000, cpu).cosines_and_sines()
    monkeypatch.setattr(rotary, "_FIRST_POSITIONS", 64)
    table = RotaryEmbedding(rope, 64, 1000, cpu)
    sizes = []
    for positions in ([5, 63], [64, 3], [], [300], [999, 0]):
        index = torch.tensor(positions, dtype=torch.int64)
        found = torch.view_as_real(table.rotations(index)[:, 0])
        torch.testing.assert_close(found, whole[index], rtol=0, atol=0)
        sizes.append(table._table.shape[0])
    assert sizes == [64, 128, 128, 301, 1000]
    table = RotaryEmbedding(rope, 64, 1000, cpu)
    torch.testing.assert_close(table.cosines_and_sines(), whole, rtol=0, atol=0)


@pytest.mark.parametrize("length", [100, 256, 257, 1000])
@pytest.mark.parametrize("factor", [None, 2.0])
def test_long_rope_has_the_frequencies_of_the_longest_sequence(
    length: int, factor: float | None
) -> None:
    settings = {
        "rope_type": "longrope",
        "rope_theta": 500.0,
        "partial_rotary_factor": 0.75,
        "short_factor": [1.0 + pair / 10 for pair in range(24)],
        "long_factor": [2.0 + pair for pair in range(24)],
    }
    settings |= {} if factor is None else {"factor": factor}
    config = Phi3Config(
        hidden_size=64,
        num_attention_heads=1,
        max_position_embeddings=POSITIONS,
        original_max_position_embeddings=256,
        rope_parameters=dict(settings),
    )
    expected, scaling = ROPE_INIT_FUNCTIONS["longrope"](config, seq_len=length)
    fields = ConfigFields(
        "test", {"rope_parameters": settings, "original_max_position_embeddings": 256}
    )
    rope = read_long_rope(fields, POSITIONS, 64)
    assert rope.attention_factor == pytest.approx(scaling)
    torch.testing.assert_close(inverse_frequencies(rope, 48, length), expected)


@pytest.mark.parametrize("share", [0.25, 0.3, 1.0])
def test_proportional_frequencies_are_those_of_a_whole_head_for_the_pairs_that_turn(
    share: float,
) -> None:
    settings = {
        "rope_type": "proportional",
        "rope_theta": 500.0,
        "partial_rotary_factor": share,
        "factor": 2.0,
    }
    config = LlamaConfig(head_dim=48, rope_parameters=dict(settings))
    expected, _ = ROPE_INIT_FUNCTIONS["proportional"](config)
    rope = read_proportional(ConfigFields("test", dict(settings)), 10_000.0)
    assert rope.rotary_dim(48) == 48
    torch.testing.assert_close(inverse_frequencies(rope, 48), expected)


def test_elements_beyond_the_share_of_a_head_that_turns_stay_to_the_bit() -> None:
    fields = ConfigFields("test", {"partial_rotary_factor": 0.75, "rope_theta": 500.0})
    rope = read_long_rope(fields, POSITIONS, 16)
    table = RotaryEmbedding(rope, 16, 64, torch.device("cpu"))
    x = torch.randn(3, 2, 16)
    turned = x.clone()
    rotate_(turned, table.rotations(torch.tensor([5, 60, 0])))
    assert torch.equal(turned[..., 12:], x[..., 12:])
    assert not torch.equal(turned[:2, :, :12], x[:2, :, :12])
    assert pair_order(8, 6).tolist() == [0, 3, 1, 4, 2, 5, 6, 7]


def test_a_rotation_by_halves_is_undone_by_the_pair_order() -> None:
    assert pair_order(6).tolist() == [0, 3, 1, 4, 2, 5]
