"""Checks whether the packages that gRPC needs are installed, without importing them."""

from __future__ import annotations

import importlib.util
import shlex
import sys

_PACKAGES = {
    "grpc": "grpcio",
    "grpc_health": "grpcio-health-checking",
    "grpc_reflection": "grpcio-reflection",
}


def problem() -> str:
    """Return what is missing and how to install it; empty if nothing is."""
    missing = [
        package for module, package in _PACKAGES.items() if importlib.util.find_spec(module) is None
    ]
    if not missing:
        return ""
    return (
        f"--grpc-port needs {', '.join(missing)}, not installed here. "
        "Run 'make install' in Quire's folder, or\n"
        f"  {shlex.quote(sys.executable)} -m pip install {' '.join(missing)}"
    )
