"""``python -m tests.features``: writes docs/feature-matrix.md from the marks of the tests that
prove its cells, ``@pytest.mark.proves(feature, where)``."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from tests.parsing import parsed

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "feature-matrix.md"

WHERE = {
    "process": "One server",
    "workers": "Several API workers",
    "engines": "Several engines",
    "replicas": "Several replicas",
    "chart": "In the chart",
}

# Rows of the page in order.
FEATURES = {
    "drain": "Streams finish when a server is stopped",
    "rollout": "A rollout refuses no request and cuts no stream",
    "engine-death": "Streams continue when an engine dies",
    "worker-death": "A killed API worker costs only its own connections",
    "replica-death": "A killed replica costs only the streams that it had begun",
    "long-step": "A step of minutes fails no probe; a stopped engine does",
    "counters": "Counters are exact through kills and restarts",
    "limits": "Keys' limits hold, within the stated error",
    "rotation": "A changed key takes effect without a restart",
    "responses": "A stored response can be read from every replica",
    "signatures": "What one process seals another one opens",
    "migrations": "Two releases share a database, also after a rollback",
    "ranks": "Ranks of one model answer as one process and restart together",
    "models": "A model by name is downloaded once and verified",
    "start": "A start with a kernel cache compiles nothing",
    "dashboard": "The dashboard shows each server by itself",
    "scaling": "An autoscaler's number of pods survives an upgrade",
    "network": "Only named connections are allowed",
    "security": "Pods meet the restricted Pod Security standard",
    "image": "The image runs as any user over a read-only root",
}

_HEAD = """# What is proven where

Written by `python -m tests.features` (`make docs`) from the marks of the tests that prove it; a
test fails when they differ. A cell names its tests; those marked *slow* run with `make test-slow`.
An empty cell has no test: the feature may still work there, or make no sense.

"""


class Proof(NamedTuple):
    feature: str
    where: str
    file: str  # below the repository's root
    test: str
    is_slow: bool


def proofs() -> list[Proof]:
    """Every mark in the tests, in order of the files."""
    found = []
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        text = path.read_text()
        if "mark.proves(" in text:
            found.extend(_marks(parsed(text), str(path.relative_to(ROOT))))
    return found


def _marks(module: ast.Module, file: str) -> Iterator[Proof]:
    module_marks = [
        ast.unparse(node.value)
        for node in module.body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "pytestmark"
    ]
    for node in module.body:
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        marks = [*module_marks, *map(ast.unparse, node.decorator_list)]
        is_slow = any("pytest.mark.slow" in mark for mark in marks)
        for decorator in node.decorator_list:
            if ast.unparse(decorator).startswith("pytest.mark.proves("):
                assert isinstance(decorator, ast.Call)
                feature, where = (ast.literal_eval(argument) for argument in decorator.args)
                yield Proof(feature, where, file, node.name, is_slow)


def page() -> str:
    found = proofs()
    lines = ["| | " + " | ".join(WHERE.values()) + " |", "|---|" + "---|" * len(WHERE)]
    for feature, title in FEATURES.items():
        cells = ["<br>".join(_links(found, feature, where)) for where in WHERE]
        lines.append(f"| {title} | " + " | ".join(cells) + " |")
    return _HEAD + "\n".join(lines) + "\n"


def _links(found: list[Proof], feature: str, where: str) -> list[str]:
    """To each file that proves the cell, once."""
    links = []
    for proof in found:
        if (proof.feature, proof.where) == (feature, where):
            name = Path(proof.file).stem.removeprefix("test_").replace("_", " ")
            links.append(f"[{name}](../{proof.file})" + (" *slow*" if proof.is_slow else ""))
    return list(dict.fromkeys(links))


if __name__ == "__main__":
    PAGE.write_text(page())
