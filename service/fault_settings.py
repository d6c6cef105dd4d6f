"""The setting that injects faults."""

from __future__ import annotations

from typing import Annotated

import msgspec

from engine.faults.table import Fault, parse_faults
from engine.options import OptionError, setting

_TESTS = "Tests and drills"


class FaultSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Faults that a server injects into itself, to show how it copes with them."""

    fault: Annotated[
        tuple[str, ...],
        setting(
            _TESTS,
            "Fault to inject, as NAME or NAME:KEY=VALUE:KEY=VALUE (see docs/drill.md). It harms "
            "the server's users. Default: none.",
            max_length=32,
        ),
    ] = ()

    def __post_init__(self) -> None:
        """Raise OptionError for a fault that is not valid."""
        try:
            _ = self.faults
        except OptionError as error:
            raise OptionError(f"--fault: {error}") from None

    @property
    def faults(self) -> tuple[Fault, ...]:
        return parse_faults(self.fault)
