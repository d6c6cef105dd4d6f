"""Numbers of bytes for people."""

from __future__ import annotations

import pytest

from service.hub.units import in_units


@pytest.mark.parametrize(
    ("size", "text"),
    [(0, "0 B"), (999, "999 B"), (1000, "1.0 kB"), (4_039_864, "4.0 MB"), (2e12, "2.0 TB")],
)
def test_units(size: float, text: str) -> None:
    assert in_units(size) == text
