"""schemathesis against our document: no server fault, and no answer that it does not describe."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.quire_server import QuireServer

# Not among them: that every request the schema allows is taken. Much of what makes one sound (which
# fields go together, what a model can do) no schema says.
CHECKS = (
    *("not_a_server_error", "status_code_conformance", "content_type_conformance"),
    *("response_schema_conformance", "response_headers_conformance"),
    *("negative_data_rejection", "unsupported_method"),
)


@pytest.fixture(scope="module")
def fuzzed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[QuireServer]:
    """Answers at once, with a small context: what runs to its limit is soon there."""
    store = tmp_path_factory.mktemp("store") / "responses.sqlite3"
    model = "simulated:instant,output=4-8,context=2048"
    # The tool makes bodies of many megabytes, and takes a 413 for an answer to the wrong question.
    room = ("--max-body-bytes", str(64 << 20))
    with QuireServer(model, "--store-url", f"sqlite:///{store}", *room) as server:
        yield server


def fuzz(server: QuireServer, folder: Path, *options: str) -> None:
    done = subprocess.run(
        [
            *(sys.executable, "-m", "schemathesis.cli", "run"),
            f"http://127.0.0.1:{server.port}/openapi.json",
            *("--phases", "fuzzing", "--checks", ",".join(CHECKS), "--no-color"),
            *("--continue-on-failure", "--suppress-health-check", "all", *options),
        ],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-2000:]
    assert "Operations:" in done.stdout


def test_a_short_fuzz_finds_no_fault(fuzzed: QuireServer, tmp_path: Path) -> None:
    """Always the same one."""
    fuzz(fuzzed, tmp_path, "--max-examples", "12", "--seed", "1", "--generation-deterministic")


@pytest.mark.slow
def test_a_long_fuzz_finds_no_fault(fuzzed: QuireServer, tmp_path: Path) -> None:
    fuzz(fuzzed, tmp_path, "--max-examples", "60", "--workers", "2")
