"""The settings of a shutdown."""

from __future__ import annotations

from typing import Annotated

from engine.options import setting
from service.key_settings import KeySettings

_SHUTDOWN = "Shutdown"


class DrainSettings(KeySettings, frozen=True, kw_only=True):
    """How a server ends while clients still send requests."""

    drain_delay: Annotated[
        float,
        setting(
            _SHUTDOWN,
            "Seconds at shutdown in which /health/ready says 503 but requests are still accepted, "
            "so that a proxy that checks it stops sending them. 0 where something else does that, "
            "as in Kubernetes.",
            ge=0,
            le=300,
        ),
    ] = 0.0
    drain_timeout: Annotated[
        float,
        setting(
            _SHUTDOWN,
            "Seconds that running requests have to finish at shutdown.",
            ge=0,
            le=3600,
        ),
    ] = 30.0
