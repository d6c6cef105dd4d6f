"""Who holds the KV cache, block by block, now and in the last hour, and which prefixes are
shared."""

from __future__ import annotations

import streamlit as st

from dashboard.components import feed_data, kv_map, mounted
from dashboard.following import follow_link
from dashboard.signing_in import admitted, one_server


def page() -> None:
    index = one_server()
    admitted(index)
    address = mounted(kv_map, f"kv {index}", feed_data([index], kv=True))
    st.caption(
        "Each cell is a block; in a large pool, one of several. Colored: held by a request, "
        "outlined if several share it. Grey: cached for later requests. Faint: free. The slider "
        "goes back to maps of the last hour, which the server keeps while this page is open."
    )
    follow_link(address)
