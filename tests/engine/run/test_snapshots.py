"""Kept states take a bounded part of the memory for the KV cache."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.run.snapshots import SNAPSHOT_SHARE, num_snapshots, state_bytes
from tests.engine.driving import load_runner
from tests.engine.plugin.families import require_release_with, save_family

MIB = 1 << 20


def test_as_many_states_fit_as_their_share_holds() -> None:
    assert num_snapshots(1000, 10, token_bytes=0) == int(1000 * SNAPSHOT_SHARE) // 10
    assert num_snapshots(1000, 251, token_bytes=0) == 0
    assert num_snapshots(-5, 10, token_bytes=0) == 0
    assert num_snapshots(1000, 0, token_bytes=0) == 0


def test_states_are_no_more_than_blocks_give_places_to() -> None:
    assert num_snapshots(64_000, 1, token_bytes=10) == 64_000 // 641


def test_states_leave_room_for_a_sequence() -> None:
    assert num_snapshots(1000, 10, token_bytes=0, needed=900) == 10
    assert num_snapshots(1000, 10, token_bytes=0, needed=1001) == 0


def test_a_length_that_fits_without_states_is_served(tmp_path: Path) -> None:
    save_family("lfm2", tmp_path, positions=1 << 16)
    settings = {"model_impl": "transformers", "kv_cache_memory": MIB, "block_size": 16}
    off = load_runner(tmp_path, **settings, enable_prefix_caching=False).info
    longest = off.num_kv_blocks * 16
    on = load_runner(tmp_path, **settings, max_model_len=longest).info
    assert on.max_model_len == longest
    assert on.num_snapshots == 0


@pytest.mark.parametrize("kind", ["qwen3_next", "lfm2"])
def test_blocks_and_states_share_the_memory(kind: str, tmp_path: Path) -> None:
    require_release_with(kind)
    save_family(kind, tmp_path, positions=1 << 16)
    settings = {"model_impl": "transformers", "kv_cache_memory": 4 * MIB}
    runner = load_runner(tmp_path, **settings)
    states = runner._parts.states
    assert states is not None
    one = state_bytes(runner, states)
    assert one > 0
    info = runner.info
    assert info.shares_prefixes
    assert 0 < info.num_snapshots * one <= SNAPSHOT_SHARE * 4 * MIB
    assert info.kv_cache_bytes + info.num_snapshots * one <= 4 * MIB
    off = load_runner(tmp_path, **settings, enable_prefix_caching=False).info
    assert off.num_snapshots == 0
    assert not off.shares_prefixes
    assert off.num_kv_blocks > info.num_kv_blocks


def test_there_are_no_more_states_than_places_for_them(tmp_path: Path) -> None:
    save_family("lfm2", tmp_path)
    info = load_runner(tmp_path, model_impl="transformers", num_kv_blocks=9, block_size=16).info
    assert 0 < info.num_snapshots <= 9 * 16 // 64


def test_a_model_without_states_keeps_none(tmp_path: Path) -> None:
    save_family("llama", tmp_path)
    info = load_runner(tmp_path, num_kv_blocks=7).info
    assert info.shares_prefixes
    assert info.num_snapshots == 0
