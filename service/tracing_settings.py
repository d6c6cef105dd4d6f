"""The settings of traces and of the audit log."""

from __future__ import annotations

from collections.abc import Collection
from typing import Annotated

from engine.options import OptionError, setting
from service.fault_settings import FaultSettings

_TRACES = "Traces and audit"


class TracingSettings(FaultSettings, frozen=True, kw_only=True):
    """Who decides what is traced, and where changes are noted."""

    tracing_key: Annotated[
        tuple[str, ...],
        setting(
            _TRACES,
            "Aliases of API keys whose callers decide, by the sampled flag of their traceparent "
            "header, whether a request is traced. Others' flags have no effect. Default: the "
            "keys that may set a negative priority.",
            max_length=1024,
        ),
    ] = ()
    audit_log: (
        Annotated[
            str,
            setting(
                _TRACES,
                "File to which each change made through the admin API is appended as a JSON line; "
                "reopened after it is renamed. Default: these lines go to the log.",
                min_length=1,
                max_length=4096,
            ),
        ]
        | None
    ) = None

    def check_tracing_keys(self, known: Collection[str]) -> None:
        """Raise OptionError for an alias that is not one of ``known``."""
        for alias in self.tracing_key:
            if alias not in known:
                raise OptionError(
                    f"--tracing-key {alias!r} is not an alias of an API key; "
                    f"there are {', '.join(known) or 'none'}."
                )
