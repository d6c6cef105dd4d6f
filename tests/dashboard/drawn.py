"""What a page shows, as Streamlit drew it."""

from __future__ import annotations

import html
import re

from streamlit.testing.v1 import AppTest


def words(app: AppTest) -> str:
    assert not app.exception, app.exception
    elements = (*app.markdown, *app.caption, *app.warning, *app.error, *app.subheader)
    return "\n".join(str(element.value) for element in elements)


def tiles(app: AppTest) -> dict[str, str]:
    """The live page's tiles: what each shows, by its label."""
    drawn = "".join(str(element.proto.body) for element in app.get("html"))
    cells = re.findall(r"<dt>(.*?)</dt><dd><b>(.*?)</b>", drawn)
    return {label: html.unescape(re.sub("<.*?>", "", value)).strip() for label, value in cells}
