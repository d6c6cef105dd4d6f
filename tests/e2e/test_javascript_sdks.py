"""The clients that JavaScript programs use, against the product as a user starts it.

Each script in ``javascript/`` drives one client, or a family of them. Its checks are tests here,
named as in the script: a name with a ``${variable}`` covers several checks.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import pytest

from tests.e2e.quire_server import ROOT, QuireServer

pytestmark = pytest.mark.node

SCRIPTS = ROOT / "tests" / "e2e" / "javascript"
CLIENTS = ROOT / "build" / "clients"
CHECK = re.compile(r"\bcheck\(\s*([\"`])(.+?)\1,")
VARIABLE = re.compile(r"\$\{.+?\}")
PATIENCE_SECONDS = 120

Results = dict[str, str | None]
"""A check's name → how it failed, None if it did not."""


def call(name: str, **arguments: Any) -> str:
    return f"<tool_call>\n{json.dumps({'name': name, 'arguments': arguments})}\n</tool_call>"


def lines(*parts: str) -> str:
    return "\n".join(parts)


PARIS, LONDON = call("get_weather", city="Paris"), call("get_weather", city="London")
RULES: tuple[dict[str, Any], ...] = (
    {"when": "FOR-EVER", "reply": "On and on", "end": False},
    {
        "when": "LOOK-UP",
        "count": "<tool_response>",
        "replies": [
            lines("I look it up.", PARIS, LONDON),
            "One result is missing.",
            "Paris has 18, London has 11.",
        ],
    },
    {
        "when": "PING-THEN-NOTE",
        "reply": lines(call("ping"), call("get_weather", city="Zürich 🚀")),
    },
)


@pytest.fixture(scope="module")
def node() -> str:
    program = shutil.which("node")
    if program is None:
        pytest.skip("Node.js is not installed (on Debian: apt-get install npm)")
    if not (CLIENTS / ".installed").exists():
        pytest.skip("the JavaScript clients are not installed; `make test` does it where npm is")
    return program


@pytest.fixture(scope="module")
def scripted(node: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[QuireServer]:
    script = tmp_path_factory.mktemp("scripts") / "replies.jsonl"
    script.write_text(lines(*map(json.dumps, RULES)))
    model = f"simulated:step=2ms,script={script}"
    with QuireServer(model, "--served-model-name", "scripted") as running:
        yield running


@pytest.fixture(scope="module")
def results_of(
    node: str,
    server: QuireServer,
    scripted: QuireServer,
    tmp_path_factory: pytest.TempPathFactory,
) -> Callable[[str], Results]:
    """Runs a script, once."""
    # Node looks for packages in the folders above a script.
    folder = tmp_path_factory.mktemp("javascript")
    for script in SCRIPTS.glob("*.mjs"):
        shutil.copy(script, folder)
    (folder / "node_modules").symlink_to(CLIENTS / "node_modules")

    @cache
    def run(script: str) -> Results:
        done = subprocess.run(
            [node, str(folder / f"{script}.mjs")],
            env={
                "PATH": os.environ["PATH"],
                "POCKET_URL": server.url,
                "SCRIPTED_URL": scripted.url,
            },
            capture_output=True,
            text=True,
            timeout=PATIENCE_SECONDS,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        told = [json.loads(line) for line in done.stdout.splitlines()]
        return {each["name"]: each["error"] for each in told}

    return run


def checks() -> Iterator[Any]:
    for script in sorted(SCRIPTS.glob("*.mjs")):
        for _, name in CHECK.findall(script.read_text()):
            yield pytest.param(script.stem, name, id=f"{script.stem}: {VARIABLE.sub('*', name)}")


@pytest.mark.parametrize(("script", "name"), list(checks()))
def test_check(results_of: Callable[[str], Results], script: str, name: str) -> None:
    pattern = ".+".join(map(re.escape, VARIABLE.split(name)))
    found = {
        told: error for told, error in results_of(script).items() if re.fullmatch(pattern, told)
    }
    assert found, f"{script}.mjs did not come to it"
    failed = [f"{told}\n{error}" for told, error in found.items() if error]
    assert not failed, lines("", *failed)
