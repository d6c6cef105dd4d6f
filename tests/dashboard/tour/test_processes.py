"""The tour watched to its end, on a real server and a real dashboard."""

from __future__ import annotations

import re
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from dashboard.tour.processes import TourError, TourProcesses, port_or_free
from tests.e2e.quire_server import free_port

ROOT = Path(__file__).resolve().parents[3]


def test_a_taken_port_is_replaced_by_a_free_one() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert port_or_free(port) not in (0, port)
    assert port_or_free(port) == port


def test_a_server_that_does_not_start_is_reported_with_its_log(tmp_path: Path) -> None:
    processes = TourProcesses(tmp_path, "simulated:nonsense", free_port(), free_port())
    with processes, pytest.raises(TourError, match=r"(?s)server did not start.*nonsense"):
        processes.start()


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
