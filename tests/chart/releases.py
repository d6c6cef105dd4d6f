"""Two real Helms that install, upgrade, roll back and uninstall through a kubeconfig."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import yaml

from tests.chart.helms import CHART, NAMESPACE, RELEASE, RefusedError, Values

# Helm 3 would fetch the API's schemas, which the fake API enforces by itself.
_UNCHECKED = ("--disable-openapi-validation",)


class Releases(Protocol):
    """Each method raises RefusedError with what Helm prints."""

    def install(self, chart: Path, values: Values) -> None: ...

    def upgrade(self, values: Values, *, reuse: bool = False, chart: Path = CHART) -> None: ...

    def rollback(self, revision: int) -> None: ...

    def uninstall(self) -> None: ...


@dataclass(frozen=True)
class Helm3Releases:
    binary: Path
    kubeconfig: Path

    def install(self, chart: Path, values: Values) -> None:
        self._run("install", RELEASE, str(chart), *_UNCHECKED, values=values)

    def upgrade(self, values: Values, *, reuse: bool = False, chart: Path = CHART) -> None:
        reused = ["--reuse-values"] if reuse else []
        self._run("upgrade", RELEASE, str(chart), *reused, *_UNCHECKED, values=values)

    def rollback(self, revision: int) -> None:
        self._run("rollback", RELEASE, str(revision))

    def uninstall(self) -> None:
        self._run("uninstall", RELEASE)

    def _run(self, *arguments: str, values: Values | None = None) -> None:
        given: list[str] = []
        folder = self.kubeconfig.parent
        if values is not None:
            file = folder / "values.yaml"
            file.write_text(yaml.safe_dump(values))
            given = ["--values", str(file)]
        done = subprocess.run(
            [str(self.binary), *arguments, *given, "--namespace", NAMESPACE],
            capture_output=True,
            text=True,
            timeout=120,
            env={
                "HOME": str(folder),
                "PATH": os.environ["PATH"],
                "KUBECONFIG": str(self.kubeconfig),
            },
        )
        if done.returncode != 0:
            raise RefusedError(done.stderr)


_HELM4 = """
import json, sys
import helm_python as helm
ask = json.loads(sys.argv[1])
config = helm.Config(kubeconfig_path=ask["kubeconfig"], namespace=ask["namespace"])
verb, name = ask["verb"], ask["release"]
try:
    if verb == "install":
        config.install(ask["chart"], name, ask["values"], namespace=ask["namespace"])
    elif verb == "upgrade":
        values = {"reuse_values": True} if ask["reuse"] else {"reset_values": True}
        config.upgrade(ask["chart"], name, ask["values"], namespace=ask["namespace"], **values)
    elif verb == "rollback":
        config.rollback(name, version=ask["revision"])
    else:
        config.uninstall(name)
except helm.HelmError as error:
    sys.exit(str(error))
"""


@dataclass(frozen=True)
class Helm4Releases:
    kubeconfig: Path

    def install(self, chart: Path, values: Values) -> None:
        self._run("install", chart=str(chart), values=values)

    def upgrade(self, values: Values, *, reuse: bool = False, chart: Path = CHART) -> None:
        self._run("upgrade", chart=str(chart), values=values, reuse=reuse)

    def rollback(self, revision: int) -> None:
        self._run("rollback", revision=revision)

    def uninstall(self) -> None:
        self._run("uninstall")

    def _run(self, verb: str, **asked: object) -> None:
        question = {
            "verb": verb,
            "release": RELEASE,
            "namespace": NAMESPACE,
            "kubeconfig": str(self.kubeconfig),
            **asked,
        }
        done = subprocess.run(
            [sys.executable, "-c", _HELM4, json.dumps(question)],
            capture_output=True,
            text=True,
            timeout=120,
        )
        if done.returncode != 0:
            raise RefusedError(done.stderr)
