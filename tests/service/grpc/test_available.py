"""Whether gRPC can be served is known without importing it."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

import pytest

from service.grpc import available


def test_nothing_is_missing_if_everything_is_installed() -> None:
    assert available.problem() == ""


@pytest.mark.parametrize(
    ("hidden", "packages"),
    [
        (("grpc_health",), ["grpcio-health-checking"]),
        (
            ("grpc", "grpc_health", "grpc_reflection"),
            ["grpcio", "grpcio-health-checking", "grpcio-reflection"],
        ),
    ],
)
def test_each_missing_package_is_named_in_a_command_that_installs_it_here(
    hidden: tuple[str, ...],
    packages: list[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    monkeypatch.setattr(sys, "executable", str(tmp_path / "a folder" / "python"))
    for module in hidden:
        monkeypatch.setitem(sys.modules, module, None)  # how Python notes what cannot be imported
    problem = available.problem()
    command = shlex.split(problem.splitlines()[-1])
    assert command == [sys.executable, "-m", "pip", "install", *packages]
    assert f"needs {', '.join(packages)}, not installed" in problem
