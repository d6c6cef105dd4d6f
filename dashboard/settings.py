"""The servers this dashboard may access. They are set by the operator, not the visitor: a page that
fetches any address a visitor types would expose the network it runs in."""

from __future__ import annotations

from collections.abc import Mapping

from dashboard.server import base_url

SERVERS_VARIABLE = "QUIRE_BASE_URL"
DEFAULT_URL = "http://127.0.0.1:8000"


def servers(environment: Mapping[str, str]) -> list[str]:
    """``QUIRE_BASE_URL``: one or more base URLs, separated by spaces or commas.

    Raises ValueError when one of them is no http(s) URL.
    """
    listed = environment.get(SERVERS_VARIABLE, "").replace(",", " ").split()
    return list(dict.fromkeys(base_url(url) for url in listed)) or [DEFAULT_URL]
