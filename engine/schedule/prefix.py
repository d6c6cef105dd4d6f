"""The prefix cache: sequences with a common prefix share KV cache blocks.

Blocks are found by their names, see ``engine.block_names``.
"""

from __future__ import annotations

from array import array

from msgspec import structs

from engine.block_names import block_hash, chained, root_hash
from engine.messages import PrefixMiss, PrefixMissReason
from engine.prefix_table import PrefixTableWriter
from engine.schedule.blocks import BlockPool
from engine.schedule.prefix_misses import PrefixMisses, first_block_group
from engine.schedule.prefix_uses import PrefixUses
from engine.schedule.snapshots import Snapshots
from engine.step.sequence import Sequence
from engine.step.step import PENDING

_NO_SALT = root_hash("")


class PrefixCache:
    """Finds and keeps prefixes in the blocks of its ``pool``. Does nothing if disabled.
    ``snapshots``: which states are kept besides, of a hybrid; None for other models.

    A sequence's blocks are released last to first (``release``), so that the pool, which reuses the
    least recently released block, drops the ends of prefixes before their beginnings.
    """

    def __init__(
        self, num_blocks: int, block_size: int, *, enabled: bool = True, num_snapshots: int = 0
    ) -> None:
        self.uses = PrefixUses(num_blocks)
        self.misses = PrefixMisses(num_blocks, self.uses.hits, self._used_evicted)
        self.pool = BlockPool(num_blocks, self.misses.evicted)
        self._name = self.pool.name
        self.block_size = block_size
        self.enabled = enabled
        self.snapshots: Snapshots | None = None
        if enabled and num_snapshots:
            self.snapshots = Snapshots(min(num_snapshots, num_blocks), block_size)
            self.pool.on_evicted = self._evicted_with_state

    def match(self, sequence: Sequence) -> list[int]:
        """Return the cached blocks of the longest known prefix of a sequence, without holding them.

        At least the last token is left to compute, because its logits are needed. A sequence that
        needs every prompt token computed (for logprobs, or to pool them all) matches nothing.
        With ``snapshots``, the prefix ends where the last one is.
        """
        blocks = self.known(sequence)
        if self.snapshots is not None:
            names = sequence.block_hashes
            while blocks and names[len(blocks) - 1] not in self.snapshots:
                blocks.pop()
        return blocks

    def known(self, sequence: Sequence) -> list[int]:
        """Like ``match``, but ignores snapshots: all cached blocks, with or without a state after
        them."""
        if not self.enabled or sequence.needs_whole_prompt:
            return []
        blocks: list[int] = []
        find = self.pool.find
        for index in range((sequence.num_tokens - 1) // self.block_size):
            block = find(self._names(sequence, index + 1)[index])
            if block is None:
                break
            blocks.append(block)
        return blocks

    def has(self, sequence: Sequence, num_tokens: int) -> bool:
        """True if the block that ends the first ``num_tokens`` of a sequence, or more, is cached,
        with or without those before it."""
        count = -(-num_tokens // self.block_size)
        if not self.enabled or sequence.needs_whole_prompt:
            return False
        if count > (sequence.num_tokens - 1) // self.block_size:
            return False
        return self.pool.find(self._names(sequence, count)[count - 1]) is not None

    def begin(self, sequence: Sequence, blocks: list[int]) -> int | None:
        """Let a sequence start with matched blocks. Return the slot of the state after them, if
        there are ``snapshots`` and the sequence continues from one."""
        for block in blocks:
            self.pool.share(block)
        sequence.block_table = blocks
        sequence.num_computed_tokens = len(blocks) * self.block_size
        if self.snapshots is None:
            return None
        known = len(self.known(sequence)) * self.block_size
        is_near = known - sequence.num_computed_tokens < self.snapshots.near
        sequence.num_matched_tokens = 0 if is_near else known
        return self.snapshots.use(sequence.block_hashes[len(blocks) - 1]) if blocks else None

    def cut(self, sequence: Sequence, num_tokens: int) -> int:
        """Return how many of a sequence's next ``num_tokens`` one step may compute."""
        return num_tokens if self.snapshots is None else self.snapshots.cut(sequence, num_tokens)

    def keep(
        self, sequence: Sequence, before: int, after: int, snapshot: int | None = None
    ) -> None:
        """Name the blocks filled by a sequence's tokens [before, after), which are now computed.
        ``snapshot``: the slot that has the state after them."""
        if not self.enabled:
            return
        names = self._names(sequence, after // self.block_size)
        table, request_id = sequence.block_table, sequence.request_id
        name, named = self._name, self.misses.named
        for index in range(before // self.block_size, after // self.block_size):
            if not name(table[index], names[index]):
                continue
            if index:
                named(table[index], names[index - 1], request_id)
            elif sequence.cache_salt:
                named(table[0], first_block_group(self._unsalted(sequence)), request_id)
            else:
                self.misses.begun(table[0], request_id)
        if snapshot is not None and self.snapshots is not None:
            self.snapshots.filled(names[after // self.block_size - 1], snapshot)

    def begin_step(self, now: float) -> None:
        """Record that a step is planned, at this time."""
        self.misses.now = now
        if self.snapshots is not None:
            self.snapshots.begin_step()

    def reserve(self, sequence: Sequence, end: int) -> int | None:
        """Return the slot for the state after ``end`` tokens, which the step being planned
        computes; None if it is not to be kept."""
        snapshots = self.snapshots
        if snapshots is None or not snapshots.is_boundary(sequence, end):
            return None
        if sequence.token_ids[end - 1] == PENDING:
            return None  # the block has no name yet
        index = end // self.block_size - 1
        return snapshots.reserve(self._names(sequence, index + 1)[index])

    def _evicted_with_state(self, block: int, name: bytes) -> None:
        assert self.snapshots is not None
        self.snapshots.drop(name)
        self.misses.evicted(block, name)

    def found(self, block: int) -> None:
        """Record that a sequence has started with a prefix that ends with this block."""
        self.uses.found(block, self.misses.now)

    def before(self, block: int) -> int | None:
        """Return the block that a block with a name follows; None if it is a first one."""
        group = self.misses.group_of(block)
        return None if group is None else self.pool.find(group)

    def explain(self, sequence: Sequence, num_found: int) -> PrefixMiss:
        """Return why ``match`` found no more than ``num_found`` blocks of a sequence."""
        if not self.enabled:
            return PrefixMiss(PrefixMissReason.OFF)
        if sequence.needs_whole_prompt:
            return PrefixMiss(PrefixMissReason.WHOLE_PROMPT)
        num_known = num_found if self.snapshots is None else len(self.known(sequence))
        if num_known >= (sequence.num_tokens - 1) // self.block_size:
            is_all = num_known == num_found
            return PrefixMiss(PrefixMissReason.SHORT if is_all else PrefixMissReason.STATE)
        names = self._names(sequence, num_known + 1)
        name = names[num_known]
        if num_known:
            miss = self.misses.of_follower(name, names[num_known - 1])
            within = (num_known - num_found + 1) * self.block_size
            return structs.replace(miss, within=within) if miss.request_id else miss
        unsalted = self._unsalted(sequence) if sequence.cache_salt else name
        is_known = self.pool.find(unsalted) is not None
        return self.misses.of_first(name, unsalted, is_known_unsalted=is_known)

    def release(self, blocks: list[int]) -> None:
        """Release a sequence's blocks."""
        for block in reversed(blocks):
            self.pool.release(block)

    def publish(self, table: PrefixTableWriter) -> None:
        """Publish in this table which blocks it has from now on."""
        name, evicted = self.pool.name, self.pool.on_evicted

        def name_and_show(block: int, key: bytes) -> bool:
            is_new = name(block, key)
            if is_new:
                table.add(key)
            return is_new

        def evict_and_hide(block: int, key: bytes) -> None:
            table.remove(key)
            evicted(block, key)

        self._name = name_and_show
        self.pool.on_evicted = evict_and_hide

    def _used_evicted(self, block: int) -> None:
        self.uses.pass_on(block, self.before(block))

    def _unsalted(self, sequence: Sequence) -> bytes:
        """Return the name that the sequence's first block would have without a salt."""
        return block_hash(_NO_SALT, sequence.token_ids[: self.block_size])

    def _names(self, sequence: Sequence, count: int) -> list[bytes]:
        """Return the names of the sequence's blocks, at least of the first ``count``. Names are
        computed once, in order; those of a prompt once for all choices of a request."""
        names, of_prompt = sequence.block_hashes, sequence.prompt_hashes
        known, size = len(names), self.block_size
        if known < count and known < len(of_prompt):
            names.extend(of_prompt[known:count])
            known = len(names)
        if known < count:
            parent = names[-1] if names else root_hash(sequence.cache_salt)
            packed = array("i", sequence.token_ids[known * size : count * size]).tobytes()
            if count - known == 1:  # a decode's
                names.append(chained(parent, packed))
            else:
                width = len(packed) // (count - known)
                for start in range(0, len(packed), width):
                    parent = chained(parent, packed[start : start + width])
                    names.append(parent)
            if len(of_prompt) * size + size <= sequence.num_prompt_tokens:
                of_prompt.extend(names[len(of_prompt) : sequence.num_prompt_tokens // size])
        return names
