"""Ends a transfer that sends more than the hub announced, before it is written.

The library compares sizes only after the last byte, which an endless body never has.
"""

from __future__ import annotations

from typing import Any

from huggingface_hub.utils import tqdm

from service.hub.errors import HubError
from service.hub.units import in_units


def bounded_transfer(name: str, most: int | None) -> type[tqdm]:
    """Return a progress bar to which the library reports each piece of a file before writing it.
    ``name``: the file's; ``most``: its size in bytes, None if it is unknown."""

    class BoundedTransfer(tqdm):
        """``initial``: bytes that are there already. Raises HubError."""

        def __init__(self, *arguments: Any, **more: Any) -> None:
            super().__init__(*arguments, **more | {"disable": True})  # type: ignore[no-untyped-call]
            # Chunks (xet) are counted as they are moved, which may be more than the file has.
            self._most = None if "xet" in more.get("name", "") else most
            self._there = int(more.get("initial", 0))

        def update(self, n: float | None = 1) -> Any:
            self._there += int(n or 0)
            if self._most is not None and self._there > self._most:
                raise HubError(
                    f"the hub sends more than {in_units(self._most)} of {name}, the file's limit, "
                    "so the download was ended; look for a faulty proxy or mirror "
                    "(HF_ENDPOINT)"
                )
            return super().update(n)

    return BoundedTransfer
