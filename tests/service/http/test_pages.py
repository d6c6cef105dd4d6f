"""The pages that describe the server and its API."""

from __future__ import annotations

import html
import re
from pathlib import Path
from urllib.parse import urljoin

import httpx
import pytest
from litestar import Litestar
from litestar.testing import TestClient

from tests.service.http.apps import KEYS, client_of
from tests.service.running import RunningService


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


def _programs(page: str) -> list[str]:
    blocks = re.findall(r"<pre>(.*?)</pre>", page, re.DOTALL)
    return [html.unescape(block) for block in blocks if "import " in block]


def test_programs_of_the_front_page_run_as_they_are(
    service: RunningService, capsys: pytest.CaptureFixture[str]
) -> None:
    page = httpx.get(service.url, headers={"Accept": "text/html"}).text
    programs = _programs(page)
    assert len(programs) == 2  # OpenAI's client and Anthropic's
    for program in programs:
        exec(compile(program, "<front page>", "exec"), {})  # noqa: S102
    assert "TextBlock" not in capsys.readouterr().out


def test_the_front_page_of_a_server_with_keys_takes_the_key_from_the_environment(
    locked: TestClient[Litestar], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("QUIRE_API_KEY", KEYS[0])
    programs = _programs(locked.get("/", headers={"Accept": "text/html"}).text)
    assert len(programs) == 2
    for program in programs:
        made = program[: program.index(")\n") + 1]
        variables: dict[str, object] = {}
        exec(compile(made, "<front page>", "exec"), variables)  # noqa: S102
        assert getattr(variables["client"], "api_key", None) == KEYS[0]


def test_the_front_page_names_the_metrics_only_where_they_are_served(
    client: TestClient[Litestar], locked: TestClient[Litestar]
) -> None:
    for opened, served in ((client, True), (locked, False)):
        assert (opened.get("/metrics").status_code == 200) == served
        assert ("/metrics" in opened.get("/", headers={"Accept": "text/html"}).text) == served
        assert ("metrics" in opened.get("/").json()) == served
