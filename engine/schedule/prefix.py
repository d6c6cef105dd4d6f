"""The prefix cache: equal beginnings of sequences share KV-cache blocks.

A full block is named by a hash over the name of the block before it and its own token ids, so a
name stands for the whole prefix up to the block's end. The chain begins with a hash of the salt:
sequences with different salts never meet. The hash is blake2b cut to 128 bits; two prefixes that
collide by chance would need some 2**64 blocks.
"""

from __future__ import annotations

import hashlib
from array import array

from engine.schedule.blocks import BlockPool
from engine.step.sequence import Sequence

_DIGEST_BYTES = 16


def root_hash(salt: str) -> bytes:
    """The parent of a chain's first block."""
    return hashlib.blake2b(salt.encode(), digest_size=_DIGEST_BYTES, person=b"kv-root").digest()


def block_hash(parent: bytes, token_ids: list[int]) -> bytes:
    """The name of a block that holds ``token_ids`` behind the prefix that ``parent`` names."""
    return hashlib.blake2b(parent + array("i", token_ids).tobytes(), digest_size=16).digest()


class PrefixCache:
    """Finds and keeps prefixes in a pool's blocks. Disabled, it finds and keeps nothing.

    Holders release a sequence's blocks last to first (``release``), so that the pool, which takes
    the block released longest ago, drops the ends of prefixes before their beginnings.
    """

    def __init__(self, pool: BlockPool, block_size: int, *, enabled: bool = True) -> None:
        self.pool = pool
        self.block_size = block_size
        self.enabled = enabled

    def match(self, sequence: Sequence) -> list[int]:
        """The cached blocks of this sequence's longest known prefix; none is held yet.

        At least the last token is left to compute, since its logits are wanted. A sequence that
        needs every prompt token computed (for logprobs, or to pool them all) matches nothing.
        """
        if not self.enabled or sequence.needs_whole_prompt:
            return []
        blocks: list[int] = []
        find = self.pool.find
        for index in range((sequence.num_tokens - 1) // self.block_size):
            block = find(self._hash(sequence, index))
            if block is None:
                break
            blocks.append(block)
        return blocks

    def keep(self, sequence: Sequence, before: int, after: int) -> None:
        """Tokens [before, after) of this sequence are now computed: name the blocks they fill."""
        if not self.enabled:
            return
        for index in range(before // self.block_size, after // self.block_size):
            self.pool.name(sequence.block_table[index], self._hash(sequence, index))

    def release(self, blocks: list[int]) -> None:
        """Give back a sequence's blocks."""
        for block in reversed(blocks):
            self.pool.release(block)

    def _hash(self, sequence: Sequence, index: int) -> bytes:
        """The name of the sequence's block ``index``; names are computed once, in order, those of a
        prompt once for all choices of a request."""
        hashes, of_prompt = sequence.block_hashes, sequence.prompt_hashes
        if len(hashes) <= index:
            hashes.extend(of_prompt[len(hashes) : index + 1])
        while len(hashes) <= index:
            parent = hashes[-1] if hashes else root_hash(sequence.cache_salt)
            start = len(hashes) * self.block_size
            end = start + self.block_size
            name = block_hash(parent, sequence.token_ids[start:end])
            if end <= sequence.num_prompt_tokens:
                of_prompt.append(name)
            hashes.append(name)
        return hashes[index]
