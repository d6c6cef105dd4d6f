"""Seeded chance with a train/held-out split built in.

Every value that a gate must not have seen in training (made-up words, operand pairs, function
names, spelled words) is asked of a `Dice`, which rejects those that hash to the other side. The
split is a property of the value, not of the seed, so no seed can leak one side into the other.
"""

import random
import zlib
from collections.abc import Callable, Sequence
from typing import Final, TypeVar

T = TypeVar("T")

HELD_SHARE: Final = 8
"""One value in this many is held out."""


def is_held(key: str) -> bool:
    """Whether the value written as `key` belongs to the held-out side."""
    return zlib.crc32(key.encode()) % HELD_SHARE == 0


class Dice(random.Random):
    """A seeded random source that stays on one side of the split."""

    def __init__(self, seed: int | str, held: bool = False) -> None:
        super().__init__(f"pocket:{seed}")
        self.held = held

    def chance(self, p: float) -> bool:
        """True with probability p."""
        return self.random() < p

    def pick(self, *options: T) -> T:
        """One of the arguments, uniformly."""
        return self.choice(options)

    def drawn(self, *makers: Callable[["Dice"], T]) -> T:
        """What one of the makers, uniformly, makes of these dice."""
        return self.choice(makers)(self)

    def own(self, draw: Callable[[], T], key: Callable[[T], str] = str) -> T:
        """Draw until the value lies on this side of the split."""
        while True:
            value = draw()
            if is_held(key(value)) == self.held:
                return value

    def some(self, options: Sequence[T], low: int, high: int) -> list[T]:
        """Between low and high distinct options, in random order."""
        return self.sample(options, min(len(options), self.randint(low, high)))
