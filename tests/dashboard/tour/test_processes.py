"""The tour watched to its end, on a real server and a real dashboard."""

from __future__ import annotations

import re
import socket
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from dashboard.tour.caption import Caption, write
from dashboard.tour.processes import KEYS, TourError, TourProcesses, port_or_free
from tests.dashboard.running import in_chromium
from tests.e2e.quire_server import free_port

if TYPE_CHECKING:
    from playwright.sync_api import Page

ROOT = Path(__file__).resolve().parents[3]


def test_a_taken_port_is_replaced_by_a_free_one() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert port_or_free(port) not in (0, port)
    assert port_or_free(port) == port
    assert port_or_free(70_000) not in (0, 70_000)


def test_a_server_that_does_not_start_is_reported_with_its_log(tmp_path: Path) -> None:
    processes = TourProcesses(tmp_path, "simulated:nonsense", free_port(), free_port(), free_port())
    with processes, pytest.raises(TourError, match=r"(?s)server did not start.*nonsense"):
        processes.start()


@in_chromium
def test_everything_can_be_read_and_chatted_with_without_a_key(
    tmp_path: Path, page: Page, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("QUIRE_ADMIN_KEY", "the-key-of-another-server")
    monkeypatch.setenv("QUIRE_API_KEY", "the-key-of-another-server")
    ports = [free_port() for _ in range(3)]
    with TourProcesses(tmp_path, "simulated:", *ports) as processes:
        processes.start()
        caption = Caption(1, 4, "Agents", "", "", "/live", 70, api_key=KEYS["carol"])
        write(processes.caption, caption)
        page.goto(f"{processes.dashboard_url}/live")
        page.locator(".tile").first.wait_for()
        page.get_by_role("link", name="Requests").click()
        page.get_by_text("There was no request").wait_for()
        page.get_by_role("link", name="Playground").click()
        question = page.get_by_test_id("stChatInputTextArea")
        question.fill("Hello")
        question.press("Enter")
        page.get_by_text("finish:").first.wait_for()


@pytest.mark.timeout(300)
def test_the_tour_runs_to_its_end_and_no_stream_breaks() -> None:
    ports = [f"--port={free_port()}", f"--dashboard-port={free_port()}"]
    done = subprocess.run(
        [sys.executable, "-m", "dashboard.tour", "--fast", *ports],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert len(re.findall(r"^  -> ", done.stdout, re.MULTILINE)) == 4
    answers = re.search(r"agents got (\d+) answers", done.stdout)
    assert answers is not None
    assert int(answers[1]) > 0
    assert "110,000 prompt tokens were computed" in done.stdout
    streams = re.search(r"was killed with (\d+) streams running; all of them", done.stdout)
    assert streams is not None
    assert int(streams[1]) > 0
