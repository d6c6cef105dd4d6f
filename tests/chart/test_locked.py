"""The image's packages are locked, and its bill of materials lists what there is."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import tomllib
from importlib import metadata

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.chart.helms import ROOT
from tests.chart.images import LOCKED
from tests.chart.test_dockerfile import instructions

pytestmark = pytest.mark.chart

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def locked(name: str) -> dict[str, list[Requirement]]:
    """Name → the versions of one file, of which markers choose one."""
    text = (LOCKED / f"{name}.txt").read_text().replace("\\\n", " ")
    found: dict[str, list[Requirement]] = {}
    for line in text.splitlines():
        if line.startswith("#"):
            continue
        requirement, *hashes = line.split(" --hash=sha256:")
        assert hashes, f"{name}.txt: {requirement} has no hash"
        assert all(re.fullmatch(r"[0-9a-f]{64}", each.strip()) for each in hashes)
        parsed = Requirement(requirement.strip())
        assert re.fullmatch(r"==[^,*]+", str(parsed.specifier)), "an exact version"
        found.setdefault(parsed.name, []).append(parsed)
    return found


def test_what_the_project_needs_is_locked_at_a_version_it_allows() -> None:
    needed = [*PROJECT["dependencies"], *PROJECT["optional-dependencies"]["dashboard"]]
    needed += PROJECT["optional-dependencies"]["grpc"]
    packages = locked("packages") | locked("torch-cuda")
    for requirement in map(Requirement, needed):
        versions = packages[canonicalize_name(requirement.name)]
        for version in versions:
            exact = next(iter(version.specifier)).version
            assert exact in requirement.specifier, f"{requirement}: run make lock"


def test_each_variant_has_the_torch_that_developers_have() -> None:
    line = next(line for line in (ROOT / "requirements/torch.txt").read_text().splitlines()[::-1])
    [cuda] = locked("torch-cuda")["torch"]
    [cpu] = locked("torch-cpu")["torch"]
    assert str(cuda) == line
    assert str(cpu) == f"{line}+cpu"


def test_the_cpu_image_has_nothing_for_a_gpu() -> None:
    names = " ".join([*locked("packages"), *locked("torch-cpu")])
    assert not re.search(r"nvidia|cuda|triton", names)
    assert re.search(r"nvidia|cuda|triton", " ".join(locked("torch-cuda")))


def test_both_files_of_the_cuda_image_agree() -> None:
    packages, cuda = locked("packages"), locked("torch-cuda")
    both = packages.keys() & cuda.keys()
    assert len(both) > 5
    assert {name: [*map(str, packages[name])] for name in both} == {
        name: [*map(str, cuda[name])] for name in both
    }
    [builder] = locked("build")["setuptools"]
    assert [str(each) for each in packages["setuptools"]] == [str(builder)]


def test_the_label_has_the_projects_version() -> None:
    assert f"VERSION={PROJECT['version']}" in [
        rest for name, rest in instructions() if name == "ARG"
    ]


def test_the_bill_of_materials_lists_what_is_installed() -> None:
    if shutil.which("dpkg-query") is None:
        pytest.skip("needs Debian's dpkg")
    command = [sys.executable, str(ROOT / "requirements/sbom.py"), sys.prefix]
    made = [subprocess.run(command, capture_output=True, check=True).stdout for _ in range(2)]
    assert made[0] == made[1]
    document = json.loads(made[0])
    assert (document["bomFormat"], document["specVersion"]) == ("CycloneDX", "1.6")
    purls = [each["purl"] for each in document["components"]]
    assert purls == sorted(set(purls))
    for name in ("litestar", "torch", "transformers"):
        assert f"pkg:pypi/{name}@{metadata.version(name).replace('+', '%2B')}" in purls
    debian = subprocess.run(["dpkg-query", "-W"], capture_output=True, text=True, check=True)
    assert sum(purl.startswith("pkg:deb/") for purl in purls) == len(debian.stdout.splitlines())
