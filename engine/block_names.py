"""The names of KV cache blocks.

A full block is named by a hash of the previous block's name and its own token ids, so a name
represents the whole prefix up to the block's end. The chain begins with a hash of the salt:
sequences with different salts never share blocks. The hash is blake2b cut to 128 bits; a chance
collision takes some 2**64 blocks.
"""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Iterator

_DIGEST_BYTES = 16
_PACKED_BLOCKS = 32  # at a time


def root_hash(salt: str) -> bytes:
    """Return the parent of a chain's first block."""
    return hashlib.blake2b(salt.encode(), digest_size=_DIGEST_BYTES, person=b"kv-root").digest()


def block_hash(parent: bytes, token_ids: list[int]) -> bytes:
    """Return the name of a block with ``token_ids`` that follows the prefix named ``parent``."""
    return chained(parent, array("i", token_ids).tobytes())


def chained(parent: bytes, packed: bytes) -> bytes:
    """Return the same for token ids as native int32."""
    return hashlib.blake2b(parent + packed, digest_size=_DIGEST_BYTES).digest()


def block_names(salt: str, token_ids: list[int], block_size: int) -> Iterator[bytes]:
    """Yield the names of a prompt's full blocks, computed one by one."""
    name, width = root_hash(salt), block_size * array("i").itemsize
    end, stride = len(token_ids) // block_size * block_size, _PACKED_BLOCKS * block_size
    for start in range(0, end, stride):
        packed = array("i", token_ids[start : min(start + stride, end)]).tobytes()
        for at in range(0, len(packed), width):
            name = chained(name, packed[at : at + width])
            yield name
