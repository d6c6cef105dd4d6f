"""Prints the software bill of materials of the machine it runs on, as CycloneDX 1.6: every Debian
package, every Python package and the interpreter. The Dockerfile runs it at the end of a build.

Usage: python3 sbom.py VENV

Two builds with the same packages print the same: there are no dates, and the serial number is a
hash of the content.
"""

from __future__ import annotations

import json
import platform
import subprocess
import sys
import sysconfig
import uuid
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Any
from urllib.parse import quote

_DPKG_FIELDS = "${Package}\t${Version}\t${Architecture}\t${source:Package}\n"
_NAMESPACE = uuid.UUID("6ba7b811-9dad-11d1-80b4-00c04fd430c8")  # RFC 4122's, of URLs

Component = dict[str, Any]


def debian_packages() -> Iterator[Component]:
    listed = subprocess.run(
        ["dpkg-query", "--show", "--showformat", _DPKG_FIELDS],
        check=True,
        capture_output=True,
        text=True,
    )
    for line in listed.stdout.splitlines():
        name, version, architecture, source = line.split("\t")
        place = f"pkg:deb/debian/{quote(name)}@{quote(version, safe='')}"
        yield {
            "type": "library",
            "name": name,
            "version": version,
            "purl": f"{place}?arch={architecture}",
            "properties": [{"name": "debian:source", "value": source}],
        }


def licence(package: metadata.PackageMetadata) -> list[dict[str, Any]]:
    """What the package says: an SPDX expression if it has one, else its classifiers, else its free
    text if that is a name and not the whole text of a licence."""
    if expression := package.get("License-Expression"):
        return [{"expression": expression}]
    classified = [
        line.rpartition(" :: ")[2]
        for line in package.get_all("Classifier") or []
        if line.startswith("License ::")
    ]
    said = package.get("License", "").strip()
    names = classified or ([said] if said and "\n" not in said and len(said) < 80 else [])
    return [{"license": {"name": name}} for name in names]


def python_packages(folders: list[str]) -> Iterator[Component]:
    for found in metadata.distributions(path=folders):
        name = found.metadata["Name"].lower().replace("_", "-").replace(".", "-")
        component: Component = {
            "type": "library",
            "name": name,
            "version": found.version,
            "purl": f"pkg:pypi/{name}@{quote(found.version, safe='')}",
        }
        if licences := licence(found.metadata):
            component["licenses"] = licences
        yield component


def interpreter() -> Component:
    version = platform.python_version()
    return {
        "type": "application",
        "name": "cpython",
        "version": version,
        "purl": f"pkg:generic/cpython@{version}",
    }


def document(components: Iterator[Component]) -> dict[str, Any]:
    unique = {each["purl"]: {**each, "bom-ref": each["purl"]} for each in components}
    listed = [unique[purl] for purl in sorted(unique)]
    serial = uuid.uuid5(_NAMESPACE, json.dumps(listed))
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{serial}",
        "version": 1,
        "components": listed,
    }


def everything(environment: Path) -> Iterator[Component]:
    yield interpreter()
    yield from debian_packages()
    own = sysconfig.get_path("purelib", vars={"base": str(environment)}, scheme="venv")
    # Besides those of the environment, what the base image's interpreter has: pip.
    yield from python_packages([own, sysconfig.get_path("purelib")])


if __name__ == "__main__":
    json.dump(document(everything(Path(sys.argv[1]))), sys.stdout, indent=1)
    print()
