from __future__ import annotations

import functools
import json
import socket
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from streamlit.components.v2 import manifest_scanner

from tests.dashboard.foreign_server import ForeignServer
from tests.dashboard.running import PATIENCE_MS, chromium
from tests.e2e.quire_server import QuireServer
from tests.service.tiny_model import write_tiny_model

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page


@pytest.fixture(scope="session", autouse=True)
def _installed_components() -> Iterator[None]:
    """Each page under test would look through everything that is installed."""
    scan = functools.cache(manifest_scanner.scan_component_manifests)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(manifest_scanner, "scan_component_manifests", scan)
        yield


@pytest.fixture
def closed_url() -> Iterator[str]:
    """An address at which nothing listens: bound, so that no other process gets it."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{bound.getsockname()[1]}"


@pytest.fixture
def foreign() -> Iterator[ForeignServer]:
    with ForeignServer() as server:
        yield server


@pytest.fixture(scope="package")
def quire(tmp_path_factory: pytest.TempPathFactory) -> Iterator[QuireServer]:
    """Quire with random weights and a template that adds nothing: greedily, such a model repeats
    the last token it was given ("Hello" makes "HelloHello…") until its tokens are spent, so an
    answer lasts as long as a test needs it to."""
    directory = write_tiny_model(tmp_path_factory.mktemp("models") / "tiny")
    config = json.loads((directory / "config.json").read_text())
    config["max_position_embeddings"] = 32768
    (directory / "config.json").write_text(json.dumps(config))
    template = "{% for message in messages %}{{ message.content }}{% endfor %}"
    (directory / "chat_template.jinja").write_text(template)
    with QuireServer(str(directory), "--load-format", "dummy") as running:
        yield running


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver:
        browser = chromium(driver)
        yield browser
        browser.close()


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    page = browser.new_page(viewport={"width": 1280, "height": 800})
    page.set_default_timeout(PATIENCE_MS)
    yield page
    page.close()
