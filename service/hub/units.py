"""Numbers of bytes for people."""

from __future__ import annotations


def in_units(size: float) -> str:
    """Return a number of bytes in powers of ten, as hubs do."""
    for unit in ("B", "kB", "MB", "GB"):
        if size < 1000:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.1f} TB"
