"""Builds the Dockerfile without a container engine, on a base of Debian's own packages in place of
the real one, and runs its processes as Kubernetes would."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.chart.helms import ROOT
from tests.e2e.quire_server import command_of, descendants

LOCKED = ROOT / "requirements" / "locked"
# Debian's Python in the stand-in, for which a CPU build of torch must be in pip's reach.
PYTHON = "3.11"
BASE = f"docker.io/library/python:{PYTHON}-slim-bookworm"
FOREIGN_USER = 1_000_700_000  # as OpenShift gives a namespace, without an entry in passwd
REVISION = "0123456789abcdef0123456789abcdef01234567"


def missing() -> str | None:
    """Return why images cannot be built here."""
    for program in ("buildah", "debootstrap", "unshare", f"python{PYTHON}"):
        if shutil.which(program) is None:
            return f"needs {program} (apt install buildah debootstrap)"
    return None if os.geteuid() == 0 else "needs root, for namespaces and mounts"


def run(*command: str | Path, **options: Any) -> str:
    """Return what the program prints. Raises with all that it said if it fails."""
    done = subprocess.run(
        [str(word) for word in command], capture_output=True, text=True, check=False, **options
    )
    assert done.returncode == 0, f"{command}\n{done.stdout[-4000:]}\n{done.stderr[-4000:]}"
    return done.stdout


def version() -> str:
    return str(tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"])


def wheels(folder: Path) -> Path:
    """Every locked package of the CPU variant, as files: a build cannot reach an index here."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("build", "torch-cpu", "packages"):
        run(
            *(f"python{PYTHON}", "-m", "pip", "download", "--quiet", "--no-deps"),
            *("--require-hashes", "--requirement", LOCKED / f"{name}.txt", "--dest", folder),
            cwd="/",
        )
    return folder


class Images:
    """A store of images in ``folder``."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._buildah = (
            *("buildah", "--root", str(folder / "store"), "--runroot", str(folder / "run")),
        )
        self._own = {**os.environ, "STORAGE_DRIVER": "overlay"}

    def buildah(self, *arguments: str | Path) -> str:
        return run(*self._buildah, *arguments, env=self._own).strip()

    def make_base(self, root: Path) -> None:
        """``root``: where Debian is unpacked, unless it is there from an earlier run."""
        if not (root / "usr/bin/pip3").exists():
            shutil.rmtree(root, ignore_errors=True)
            packages = "python3,python3-venv,python3-pip,ca-certificates"
            run("debootstrap", "--variant=minbase", f"--include={packages}", "bookworm", root)
        container = self.buildah("from", "scratch")
        self.buildah("add", "--quiet", container, root, "/")
        path = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
        self.buildah("config", "--env", f"PATH={path}", container)
        self.buildah("commit", "--quiet", "--rm", container, BASE)

    def build(self, tag: str, wheels: Path) -> str:
        """Return the name of an image that is built anew from the checkout."""
        values = {
            "BASE_IMAGE": BASE,
            "TORCH_VARIANT": "cpu",
            "TORCH_CPU_INDEX": "file:///wheels",
            "VERSION": version(),
            "REVISION": REVISION,
        }
        # buildah's --env is not set in every stage of every version.
        settings = self._folder / "pip.conf"
        settings.write_text("[global]\nno-index = true\nfind-links = /wheels\n")
        self.buildah(
            *("bud", "--isolation", "chroot", "--network", "host", "--pull-never"),
            *("--format", "docker", "--layers=false"),
            *(word for name in values for word in ("--build-arg", f"{name}={values[name]}")),
            *("--volume", f"{wheels}:/wheels:ro", "--volume", f"{settings}:/etc/pip.conf:ro"),
            *("--tag", tag, ROOT),
        )
        return f"localhost/{tag}"

    def configuration(self, image: str) -> dict[str, Any]:
        inspected = json.loads(self.buildah("inspect", "--type", "image", image))
        found: dict[str, Any] = inspected["Docker"]["config"]
        return found

    @contextmanager
    def mounted(self, image: str) -> Iterator[Path]:
        """The root of a container made of the image."""
        container = self.buildah("from", "--pull-never", image)
        try:
            yield Path(self.buildah("mount", container))
        finally:
            self.buildah("rm", container)

    def remove(self) -> None:
        self.buildah("rm", "--all")
        self.buildah("rmi", "--all", "--force")
        shutil.rmtree(self._folder / "store", ignore_errors=True)


# What the kubelet prepares for a pod of the chart: a root that nothing can write, two volumes, and
# process 1 in a separate namespace, without capabilities. $1: the root, $2: the user.
_POD = """
set -eu
mount --make-rprivate /
mount --bind "$1" "$1"
mount --rbind /dev "$1/dev"
mount -t proc proc "$1/proc"
mount -t tmpfs -o mode=1777 tmpfs "$1/tmp"
mount -t tmpfs -o mode=2777 tmpfs "$1/home/quire"
mount -o remount,bind,ro "$1"
root=$1 user=$2
shift 2
exec /usr/sbin/chroot "$root" /usr/bin/setpriv --reuid "$user" --regid 0 --clear-groups \
    --no-new-privs --inh-caps=-all --bounding-set=-all "$@"
"""


class Pod:
    """The image's entry point as process 1, as a foreign user over a read-only root."""

    def __init__(self, root: Path, configuration: dict[str, Any], *arguments: str) -> None:
        environment = dict(pair.split("=", 1) for pair in configuration["Env"])
        self._namespaces = subprocess.Popen(
            [
                *("unshare", "--mount", "--pid", "--fork"),
                *("sh", "-c", _POD, "sh", str(root), str(FOREIGN_USER)),
                *(*configuration["Entrypoint"], *arguments),
            ],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            cwd="/",
        )

    @property
    def first(self) -> int:
        """The id of the pod's process 1, as seen from outside."""
        while True:
            assert self._namespaces.poll() is None, self.output()
            children = Path(f"/proc/{self._namespaces.pid}/task/{self._namespaces.pid}/children")
            if found := children.read_text().split():
                return int(found[0])

    def output(self) -> str:
        """All that it printed, once it has ended."""
        assert self._namespaces.stdout is not None
        return self._namespaces.stdout.read().decode(errors="replace")

    def inside(self, *command: str) -> None:
        """Run a program in the pod's namespaces, as `kubectl exec` does."""
        run("nsenter", "--target", str(self.first), "--mount", "--pid", "--root", *command)

    def zombies(self) -> list[int]:
        return [pid for pid in descendants(self.first) if _state(pid) == "Z"]

    def adopted(self, name: str) -> list[int]:
        """The children of process 1 that run this program."""
        first = self.first
        children = Path(f"/proc/{first}/task/{first}/children").read_text().split()
        return [pid for pid in map(int, children) if name.encode() in b" ".join(command_of(pid))]

    def terminate(self) -> None:
        os.kill(self.first, signal.SIGTERM)

    def wait(self, seconds: float) -> int:
        return self._namespaces.wait(seconds)

    def __enter__(self) -> Pod:
        return self

    def __exit__(self, *error: object) -> None:
        if self._namespaces.poll() is None:
            os.kill(self.first, signal.SIGKILL)  # and so all processes of its namespace
            self._namespaces.wait()


def _state(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except OSError:
        return ""


def size(folder: Path) -> int:
    """Bytes of the files below."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
