"""Where a request's trace can be seen, if the operator has named a tracing backend."""

from __future__ import annotations

from collections.abc import Mapping

TRACE_VARIABLE = "QUIRE_DASHBOARD_TRACE_URL"
_ID = "{trace_id}"


def trace_url(environment: Mapping[str, str]) -> str:
    """Return the address in ``QUIRE_DASHBOARD_TRACE_URL``, which contains ``{trace_id}``; empty if
    it is not set.

    Raises ValueError.
    """
    address = environment.get(TRACE_VARIABLE, "").strip()
    if address and (not address.startswith(("http://", "https://")) or _ID not in address):
        raise ValueError(
            f"{TRACE_VARIABLE} is {address!r}; set an http(s) URL that contains {_ID}, such as "
            f"'https://jaeger.example/trace/{_ID}'"
        )
    return address


def trace_link(address: str, trace_id: str) -> str | None:
    """Return where this trace is, None without an address or a trace."""
    return address.replace(_ID, trace_id) if address and trace_id else None
