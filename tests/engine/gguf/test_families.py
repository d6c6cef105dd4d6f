"""Each family's file is computed as its original checkpoint, which other tests compare with
transformers."""

from __future__ import annotations

from pathlib import Path

import gguf
import pytest
import torch

from engine.architecture.errors import ConfigError, UnsupportedError
from engine.gguf.config import config_json
from engine.gguf.container import GgufHeader, read_gguf_header
from engine.gguf.families import FAMILIES, family_of, keys_of
from tests.engine.gguf.directories import all_logits, file_directory
from tests.engine.gguf.family_files import FAMILY_FILES
from tests.engine.gguf.making import write_gguf
from tests.engine.tiny_models import VOCABULARY, save_model

TOKENS = torch.randint(VOCABULARY, (60,), generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("name", FAMILY_FILES)
def test_logits_are_the_originals_to_the_bit(name: str, tmp_path: Path) -> None:
    save_model(FAMILY_FILES[name], tmp_path / "original")
    directory = file_directory(tmp_path / "original", tmp_path, "F32")
    assert torch.equal(all_logits(directory, TOKENS), all_logits(tmp_path / "original", TOKENS))


def written(folder: Path, architecture: str, **keys: float | list[bool]) -> GgufHeader:
    writer = gguf.GGUFWriter(folder / "t.gguf", architecture)
    for name, value in keys.items():
        key = f"{architecture}.{name.replace('__', '.')}"
        if isinstance(value, list):
            writer.add_array(key, value)
        elif isinstance(value, float):
            writer.add_float32(key, value)
        else:
            writer.add_uint32(key, value)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return read_gguf_header(folder / "t.gguf")


COMMON = {
    "num_hidden_layers": 8,
    "num_attention_heads": 4,
    "hidden_size": 64,
    "head_dim": 16,
    "rope_theta": 1e4,
    "rope_scaling": None,
    "max_position_embeddings": 512,
}


@pytest.mark.parametrize(
    ("architecture", "keys", "found"),
    [
        ("llama", {}, "LlamaForCausalLM"),
        ("llama", {"expert_count": 0}, "LlamaForCausalLM"),
        ("llama", {"expert_count": 8}, "MixtralForCausalLM"),
        ("mistral3", {}, "LlamaForCausalLM"),
        ("mistral3", {"attention__temperature_scale": 0.1}, "Ministral3ForCausalLM"),
        ("olmo2", {}, "Olmo2ForCausalLM"),
        ("olmo2", {"attention__sliding_window": 4096}, "Olmo3ForCausalLM"),
    ],
)
def test_a_name_of_several_families_is_told_apart_by_keys(
    architecture: str, keys: dict[str, float], found: str, tmp_path: Path
) -> None:
    assert family_of(written(tmp_path, architecture, **keys)).architecture == found


@pytest.mark.parametrize(
    ("pattern", "full"),
    [(None, [5]), (4, [3, 7]), (1, [*range(8)]), (0, []), ([True] * 7 + [False], [7])],
)
def test_which_layers_have_a_window(
    pattern: int | list[bool] | None, full: list[int], tmp_path: Path
) -> None:
    keys: dict[str, int | list[bool]] = {"attention__sliding_window": 512}
    if pattern is not None:
        keys["attention__sliding_window_pattern"] = pattern
    made = keys_of(written(tmp_path, "gemma3", **keys))
    fields = FAMILIES["gemma3"].settings(made, COMMON)
    types = fields["layer_types"]
    assert [layer for layer in range(8) if types[layer] == "full_attention"] == full
    assert fields["sliding_window"] == 512


def test_a_gemma_without_a_window_attends_to_everything(tmp_path: Path) -> None:
    fields = FAMILIES["gemma3"].settings(keys_of(written(tmp_path, "gemma3")), COMMON)
    assert fields["layer_types"] == ["full_attention"] * 8


@pytest.mark.parametrize(("layers", "scale"), [(8, 16), (62, 64 / 4)])
def test_the_largest_gemma_scales_scores_otherwise(
    layers: int, scale: float, tmp_path: Path
) -> None:
    common = COMMON | {"num_hidden_layers": layers, "head_dim": 16 if layers == 8 else 32}
    fields = FAMILIES["gemma3"].settings(keys_of(written(tmp_path, "gemma3")), common)
    assert fields["query_pre_attn_scalar"] == scale


@pytest.mark.parametrize(
    ("architecture", "keys", "says"),
    [
        ("gemma3", {"final_logit_softcapping": 30.0}, "gemma3.final_logit_softcapping is not"),
        (
            "gemma3",
            {"attention__sliding_window": 9, "attention__sliding_window_pattern": [True, False]},
            "gemma3.attention.sliding_window_pattern must be an array of 8 booleans, not an array",
        ),
        ("mistral3", {"attention__temperature_scale": 0.1}, "mistral3 without YaRN"),
        ("qwen3moe", {}, "has no qwen3moe.expert_count"),
        ("qwen3moe", {"expert_count": 5000}, "expert_count must be an integer from 1 to 4096"),
        ("granite", {"attention__scale": 0.0}, "granite.attention.scale must be a number from"),
    ],
)
def test_keys_that_cannot_be_served_are_named(
    architecture: str, keys: dict[str, float], says: str, tmp_path: Path
) -> None:
    header = written(tmp_path, architecture, **keys)
    with pytest.raises(ConfigError, match=says):
        family_of(header).settings(keys_of(header), COMMON)


def test_other_temperatures_of_long_rope_are_refused(tmp_path: Path) -> None:
    save_model(FAMILY_FILES["phi3_long"], tmp_path / "original")
    path = write_gguf(tmp_path / "original", tmp_path / "t.gguf", tokenizer=False)
    header = read_gguf_header(path)
    header.keys["phi3.rope.scaling.attn_factor"] = 1.5
    with pytest.raises(UnsupportedError, match=r"attn_factor 1.5 is not supported; LongRoPE's"):
        config_json(header)


@pytest.mark.parametrize("kind", ["Q8_0", "Q4_0"])
@pytest.mark.parametrize("name", FAMILY_FILES)
def test_products_with_blocks_are_those_with_dequantized_weights(
    name: str, kind: str, tmp_path: Path
) -> None:
    """But for the rounding of inputs to 8 bits, which these random weights amplify."""
    save_model(FAMILY_FILES[name], tmp_path / "original")
    directory = file_directory(tmp_path / "original", tmp_path, kind)
    expected = all_logits(directory, TOKENS)
    difference = (all_logits(directory, TOKENS, compiled=True) - expected).abs().amax(1)
    # Where rounding chooses another expert, a token differs by more.
    assert difference.median() < 0.1 * (expected.max() - expected.min())
