"""The Streamlit entry point; ``python -m dashboard`` runs it."""

from __future__ import annotations

from pathlib import Path

import streamlit as st

from dashboard import chats
from dashboard.views import live, playground
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


def main() -> None:
    write_stacks_on_sigusr1()
    st.set_page_config(page_title="Quire", page_icon=_ICON, layout="wide")
    st.logo(_LOGO, size="large")
    st.html(Path(__file__).with_name("style.css"))
    # Streamlit serves its default page at / alone, whatever path it is given. So that /live is an
    # address like the others, the default is a page that leads there.
    watch = st.Page(live.page, title="Live", icon=":material/monitoring:", url_path="live")
    chat = st.Page(
        playground.page, title="Playground", icon=":material/forum:", url_path="playground"
    )

    def home() -> None:
        st.switch_page(watch)

    start = st.Page(home, title="Quire", url_path="home", default=True, visibility="hidden")
    page = st.navigation([start, watch, chat], position="top")
    chats.reopen()
    page.run()


main()
