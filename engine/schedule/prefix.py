"""The prefix cache: sequences with a common prefix share KV cache blocks.

A full block is named by a hash of the previous block's name and its own token ids, so a name
represents the whole prefix up to the block's end. The chain begins with a hash of the salt:
sequences with different salts never share blocks. The hash is blake2b cut to 128 bits; a chance
collision takes some 2**64 blocks.
"""

from __future__ import annotations

import hashlib
from array import array

from engine.schedule.blocks import BlockPool
from engine.step.sequence import Sequence

_DIGEST_BYTES = 16


def root_hash(salt: str) -> bytes:
    """Return the parent of a chain's first block."""
    return hashlib.blake2b(salt.encode(), digest_size=_DIGEST_BYTES, person=b"kv-root").digest()


def block_hash(parent: bytes, token_ids: list[int]) -> bytes:
    """Return the name of a block with ``token_ids`` that follows the prefix named ``parent``."""
    return hashlib.blake2b(parent + array("i", token_ids).tobytes(), digest_size=16).digest()


class PrefixCache:
    """Finds and keeps prefixes in a pool's blocks. Does nothing if disabled.

    A sequence's blocks are released last to first (``release``), so that the pool, which reuses the
    least recently released block, drops the ends of prefixes before their beginnings.
    """

    def __init__(self, pool: BlockPool, block_size: int, *, enabled: bool = True) -> None:
        self.pool = pool
        self.block_size = block_size
        self.enabled = enabled

    def match(self, sequence: Sequence) -> list[int]:
        """Return the cached blocks of the longest known prefix of a sequence, without holding them.

        At least the last token is left to compute, because its logits are needed. A sequence that
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
        """Name the blocks filled by a sequence's tokens [before, after), which are now computed."""
        if not self.enabled:
            return
        for index in range(before // self.block_size, after // self.block_size):
            self.pool.name(sequence.block_table[index], self._hash(sequence, index))

    def release(self, blocks: list[int]) -> None:
        """Release a sequence's blocks."""
        for block in reversed(blocks):
            self.pool.release(block)

    def _hash(self, sequence: Sequence, index: int) -> bytes:
        """Return the name of the sequence's block ``index``. Names are computed once, in order;
        those of a prompt once for all choices of a request."""
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
