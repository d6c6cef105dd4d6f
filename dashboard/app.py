"""The Streamlit entry point; ``python -m dashboard`` runs it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import streamlit as st

from dashboard import chats, session
from dashboard.following import PAGES
from dashboard.signing_in import visitors_only
from dashboard.views import (
    admin,
    kv_cache,
    live,
    load,
    playground,
    request,
    requests,
    tour_caption,
    usage,
)
from observability.stacks import write_stacks_on_sigusr1

# A quire: folded sheets, seen from the spine. Drawn here, since a named icon would be fetched
# from a font server.
_SHEETS = """
  <g fill="none" stroke="#0d9488" stroke-width="3" stroke-linejoin="round">
    <path d="M20 9 L6 5 V31 L20 35 Z"/>
    <path d="M20 9 L34 5 V31 L20 35"/>
    <path d="M20 15 L34 11" stroke-width="2"/>
    <path d="M20 22 L34 18" stroke-width="2"/>
  </g>
"""
_ICON = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 40 40">{_SHEETS}</svg>'
_LOGO = f"""<svg xmlns="http://www.w3.org/2000/svg" width="132" height="40" viewBox="0 0 132 40">
  {_SHEETS}
  <text x="46" y="29" font-family="Source Sans, DejaVu Sans, sans-serif" font-size="26"
        font-weight="700" fill="#0d9488">Quire</text>
</svg>"""


_PAGES = (
    (live.page, "Live", "monitoring"),
    (requests.page, "Requests", "list"),
    (kv_cache.page, "KV cache", "grid_view"),
    (usage.page, "Usage", "bar_chart"),
    (playground.page, "Playground", "forum"),
    (load.page, "Load", "speed"),
    (admin.page, "Admin", "tune"),
)


def main() -> None:
    write_stacks_on_sigusr1()
    st.set_page_config(page_title="Quire", page_icon=_ICON, layout="wide")
    st.logo(_LOGO, size="large")
    st.html(Path(__file__).with_name("style.css"))
    # Streamlit serves its default page at / alone, whatever path it is given. So that /live is an
    # address like the others, the default is a page that leads there.
    start = st.Page(_home, title="Quire", url_path="home", default=True, visibility="hidden")
    pages = [_page(*entry) for entry in _PAGES]
    PAGES.update({page.url_path: page for page in pages})
    inspector = st.Page(request.page, title="Request", url_path="request", visibility="hidden")
    PAGES["request"] = inspector
    page = st.navigation([start, *pages, inspector], position="top")
    visitors_only()
    chats.reopen()
    tour_caption.strip()
    session.show(page.url_path)
    page.run()


def _home() -> None:
    st.switch_page(PAGES["live"])


def _page(run: Callable[[], None], title: str, icon: str) -> st.Page:
    path = title.split()[0].lower()
    return st.Page(run, title=title, icon=f":material/{icon}:", url_path=path)


main()
