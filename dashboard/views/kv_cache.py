"""Who holds the KV cache, block by block, now and in the last hour, and which prefixes are
shared."""

from __future__ import annotations

import streamlit as st

from dashboard.admin_client import AdminClient, AdminRefusalError
from dashboard.components import feed_data, kv_map, mounted
from dashboard.following import follow_link
from dashboard.session import pick
from dashboard.signing_in import admitted, one_server


def page() -> None:
    index = one_server()
    engine = _engine(admitted(index).client)
    address = mounted(kv_map, f"kv {index} {engine}", feed_data([index], kv=engine))
    st.caption(
        "Each cell is a block; in a large pool, one of several. Colored: held by a request, "
        "outlined if several share it. Grey: cached for later requests. Faint: free. The slider "
        "goes back to maps of the last hour, which the server keeps while this page is open."
    )
    follow_link(address)


def _engine(client: AdminClient) -> int:
    """Return the index of the engine to show; a picker is drawn if the server has several."""
    try:
        overview, _ = client.overview()
    except AdminRefusalError:  # it is away for a moment; the map says so
        return 0
    names = [f"Engine {number}" for number in range(overview.engines)]
    return 0 if len(names) == 1 else names.index(pick("Engine", names, "engine"))
