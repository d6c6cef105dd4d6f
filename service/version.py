"""Quire's version."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version


def _installed() -> str:
    try:
        return version("quire")
    except PackageNotFoundError:  # running from a checkout that was never installed
        return "0+unknown"


VERSION = _installed()
