"""The image, built twice from this checkout on a stand-in base and run as Kubernetes runs it:
``make test-slow ARGS=tests/chart/test_image.py``. It takes minutes, and Debian's and Python's
package indexes."""

from __future__ import annotations

import json
import re
import threading
import time
import tomllib
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.chart.helms import ROOT
from tests.chart.images import LOCKED, REVISION, Images, Pod, missing, run, size, version, wheels
from tests.e2e.quire_server import free_port, until

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(3000),
    pytest.mark.skipif(missing() is not None, reason=str(missing())),
]

GRACE_SECONDS = 55  # of the chart's defaults: 5 of preStop, 30 of the drain, 20 of margin
OWN_MIB = 20  # of Quire's own files in the image, the embedded model included


class Built:
    """Two images of one checkout; ``root``: of a container of the first."""

    def __init__(self, images: Images, root: Path, boms: list[bytes], name: str) -> None:
        self.root = root
        self.boms = boms
        self.configuration = images.configuration(name)

    def inside(self, *command: str) -> str:
        """Return what a program in the image prints."""
        return run(
            "/usr/sbin/chroot", self.root, *command, env={"PATH": "/opt/quire/bin:/usr/bin:/bin"}
        )


@pytest.fixture(scope="module")
def built() -> Iterator[Built]:
    folder = ROOT / "build" / "image"
    images = Images(folder)
    try:
        packages = wheels(folder / "wheels")
        images.make_base(folder / "debian")
        names = [images.build(f"quire-{number}", packages) for number in (1, 2)]
        boms = []
        for name in names:
            with images.mounted(name) as root:
                boms.append((root / "opt/quire/sbom.cdx.json").read_bytes())
        with images.mounted(names[0]) as root:
            yield Built(images, root, boms, names[0])
    finally:
        images.remove()


def test_two_builds_have_the_same_packages(built: Built) -> None:
    assert built.boms[0] == built.boms[1]


def listed(bom: bytes, kind: str) -> set[tuple[str, str]]:
    return {
        (each["name"], each["version"])
        for each in json.loads(bom)["components"]
        if each["purl"].startswith(f"pkg:{kind}/")
    }


def test_the_bill_of_materials_lists_every_package(built: Built) -> None:
    debian = built.inside("dpkg-query", "--show", "--showformat", "${Package} ${Version}\\n")
    assert listed(built.boms[0], "deb") == {tuple(line.split()) for line in debian.splitlines()}
    installed = {
        (found[1].lower().replace("_", "-"), found[2])
        for path in built.root.glob("opt/quire/lib/python*/site-packages/*.dist-info")
        if (found := re.fullmatch(r"(.+)-(\S+)\.dist-info", path.name))
    }
    assert len(installed) > 100
    normal = {(name.replace(".", "-"), version) for name, version in installed}
    assert normal <= listed(built.boms[0], "pypi")


def test_the_locked_packages_are_those_installed(built: Built) -> None:
    locked = {
        found[1]: found[2]
        for file in ("packages", "torch-cpu")
        for found in re.finditer(
            r"^([a-z0-9-]+)==(\S+) \\$", (LOCKED / f"{file}.txt").read_text(), re.MULTILINE
        )
    }
    assert {"transformers", "torch", "litestar"} <= locked.keys()
    found = dict(listed(built.boms[0], "pypi"))
    assert {name: found.get(name) for name in locked} == locked
    assert found["quire"] == version()


def test_labels_say_which_version_and_revision_it_is(built: Built) -> None:
    labels = built.configuration["Labels"]
    assert labels["org.opencontainers.image.version"] == version()
    assert labels["org.opencontainers.image.revision"] == REVISION
    assert built.configuration["User"] == "10001:10001"
    assert built.configuration["Healthcheck"]["Test"][0] == "CMD"


def test_quires_own_files_are_few(built: Built) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    rooms = project["tool"]["setuptools"]["packages"]["find"]["include"]
    [packages] = built.root.glob("opt/quire/lib/python*/site-packages")
    own = sum(size(packages / room.removesuffix("*")) for room in rooms)
    own += size(built.root / "opt/quire/native")
    everything = size(built.root / "opt/quire")
    print(f"Quire's own files: {own / 2**20:.1f} MiB; all packages: {everything / 2**20:.0f} MiB")
    assert own < OWN_MIB * 2**20


def call(url: str, body: Any = None) -> tuple[int, bytes]:
    data = None if body is None else json.dumps(body).encode()
    asked = urllib.request.Request(url, data, {"content-type": "application/json"})
    try:
        with urllib.request.urlopen(asked, timeout=120) as reply:
            return reply.status, reply.read()
    except urllib.error.HTTPError as error:
        return error.code, error.read()
    except OSError:
        return 0, b""


@pytest.fixture
def pod(built: Built) -> Iterator[tuple[Pod, str]]:
    """One that is ready, and its URL."""
    port = free_port()
    arguments = ("serve", "--host", "127.0.0.1", "--port", str(port), "--drain-timeout", "30")
    with Pod(built.root, built.configuration, *arguments) as found:
        url = f"http://127.0.0.1:{port}"
        until(lambda: found.first and call(f"{url}/health/ready")[0] == 200, 120, "readiness")
        yield found, url


CHAT = {"messages": [{"role": "user", "content": "Tell me a story."}], "max_tokens": 300}


@pytest.mark.proves("image", "chart")
def test_a_foreign_user_serves_pocket_from_a_read_only_root(
    built: Built, pod: tuple[Pod, str]
) -> None:
    running, url = pod
    status, body = call(f"{url}/v1/chat/completions", CHAT)
    assert status == 200
    assert json.loads(body)["choices"][0]["message"]["content"]
    uids = re.search(r"^Uid:\s+(\d+)", Path(f"/proc/{running.first}/status").read_text(), re.M)
    assert uids is not None
    assert uids[1] == "1000700000"
    capabilities = re.search(
        r"^CapEff:\s+(\w+)", Path(f"/proc/{running.first}/status").read_text(), re.M
    )
    assert capabilities is not None
    assert int(capabilities[1], 16) == 0
    with pytest.raises(AssertionError, match="Read-only file system"):
        running.inside("/usr/bin/touch", "/opt/quire/x")
    with pytest.raises(AssertionError, match="Read-only file system"):
        running.inside("/usr/bin/touch", "/etc/x")


def test_process_1_reaps_orphans(pod: tuple[Pod, str]) -> None:
    running, _ = pod
    # `kubectl exec`'s shell ends first, and its children get process 1 as their parent.
    # They must not hold the pipe that their output would be read from.
    orphans = "for n in 1 2 3 4 5; do (sleep 3 >/dev/null 2>&1 &) done"
    running.inside("/bin/sh", "-c", orphans)
    seen = until(lambda: running.zombies() or running.adopted("sleep"), 10, "orphans of process 1")
    assert seen
    until(lambda: not running.adopted("sleep") and not running.zombies(), 15, "them to be reaped")


def test_sigterm_drains_within_the_grace(pod: tuple[Pod, str]) -> None:
    running, url = pod
    ended: list[tuple[int, bytes]] = []
    body = {**CHAT, "max_tokens": 400, "stream": True, "ignore_eos": True}
    stream = threading.Thread(target=lambda: ended.append(call(f"{url}/v1/chat/completions", body)))
    stream.start()
    until(lambda: b'"running":1' in call(f"{url}/health")[1], 30, "the stream to run")
    began = time.monotonic()
    running.terminate()
    until(lambda: call(f"{url}/health/ready")[0] == 503, 10, "readiness to fail")
    status = running.wait(GRACE_SECONDS)
    took = time.monotonic() - began
    stream.join(30)
    print(f"drained in {took:.1f} s")
    assert status == 0, running.output()
    assert ended[0][0] == 200
    assert ended[0][1].rstrip().endswith(b"data: [DONE]")


def test_doctor_runs_inside(built: Built) -> None:
    with Pod(built.root, built.configuration, "doctor") as running:
        status = running.wait(120)
        said = running.output()
    print(said)
    assert status == 0
    assert "FAIL" not in said
    assert re.search(r"ok +torch +2\.\d+", said), said
