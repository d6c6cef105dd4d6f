"""A configuration's features are what distinguishes it from a plain Llama."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from transformers.models.ministral3.modeling_ministral3 import get_llama_4_attn_scale

from engine.architecture.config import load_model_config
from engine.architecture.features import AttentionChunk, Feature, QueryScaling, sliding
from tests.engine.tiny_models import VARIANTS, save_model

GEMMA4 = {
    *(Feature.NORMS_AFTER, Feature.ROPE_BY_LAYER, Feature.MULTIPLIERS, Feature.TENSOR_NAMES),
    *(Feature.SIZES_BY_LAYER, Feature.VALUE_NORM, Feature.LAYER_SCALES, Feature.LOGIT_CAP),
}
FEATURES = {
    "llama_biases": set(),
    "llama_yarn": set(),
    "mistral_sliding_window": set(),
    "qwen3": set(),
    "ministral": set(),
    "gpt2": {Feature.LEARNED_POSITIONS, Feature.ROPE_BY_LAYER},
    "smollm3": {Feature.ROPE_BY_LAYER},
    "phi3_partial": {Feature.PARTIAL_ROPE, Feature.TENSOR_NAMES},
    "granite": {Feature.MULTIPLIERS},
    "olmo2": {Feature.NORMS_AFTER, Feature.WHOLE_QK_NORM},
    "olmo3": {Feature.NORMS_AFTER, Feature.WHOLE_QK_NORM, Feature.ROPE_BY_LAYER},
    "gemma3": {
        *(Feature.NORMS_AFTER, Feature.OFFSET_NORMS, Feature.ROPE_BY_LAYER, Feature.MULTIPLIERS),
    },
    "gemma4": GEMMA4,
    "gemma4_inputs": GEMMA4 | {Feature.LAYER_INPUTS, Feature.SHARED_KEYS},
    "gemma4_experts": GEMMA4 | {Feature.EXPERTS, Feature.PARALLEL_EXPERTS},
    "llama4": {
        *(Feature.ROPE_BY_LAYER, Feature.TENSOR_NAMES, Feature.EXPERTS, Feature.QUERY_SCALING),
        *(Feature.CHUNKED_ATTENTION, Feature.ROTATED_NORMS, Feature.UNROTATED_SCALING),
        *(Feature.SCALED_INPUTS, Feature.SHARED_EXPERT),
    },
    "ministral3": {Feature.QUERY_SCALING},
    "mixtral": {Feature.EXPERTS, Feature.TENSOR_NAMES},
    "olmoe": {Feature.EXPERTS, Feature.WHOLE_QK_NORM},
    "qwen3_moe": {Feature.EXPERTS},
}


@pytest.mark.parametrize("name", FEATURES)
def test_features_of_each_family(name: str, tmp_path: Path) -> None:
    save_model(VARIANTS[name], tmp_path)
    config = load_model_config(tmp_path)
    assert config.features == FEATURES[name]
    assert replace(config, tie_word_embeddings=True).features == FEATURES[name]


def test_query_factors_equal_transformers() -> None:
    positions = torch.arange(100)
    expected = get_llama_4_attn_scale(positions[None], 0.3, 16).flatten()
    scaling = QueryScaling(0.3, 16)
    found = torch.tensor([scaling.factor(int(position) // 16) for position in positions])
    torch.testing.assert_close(found, expected)
    assert found[15] == 1 < found[16]


def test_a_chunk_is_no_sliding_window() -> None:
    assert sliding(None) is None
    assert sliding(7) == 7
    with pytest.raises(ValueError, match="chunks of 7 tokens"):
        sliding(AttentionChunk(7))
