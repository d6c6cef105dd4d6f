"""The engine's settings: their bounds hold wherever they come from."""

from __future__ import annotations

from itertools import groupby

import msgspec
import pytest

from engine.config import EngineConfig
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
