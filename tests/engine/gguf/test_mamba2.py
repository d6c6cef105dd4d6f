"""What is read of Mamba-2 layers. Granite's and Falcon-H1's tests compare whole configurations."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.architecture.errors import ConfigError
from engine.gguf.families import keys_of
from engine.gguf.mamba2 import mamba2_fields
from tests.engine.gguf.making import write_header

KEYS = {
    "ssm.inner_size": 3072,
    "ssm.time_step_rank": 48,
    "ssm.group_count": 2,
    "ssm.state_size": 128,
    "ssm.conv_kernel": 4,
}


def test_heads_share_the_inner_size(tmp_path: Path) -> None:
    found = mamba2_fields(keys_of(write_header(tmp_path, "falcon-h1", KEYS)))
    assert found["mamba_d_head"] == 64
    assert (found["mamba_n_heads"], found["mamba_n_groups"]) == (48, 2)
    assert (found["mamba_d_state"], found["mamba_d_conv"]) == (128, 4)


@pytest.mark.parametrize(
    ("key", "value", "says"),
    [
        ("ssm.inner_size", 1 << 30, "must be an integer from 1 to"),
        ("ssm.time_step_rank", 47, "ssm.inner_size must be a multiple of 47"),
        ("ssm.group_count", 5, "ssm.time_step_rank must be a multiple of 5"),
        ("ssm.state_size", 4097, "ssm.state_size must be an integer from 1 to 4096"),
        ("ssm.conv_kernel", 65, "ssm.conv_kernel must be an integer from 2 to 64"),
    ],
)
def test_sizes_are_bounded(key: str, value: int, says: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=says):
        mamba2_fields(keys_of(write_header(tmp_path, "falcon-h1", KEYS | {key: value})))
