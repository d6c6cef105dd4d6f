"""How many WebSocket connections may be open at once, and how many of them a key may have."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable

from service.errors import UpgradeRequiredError
from service.tenants.caller import Caller
from service.tenants.limit_memory import LimitMemory
from service.tenants.places import MOST_PLACES, owner_number
from service.tenants.shares import share

_DISABLED = "WebSocket is disabled on this server (--max-websockets 0); use HTTP."


class SocketPlaces:
    """``memory``: called once; returns the memory in which this server's workers count. ``most``:
    how many connections all of them together may have."""

    def __init__(self, memory: Callable[[], LimitMemory], most: int) -> None:
        self._find = functools.cache(memory)
        self._most = most

    def take(self, caller: Caller) -> int:
        """Return the caller's place, to be given to ``free``. Raises UpgradeRequiredError."""
        if not self._most:
            raise UpgradeRequiredError(_DISABLED)
        memory = self._find()
        with memory.lock():
            try:
                check_places(caller, memory.places.owned(), self._most)
            except UpgradeRequiredError:
                if not memory.sweep():  # a worker may have died with connections
                    raise
                check_places(caller, memory.places.owned(), self._most)
            return memory.places.take(caller.owner)

    def free(self, place: int) -> None:
        memory = self._find()
        with memory.lock():
            memory.places.free(place)


def check_places(caller: Caller, taken: Counter[int], most: int) -> None:
    """Raise UpgradeRequiredError if the caller may not have one more. If several keys share the
    server, a key without connections is always admitted, and none may exceed its share.
    ``taken``: places by owner (``owner_number``)."""
    owner = owner_number(caller.owner)
    own = taken[owner]
    if caller.shares and own >= share(most, len(taken) - (owner in taken)):
        raise UpgradeRequiredError(
            f"{own} WebSocket connections of this key are open, which is its share; use HTTP."
        )
    total = taken.total()
    if total >= MOST_PLACES or (total >= most and (own or not caller.shares)):
        raise UpgradeRequiredError(
            f"{most} WebSocket connections are open, the most allowed; use HTTP."
        )
