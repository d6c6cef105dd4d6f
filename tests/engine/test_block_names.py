"""Names of blocks: the same in the engine and in a worker."""

from __future__ import annotations

from engine.block_names import block_hash, block_names, root_hash


def test_each_full_block_of_a_prompt_has_the_name_of_its_prefix() -> None:
    first = block_hash(root_hash("salt"), [1, 2, 3])
    second = block_hash(first, [4, 5, 6])
    assert list(block_names("salt", [1, 2, 3, 4, 5, 6, 7], 3)) == [first, second]
    assert list(block_names("salt", [1, 2, 3, 4, 5], 3)) == [first]
    assert list(block_names("salt", [1, 2], 3)) == []


def test_prompts_with_different_salts_share_no_name() -> None:
    prompt = list(range(64))
    assert not set(block_names("a", prompt, 16)) & set(block_names("b", prompt, 16))
