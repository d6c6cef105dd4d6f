"""What the keys of Nemotron-H's files mean in config.json."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from engine.architecture.errors import ConfigError
from tests.engine.gguf.configurations import assert_same_configuration, file_config, save_kinds

KINDS = ("nemotron_h#dense", "nemotron_h#files", "nemotron_h#latent")
# What no computation depends on, or files do not have.
UNUSED = (
    *("chunk_size", "expand", "hidden_dropout", "mamba_proj_bias", "mamba_ssm_cache_dtype"),
    *("moe_shared_expert_overlap", "mtp_layers_block_type", "num_logits_to_keep", "sliding_window"),
    *("num_nextn_predict_layers", "rescale_prenorm_residual", "residual_in_fp32", "use_bias"),
    *("time_step_floor", "time_step_limit", "time_step_max", "time_step_min", "use_mamba_kernels"),
    *("mamba_hidden_act", "use_conv_bias", "n_shared_experts"),
)
OF_EXPERTS = (
    *("moe_intermediate_size", "moe_latent_size", "moe_shared_expert_intermediate_size"),
    *("n_group", "n_routed_experts", "norm_topk_prob", "num_experts_per_tok"),
    *("routed_scaling_factor", "topk_group"),
)


@pytest.fixture(scope="module")
def originals(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return save_kinds(tmp_path_factory, KINDS)


@pytest.mark.parametrize("kind", KINDS)
def test_the_configuration_is_the_originals(
    kind: str, originals: dict[str, Path], tmp_path: Path
) -> None:
    others = OF_EXPERTS if kind == "nemotron_h#dense" else ("intermediate_size",)
    found = file_config(originals[kind], tmp_path)
    assert_same_configuration(originals[kind], found, *UNUSED, *others)


@pytest.mark.parametrize(
    ("keys", "says"),
    [
        ({"ssm__inner_size": 60}, "ssm.inner_size must be a multiple of 8"),
        ({"ssm__group_count": None}, "has no nemotron_h_moe.ssm.group_count"),
        ({"attention__scale": 0.5}, "attention.scale is not supported"),
        ({"expert_group_count": 2}, "expert_group_count is [0-9]+; only 1 is"),
        ({"expert_count": 7}, "expert_count is 7, and blk.1.ffn_gate_inp.weight has 8"),
        ({"feed_forward_length": 0}, "feed_forward_length must be above 0 in some layer"),
        ({"attention__head_count_kv": 0}, "head_count_kv must be above 0 in some layer"),
        ({"expert_gating_func": 1}, "expert_gating_func is [0-9]+; only 2 is"),
        ({"expert_shared_count": 2}, "expert_shared_count is [0-9]+; only 1 is"),
        ({"rope__scaling__factor": 2.0}, "scaling.type 'linear' is not supported"),
        ({"moe_latent_size": -1}, "moe_latent_size must be an integer from 0"),
    ],
)
def test_errors_name_the_unsupported_key(
    keys: dict[str, Any], says: str, originals: dict[str, Path], tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match=says):
        file_config(originals["nemotron_h#files"], tmp_path, **keys)
