"""The engine's settings: their bounds hold wherever they come from."""

from __future__ import annotations

from itertools import groupby
from typing import Any

import msgspec
import pytest

from engine.config import EngineConfig, hosts_problem
from engine.options import options


def test_every_default_is_within_its_own_bounds() -> None:
    config = EngineConfig(model="somewhere")
    assert msgspec.convert(msgspec.to_builtins(config), EngineConfig) == config
    assert EngineConfig.__struct_config__.frozen


@pytest.mark.parametrize(
    "wrong",
    [
        {"load_format": "pickle"},
        {"dtype": "int8"},
        {"seed": -1},
        {"max_model_len": 0},
        {"pooling": "max"},
        {"device": "tpu"},
        {"tensor_parallel_size": 0},
        {"tensor_parallel_hosts": 65},
        {"ranks_port": 65536},
        {"ranks_secret": "too short"},
        {"gpu_memory_utilization": 0.0},
        {"gpu_memory_utilization": 1.01},
        {"threads": 0},
        {"max_num_seqs": 0},
        {"max_num_batched_tokens": 15},
        {"max_decode_slowdown": 1.0},
        {"block_size": 12},
        {"num_kv_blocks": 1},
        {"kv_cache_memory": 1000},
        {"enable_prefix_caching": 1},
    ],
)
def test_a_value_out_of_bounds_is_refused_with_its_field(wrong: dict[str, object]) -> None:
    (field,) = wrong
    with pytest.raises(msgspec.ValidationError, match=rf"\$\.{field}`"):
        msgspec.convert({"model": "somewhere"} | wrong, EngineConfig)


def test_a_model_must_be_named() -> None:
    with pytest.raises(msgspec.ValidationError, match="`model`"):
        msgspec.convert({}, EngineConfig)


def test_the_settings_of_a_group_are_adjacent_in_the_order_of_the_documentation() -> None:
    groups = [group for group, _ in groupby(options(EngineConfig), key=lambda each: each.group)]
    assert groups == ["Model", "Hardware", "Batching", "KV cache"]


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"tensor_parallel_hosts": 1, "ranks_secret": None}, None),
        ({}, None),
        ({"tensor_parallel_size": 3}, "--tensor-parallel-hosts 2 does not divide"),
        ({"data_parallel_size": 2}, "more servers in place of --data-parallel-size 2"),
        (
            {"ranks_secret": None},
            "a secret that the other hosts know: set QUIRE_RANKS_SECRET",
        ),
    ],
)
def test_the_settings_of_several_hosts_must_fit_together(
    settings: dict[str, Any], problem: str | None
) -> None:
    whole = {"tensor_parallel_size": 4, "tensor_parallel_hosts": 2, "ranks_secret": "x" * 16}
    config = EngineConfig(model="m", **(whole | settings))
    found = hosts_problem(config)
    assert found is None if problem is None else problem in (found or "")
    if problem is None:
        assert config.ranks_per_host * config.tensor_parallel_hosts == 4
