"""Client libraries and frameworks, each driven to its end by a script in ``clients/``.

A script gets a server's address and the model's name, and fails by an exception. ``pocket`` is the
embedded model; ``scripted`` answers LOOK-UP with one call of ``get_weather`` and then with what it
found.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.agents.scripted import call
from tests.e2e.quire_server import ROOT, QuireServer

pytestmark = pytest.mark.agents

PYTHON = ROOT / "build" / "agents" / "python" / "bin" / "python"
SCRIPTS = Path(__file__).with_name("clients")
RECORDED = Path(__file__).with_name("recorded")
PATIENCE_SECONDS = 150
SERVER_OF = {
    "chat_qwen": "pocket",
    "cohere_rerank": "pocket",
    "guidance_vllm": "pocket",
    "langchain_structured": "pocket",
    "litellm_proxy": "scripted",
    "litellm_sdk": "scripted",
    "mini_swe_agent": "scripted",
    "openai_agents_websocket": "scripted",
    "openai_parse": "scripted",
    "outlines_sglang": "pocket",
}
RULES: tuple[dict[str, Any], ...] = (
    {
        "when": "MINI-SWE",
        "count": "<tool_response>",
        "replies": [
            "I write it.\n" + call("bash", command="echo \"print('hello')\" > hello.py"),
            call("bash", command="python3 hello.py > out.txt"),
            call("bash", command="echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"),
        ],
    },
    {
        "when": "LOOK-UP",
        "count": "<tool_response>",
        "replies": [call("get_weather", city="Paris"), "Paris has 18."],
    },
)


@pytest.fixture(scope="module")
def python() -> Path:
    if not PYTHON.exists():
        pytest.skip("the Python clients are not installed; `make test-agents` installs them")
    return PYTHON


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, QuireServer]]:
    script = tmp_path_factory.mktemp("scripts") / "replies.jsonl"
    script.write_text("\n".join(map(json.dumps, RULES)))
    model = f"simulated:instant,script={script},context=1000000"
    with (
        QuireServer(model, "--served-model-name", "scripted") as scripted,
        QuireServer() as pocket,
    ):
        yield {"scripted": scripted, "pocket": pocket}


def test_every_script_is_run() -> None:
    assert set(SERVER_OF) == {script.stem for script in SCRIPTS.glob("*.py")}


@pytest.mark.parametrize("name", sorted(SERVER_OF))
def test_a_client_comes_to_its_end(
    python: Path, servers: dict[str, QuireServer], tmp_path: Path, name: str
) -> None:
    model = SERVER_OF[name]
    done = subprocess.run(
        [python, "-P", SCRIPTS / f"{name}.py", servers[model].url, model],
        cwd=tmp_path,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        # No proxy, no key and no settings of the user who runs the tests.
        env={"PATH": os.environ["PATH"], "HOME": str(tmp_path), "NO_PROXY": "127.0.0.1"},
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture(scope="module")
def recorded() -> Callable[[str], dict[str, Any]]:
    def read(name: str) -> dict[str, Any]:
        body: dict[str, Any] = json.loads((RECORDED / f"{name}.json").read_text())["body"]
        return body

    return read


def test_open_webuis_first_message_is_answered(
    servers: dict[str, QuireServer], recorded: Callable[[str], dict[str, Any]]
) -> None:
    """It offers 36 tools itself, more than fit into pocket's context; the README says how to
    switch them off."""
    body = recorded("open_webui_first_message")
    plain = {name: value for name, value in body.items() if name != "tools"}
    for model, wanted in (("scripted", body), ("pocket", plain)):
        status, reply = servers[model].request(
            "POST", "/v1/chat/completions", json.dumps({**wanted, "model": model}).encode()
        )
        assert status == 200, reply
        *_, last, end = reply.decode().split("\n\n")[:-1]
        assert end == "data: [DONE]"
        choice = json.loads(last.removeprefix("data: "))["choices"][0]
        assert choice["finish_reason"] == "stop", last
