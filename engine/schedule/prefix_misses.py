"""Why a prompt was not found in the prefix cache.

Beside the cache's own table, this keeps what explains a miss: which blocks follow the same prefix,
which first blocks have the same tokens under another salt, and which blocks were evicted lately.
Its size is bounded by the number of blocks, and by ``REMEMBERED_EVICTIONS``. ``named`` and
``evicted`` are called for every block of a prompt, and do as little as they can.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from engine.messages import PrefixMiss, PrefixMissReason

REMEMBERED_EVICTIONS = 16_384  # at least; twice as many at most

# Keeps names without a salt apart from names of blocks that others follow: both are hashes.
_FIRST = b"first block "


def first_block_group(unsalted: bytes) -> bytes:
    """Return the group of the salted first blocks with the same tokens. ``unsalted``: the name that
    they would have without their salt."""
    return _FIRST + unsalted


class PrefixMisses:
    """Has to know of every block that gets or loses a name (see ``engine.schedule.prefix``).

    A block may belong to a group: blocks that follow the same block, or salted first blocks with
    the same tokens. Most groups have one member.
    """

    def __init__(
        self, num_blocks: int, hits: Sequence[int], on_used_evicted: Callable[[int], None]
    ) -> None:
        """``on_used_evicted`` is called with each evicted block that has ``hits``, while its group
        is still known. (Here, since a further call for every eviction would cost too much.)"""
        self._hits = hits
        self._on_used_evicted = on_used_evicted
        self.now = 0.0  # monotonic seconds, of the step being planned
        self._members: dict[bytes, int | set[int]] = {}
        self._groups: list[bytes | None] = [None] * num_blocks
        self._requests = [""] * num_blocks
        # When blocks were evicted, by name: the latest, and those before them.
        self._evicted: dict[bytes, float] = {}
        self._evicted_before: dict[bytes, float] = {}

    def named(self, block: int, group: bytes, request_id: str) -> None:
        """Record that ``request_id`` has computed a block of a group."""
        self._groups[block] = group
        self._requests[block] = request_id
        members = self._members
        other = members.setdefault(group, block)
        if other == block:
            return
        if isinstance(other, set):
            other.add(block)
        else:
            members[group] = {other, block}

    def begun(self, block: int, request_id: str) -> None:
        """Record that ``request_id`` has computed a first block without a salt."""
        self._requests[block] = request_id

    def group_of(self, block: int) -> bytes | None:
        """Return the group of a block; of one that follows another, that is the other's name."""
        return self._groups[block]

    def request_of(self, block: int) -> str:
        """Return the request that has computed a block with a name."""
        return self._requests[block]

    def evicted(self, block: int, name: bytes) -> None:
        """Record that a block lost its name."""
        evicted = self._evicted
        evicted[name] = self.now
        if len(evicted) > REMEMBERED_EVICTIONS:
            self._evicted, self._evicted_before = {}, evicted
        if self._hits[block]:
            self._on_used_evicted(block)
        group = self._groups[block]
        if group is None:
            return
        self._groups[block] = None
        members = self._members.pop(group)
        if isinstance(members, set):
            members.discard(block)
            self._members[group] = members if len(members) > 1 else members.pop()

    def of_follower(self, name: bytes, before: bytes) -> PrefixMiss:
        """Explain why no block has this name, although there is one named ``before``."""
        lost = self._loss(name)
        if lost is not None:
            return lost
        members = self._members.get(before)
        if members is None:
            return PrefixMiss(PrefixMissReason.FIRST_SEEN)
        other = next(iter(members)) if isinstance(members, set) else members
        return PrefixMiss(PrefixMissReason.DIVERGED, request_id=self._requests[other])

    def of_first(self, name: bytes, unsalted: bytes, *, is_known_unsalted: bool) -> PrefixMiss:
        """Explain why no first block has this name. ``unsalted``: the name that it would have
        without its salt; ``is_known_unsalted``: there is a block of that name."""
        lost = self._loss(name)
        if lost is not None:
            return lost
        if is_known_unsalted or first_block_group(unsalted) in self._members:
            return PrefixMiss(PrefixMissReason.SALT)
        return PrefixMiss(PrefixMissReason.FIRST_SEEN)

    def _loss(self, name: bytes) -> PrefixMiss | None:
        at = self._evicted.get(name)
        if at is None:
            at = self._evicted_before.get(name)
        if at is None:
            return None
        return PrefixMiss(PrefixMissReason.EVICTED, seconds_ago=max(0.0, self.now - at))
