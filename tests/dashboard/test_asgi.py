from __future__ import annotations

from pathlib import Path

from streamlit.web.server.app_discovery import discover_asgi_app

from dashboard import asgi


def test_streamlit_finds_the_application_in_the_module() -> None:
    found = discover_asgi_app(Path(asgi.__file__))
    assert found.is_asgi_app
    assert found.import_string is not None
    assert found.import_string.endswith("asgi:app")
