"""The connections of all servers together leave descriptors for everything else."""

from __future__ import annotations

import resource

import pytest

from service.serving.connection_limits import RESERVED_DESCRIPTORS, ConnectionLimits
from service.settings import ServiceSettings


@pytest.mark.parametrize("admin", [True, False])
@pytest.mark.parametrize("grpc_port", [None, 9000])
@pytest.mark.parametrize("descriptors", [256, 1024, 1 << 30])
def test_connections_leave_descriptors_for_everything_else(
    descriptors: int, grpc_port: int | None, admin: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("resource.getrlimit", lambda _: (descriptors, descriptors))
    limits = ConnectionLimits.of(ServiceSettings(grpc_port=grpc_port, admin=admin))
    assert limits.http + limits.admin + limits.grpc <= descriptors - RESERVED_DESCRIPTORS
    assert limits.http >= 32
    assert bool(limits.admin) is admin
    assert bool(limits.grpc) is (grpc_port is not None)


@pytest.mark.parametrize(("descriptors", "most"), [(64, 4), (100, 40), (128, 64), (192, 64)])
def test_a_low_limit_leaves_what_an_idle_worker_does_not_take(
    descriptors: int, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("resource.getrlimit", lambda _: (descriptors, descriptors))
    limits = ConnectionLimits.of(ServiceSettings(grpc_port=9000))
    assert limits.http + limits.admin + limits.grpc == most
    assert min(limits.http, limits.admin, limits.grpc) >= 1


def test_any_number_of_descriptors_may_be_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("resource.getrlimit", lambda _: (resource.RLIM_INFINITY,) * 2)
    limits = ConnectionLimits.of(ServiceSettings(grpc_port=9000))
    assert limits.http == 65_536
