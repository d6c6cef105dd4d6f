"""What a page shows, as Streamlit drew it."""

from __future__ import annotations

from streamlit.testing.v1 import AppTest


def words(app: AppTest) -> str:
    assert not app.exception, app.exception
    elements = (*app.markdown, *app.caption, *app.warning, *app.error, *app.subheader)
    return "\n".join(str(element.value) for element in elements)
