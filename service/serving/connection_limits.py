"""How many connections each of a worker's servers accepts, so that descriptors do not run out."""

from __future__ import annotations

import resource
from dataclasses import dataclass

from service.serving.limits import MOST_CONNECTIONS
from service.settings import ServiceSettings

# Descriptors that are not client connections: the engines' sockets, the store, logs, processes
# that prepare requests.
RESERVED_DESCRIPTORS = 128
# An idle worker with one engine holds about this many.
_IDLE_DESCRIPTORS = 60
MOST_ADMIN_CONNECTIONS = 128
# The part of the other descriptors that the admin API or gRPC may have.
_PART = 4
# With a low limit, clients get this many, or what an idle worker leaves ...
_LEAST_DESCRIPTORS = 64
# ... but at least enough for one connection to each server.
_FEWEST = 4
FEWEST_DESCRIPTORS = _IDLE_DESCRIPTORS + _FEWEST


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """0 for a server that does not run."""

    http: int
    admin: int
    grpc: int

    @classmethod
    def of(cls, settings: ServiceSettings) -> ConnectionLimits:
        descriptors, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        if descriptors == resource.RLIM_INFINITY:
            descriptors = 8 * MOST_CONNECTIONS
        left = min(_LEAST_DESCRIPTORS, descriptors - _IDLE_DESCRIPTORS)
        free = max(_FEWEST, left, descriptors - RESERVED_DESCRIPTORS)
        admin = min(MOST_ADMIN_CONNECTIONS, free // _PART) if settings.admin else 0
        grpc = 0 if settings.grpc_port is None else min(MOST_CONNECTIONS, free // _PART)
        return cls(min(MOST_CONNECTIONS, free - admin - grpc), admin, grpc)
