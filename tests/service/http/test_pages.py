"""The pages that describe the server and its API."""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import urljoin

from litestar import Litestar
from litestar.testing import TestClient

from tests.service.http.apps import client_of


def test_pages_need_nothing_from_elsewhere(client: TestClient[Litestar]) -> None:
    for path in ("/", "/docs"):
        page = client.get(path, headers={"Accept": "text/html,*/*;q=0.8"})
        assert page.headers["content-type"] == "text/html; charset=utf-8"
        for remote in ('src="http', 'href="http', "url(http", "@import", "import("):
            assert remote not in page.text


def test_links_work_under_a_path_of_a_proxy(client: TestClient[Litestar]) -> None:
    """Such as /llm/, which the proxy removes."""
    for page in ("/", "/docs"):
        text = client.get(page, headers={"Accept": "text/html"}).text
        links = re.findall(r'href="([^"#][^"]*)"', text)
        assert links
        for link in links:
            address = urljoin(f"http://localhost/llm{page}", link)
            assert address.startswith("http://localhost/llm/")
            path = address.removeprefix("http://localhost/llm")
            assert client.get(path).status_code in (200, 503)  # 503: its model is loading


def test_head_of_the_front_page_says_that_a_server_is_there(
    client: TestClient[Litestar],
) -> None:
    reply = client.head("/")
    assert (reply.status_code, reply.content) == (200, b"")


def test_the_front_page_speaks_html_to_browsers_and_json_to_programs(
    own_template: Path, tmp_path: Path
) -> None:
    with client_of(own_template, tmp_path, served_model_name=('<b>"tiny"</b>',)) as client:
        page = client.get("/", headers={"Accept": "text/html"}).text
        facts = client.get("/").json()
    assert "curl" in page
    assert "/v1/chat/completions" in page
    assert "<b>" not in page
    assert facts["model"] == '<b>"tiny"</b>'
    assert facts["docs"].endswith("/docs")
    assert facts["status"] == "loading"
