"""The dashboard as a user starts it, and how Chromium is started to look at it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import pytest

from dashboard.admin_client import AdminClient
from dashboard.settings import ADMIN_VARIABLE, NO_ADMIN
from tests.e2e.quire_server import ROOT, QuireServer, free_port, until

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Playwright

Test = TypeVar("Test", bound=Callable[..., None])
CHROMIUM = shutil.which("chromium")
# As root in a container, and silent about itself.
_FLAGS = (
    *("no-sandbox", "disable-gpu", "disable-quic", "no-first-run", "disable-sync"),
    *("disable-background-networking", "disable-component-update"),
)
PATIENCE_MS = 90_000
# The marks of a test that looks at a page.
IN_CHROMIUM = [
    pytest.mark.debian,
    pytest.mark.skipif(CHROMIUM is None, reason="needs Debian's package chromium"),
    pytest.mark.skipif(find_spec("playwright") is None, reason="needs pip install playwright"),
]
# For all Python code of a server. How far its clock is ahead is in a file that may change.
_WRONG_CLOCK = """
import mmap, os, time
file = os.open(os.path.join(os.path.dirname(__file__), "ahead"), os.O_RDONLY)
ahead = mmap.mmap(file, 8, prot=mmap.PROT_READ)
os.close(file)
right, right_ns = time.time, time.time_ns
seconds = lambda: int.from_bytes(ahead[:8], "little", signed=True)
time.time = lambda: right() + seconds()
time.time_ns = lambda: right_ns() + seconds() * 1_000_000_000
"""


def in_chromium(test: Test) -> Test:
    """Give one test of a module the marks of ``IN_CHROMIUM``."""
    for mark in IN_CHROMIUM:
        test = mark(test)
    return test


def chromium(driver: Playwright) -> Browser:
    return driver.chromium.launch(executable_path=CHROMIUM, args=[f"--{flag}" for flag in _FLAGS])


def wrong_clock(server: QuireServer, directory: Path) -> Path:
    """Let a server that is not running yet have a clock that ``set_clock`` sets."""
    directory.mkdir()
    (directory / "sitecustomize.py").write_text(_WRONG_CLOCK)
    server.source = directory
    set_clock(directory / "ahead", 0)
    return directory / "ahead"


def set_clock(ahead: Path, seconds: int) -> None:
    """Put a server's clock ahead by so much from now on."""
    with ahead.open("r+b" if ahead.exists() else "wb") as file:
        file.write(seconds.to_bytes(8, "little", signed=True))


@contextmanager
def watched_server(
    log: Path, model: str, *options: str
) -> Iterator[tuple[QuireServer, AdminClient, str]]:
    """A server, its admin API, and the URL of a dashboard that shows both."""
    port = free_port()
    admin = f"http://127.0.0.1:{port}"
    with (
        QuireServer(model, "--admin-port", str(port), *options) as server,
        dashboard_of(server.url, log, admin=admin) as url,
    ):
        yield server, AdminClient(admin), url


@contextmanager
def dashboard_of(
    server: str,
    log: Path,
    pids: list[int] | None = None,
    *,
    admin: str = NO_ADMIN,
    port: int | None = None,
) -> Iterator[str]:
    """``python -m dashboard`` looking at ``server``, or several between spaces; its URL. Its
    process id is added to ``pids``. ``admin``: URLs of the servers' admin APIs, without which
    /metrics is shown."""
    port = port or free_port()
    asked = [word for url in server.split() for word in ("--url", url)]
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "dashboard", *asked, "--port", str(port)],
            cwd=ROOT,
            stdout=output,
            stderr=subprocess.STDOUT,
            env={**os.environ, "OMP_NUM_THREADS": "1", ADMIN_VARIABLE: admin},
        )
    if pids is not None:
        pids.append(process.pid)
    url = f"http://127.0.0.1:{port}"

    def up() -> bool:
        assert process.poll() is None, log.read_text()
        try:
            with urllib.request.urlopen(f"{url}/_stcore/health", timeout=1) as reply:
                return bool(reply.status == 200)
        except (urllib.error.URLError, TimeoutError, ConnectionError):
            return False

    try:
        until(up, 90, "Streamlit to start")
        yield url
    finally:
        process.terminate()
        process.wait(30)
