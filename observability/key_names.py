"""The aliases of API keys by number, the same in each worker of a ledger.

Those of the start have their numbers from the settings. Keys may also be made while the server
runs: their aliases get numbers when they are first used, and the ledger remembers which.
"""

from __future__ import annotations

from collections.abc import Sequence

from observability.ledger import WorkerLedger


class KeyNames:
    """``fixed``: known from the start; the last one is that of everything else."""

    def __init__(self, ledger: WorkerLedger, fixed: Sequence[str]) -> None:
        self._ledger = ledger
        self._names = [*fixed[:-1], fixed[-1]]
        self._rest = len(fixed) - 1
        self._most = len(fixed) + ledger.layout.key_names
        for number in range(ledger.layout.key_names):
            name = ledger.read_name(number)
            if not name:
                break
            self._names.append(name.decode())
        self._numbers = {name: number for number, name in enumerate(self._names)}

    def __len__(self) -> int:
        """How many numbers there can be."""
        return self._most

    def __getitem__(self, number: int) -> str:
        return self._names[number]

    def number_of(self, name: str) -> int:
        """Return the name's number, a new one if there is one left, else that of the rest."""
        found = self._numbers.get(name)
        if found is not None:
            return found
        if len(self._names) >= self._most:
            return self._rest
        try:
            self._ledger.write_name(len(self._names) - self._rest - 1, name.encode())
        except ValueError:
            return self._rest
        self._numbers[name] = len(self._names)
        self._names.append(name)
        return self._numbers[name]
