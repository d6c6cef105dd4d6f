"""Each family's file is computed as its original checkpoint, which other tests compare with
transformers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from engine.architecture.config import load_model_config
from engine.architecture.errors import UnsupportedError
from engine.cpu.library import LibraryUnavailableError, library
from engine.gguf.families import family_of
from tests.engine.driving import Engine
from tests.engine.gguf.directories import all_logits, file_directory
from tests.engine.gguf.family_files import FAMILY_FILES
from tests.engine.gguf.making import write_header
from tests.engine.plugin.families import save_family
from tests.engine.plugin.test_tensors import difference
from tests.engine.tiny_models import VOCABULARY, save_model

TOKENS = torch.randint(VOCABULARY, (60,), generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize(
    ("architecture", "keys"),
    [
        ("qwen3", {}),
        ("olmo2", {"attention.sliding_window": 4096}),
        ("mistral3", {"attention.temperature_scale": 0.1}),
    ],
)
def test_experts_of_a_family_that_has_none_are_refused(
    architecture: str, keys: dict[str, float], tmp_path: Path
) -> None:
    header = write_header(tmp_path, architecture, keys | {"expert_count": 8})
    with pytest.raises(UnsupportedError, match=f"mixtures of experts .* '{architecture}' are not"):
        family_of(header)


@pytest.mark.parametrize("architecture", ["llama", "minimax-m2"])
def test_fused_attention_is_refused_where_no_checkpoint_has_it(
    architecture: str, tmp_path: Path
) -> None:
    fused = {"blk.0.attn_qkv.weight": np.ones((3, 32), np.float32)}
    with pytest.raises(UnsupportedError, match=r"convert the checkpoint without --fuse-qkv"):
        family_of(write_header(tmp_path, architecture, {}, fused))
    assert family_of(write_header(tmp_path, "phi3", {}, fused)).architecture == "Phi3ForCausalLM"


def test_an_encoder_of_images_is_called_one(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedError, match="name the file of the language model"):
        family_of(write_header(tmp_path, "clip"))


@pytest.mark.parametrize("name", FAMILY_FILES)
def test_logits_are_the_originals_to_the_bit(name: str, tmp_path: Path) -> None:
    save_model(FAMILY_FILES[name], tmp_path / "original")
    directory = file_directory(tmp_path / "original", tmp_path, "F32")
    assert torch.equal(all_logits(directory, TOKENS), all_logits(tmp_path / "original", TOKENS))


def test_internlm2_is_computed_by_our_code_as_a_llama(tmp_path: Path) -> None:
    oracle = save_family("llama#internlm2", tmp_path / "original")
    directory = file_directory(tmp_path / "original", tmp_path, "F32")
    assert difference(Engine(directory, cpu_path="torch", model_impl="native"), oracle) < 1e-4


@pytest.mark.parametrize(
    ("architecture", "keys", "found"),
    [
        ("llama", {}, "LlamaForCausalLM"),
        ("llama", {"expert_count": 0}, "LlamaForCausalLM"),
        ("llama", {"expert_count": 8}, "MixtralForCausalLM"),
        ("mistral3", {}, "LlamaForCausalLM"),
        ("mistral3", {"attention.temperature_scale": 0.1}, "Ministral3ForCausalLM"),
        ("qwen3vl", {}, "Qwen3ForCausalLM"),
        ("hunyuan-dense", {"expert_count": 1}, "HunYuanDenseV1ForCausalLM"),
        ("olmo2", {}, "Olmo2ForCausalLM"),
        ("olmo2", {"attention.sliding_window": 4096}, "Olmo3ForCausalLM"),
    ],
)
def test_keys_choose_between_families_of_one_architecture(
    architecture: str, keys: dict[str, float], found: str, tmp_path: Path
) -> None:
    assert family_of(write_header(tmp_path, architecture, keys)).architecture == found


@pytest.mark.parametrize("kind", ["Q8_0", "Q4_0"])
@pytest.mark.parametrize("name", FAMILY_FILES)
def test_products_with_blocks_are_those_with_dequantized_weights(
    name: str, kind: str, tmp_path: Path
) -> None:
    """They differ only because inputs are rounded to 8 bits; random weights amplify that."""
    try:
        library()
    except LibraryUnavailableError as error:
        pytest.skip(str(error))
    save_model(FAMILY_FILES[name], tmp_path / "original")
    directory = file_directory(tmp_path / "original", tmp_path, kind)
    expected = all_logits(directory, TOKENS)
    difference = (all_logits(directory, TOKENS, compiled=True) - expected).abs().amax(1)
    span = expected.max() - expected.min()
    assert 1e-4 * span < difference.median() < 0.1 * span
    if load_model_config(directory).experts is None:
        assert difference.max() < 0.25 * span  # else rounding may choose another expert
