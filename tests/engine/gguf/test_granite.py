"""What the keys of Granite's files mean in config.json."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from engine.architecture.errors import ConfigError
from tests.engine.gguf.configurations import assert_same_configuration, file_config, save_kinds

KINDS = {
    "granitemoe#multipliers": "GraniteMoeForCausalLM",
    "granitemoeshared#shared": "GraniteMoeSharedForCausalLM",
    "granitemoehybrid": "GraniteMoeHybridForCausalLM",
    "granitemoehybrid#dense": "GraniteMoeHybridForCausalLM",
}
HYBRID = "granitemoehybrid#dense"


@pytest.fixture(scope="module")
def originals(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return save_kinds(tmp_path_factory, KINDS)


@pytest.mark.parametrize("kind", KINDS)
def test_the_configuration_is_the_originals(
    kind: str, originals: dict[str, Path], tmp_path: Path
) -> None:
    found = file_config(originals[kind], tmp_path)
    assert found["architectures"] == [KINDS[kind]]
    # Newer transformers have other names for the kinds of layers; None means "nope".
    others = {"layer_types", "position_embedding_type", "mamba_chunk_size", "time_step_limit"}
    if kind == HYBRID:  # no expert, of how many
        others.add("num_experts_per_tok")
    assert_same_configuration(originals[kind], found, *others)
    if "hybrid" in kind:
        assert found["layer_types"] == ["mamba", "attention"] * 2
        assert found["position_embedding_type"] == "nope"


@pytest.mark.parametrize(
    ("keys", "says"),
    [
        (
            {"attention__head_count_kv": np.array([0, 4, 0, 2])},
            "same in all layers where",
        ),
        ({"ssm__inner_size": 96}, "ssm.inner_size must be a multiple of 64"),
        ({"ssm__time_step_rank": 5}, "ssm.inner_size must be a multiple of 5"),
        ({"ssm__group_count": 3}, "ssm.time_step_rank must be a multiple of 3"),
        ({"ssm__conv_kernel": 1}, "ssm.conv_kernel must be an integer from 2"),
        ({"ssm__state_size": None}, "has no granitehybrid.ssm.state_size"),
        ({"rope__scaling__factor": 2.0}, "scaling.type 'linear' is not supported"),
        ({"rope__dimension_count": 8}, "rope.dimension_count must be the head size"),
    ],
)
def test_errors_name_the_unsupported_key(
    keys: dict[str, Any], says: str, originals: dict[str, Path], tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match=says):
        file_config(originals[HYBRID], tmp_path, **keys)


def test_positions_count_where_the_file_says_so(originals: dict[str, Path], tmp_path: Path) -> None:
    found = file_config(originals[HYBRID], tmp_path, rope__scaling__finetuned=True)
    assert found["position_embedding_type"] == "rope"


def test_a_mixture_without_rotary_embeddings_is_refused(
    originals: dict[str, Path], tmp_path: Path
) -> None:
    for kind in ("granitemoe#multipliers", "granitemoeshared#shared"):
        with pytest.raises(ConfigError, match=r"rope\.scaling\.finetuned false"):
            file_config(originals[kind], tmp_path, rope__scaling__finetuned=False)
