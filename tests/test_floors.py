"""The layers of the product: each imports only from those below it."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from tests.parsing import parsed

ROOT = Path(__file__).resolve().parents[1]

# What each layer may import.
MAY_IMPORT = {
    "observability": set(),
    "engine": {"observability"},
    "pocket": set(),
    "client": {"observability"},
    "service": {"observability", "engine", "pocket", "client"},
    "dashboard": {"observability"},
}
# Modules of a lower layer that a higher one may use; the others are internal.
PUBLIC = {
    ("service", "engine"): {
        "engine.addresses",
        "engine.beats",
        "engine.block_names",
        "engine.inspected",
        "engine.messages",
        "engine.queueing",
        "engine.schedule.pace",
        "engine.trial_messages",
        "engine.config",
        "engine.device.visible",
        "engine.faults.page",
        "engine.faults.table",
        "engine.options",
        "engine.architecture.errors",
        "engine.architecture.quantization",
        "engine.architecture.tokenizer_files",
        "engine.gguf.config",
        "engine.gguf.keys",
        "engine.gguf.names",
        "engine.gguf.part_names",
        "engine.gguf.parts",
        "engine.gguf.served",
        "engine.lifetime",
        "engine.prefix_table",
        "engine.python_command",
        "engine.servable",
        "engine.cpu.library",
        "engine.simulation.spec",
    },
    ("service", "pocket"): {"pocket"},
    ("client", "observability"): {"observability.terminal"},
    ("dashboard", "observability"): {
        "observability.admin_api",
        "observability.catalogue",
        "observability.history",
        "observability.key_listing",
        "observability.metric_kinds",
        "observability.outcomes",
        "observability.phases",
        "observability.stacks",
    },
}


def imported_modules(path: Path) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(parsed(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            found.add(node.module)
    return found


@pytest.mark.parametrize("room", MAY_IMPORT)
def test_a_room_imports_only_from_floors_below(room: str) -> None:
    others = set(MAY_IMPORT) - {room}
    wrong = []
    for path in (ROOT / room).rglob("*.py"):
        for module in imported_modules(path):
            top = module.split(".")[0]
            if top not in others:
                continue
            public = PUBLIC.get((room, top))
            if top not in MAY_IMPORT[room] or (public is not None and module not in public):
                wrong.append(f"{path.relative_to(ROOT)} imports {module}")
    assert not wrong


@pytest.mark.parametrize(
    ("module", "never"),
    [
        ("service.app", ("torch", "transformers", "streamlit")),
        ("service.worker", ("torch", "grpc", "google.protobuf")),
        ("service.cli", ("grpc", "torch", "transformers", "streamlit")),
        ("engine.loop.core", ("torch", "litestar", "granian", "prometheus_client", "structlog")),
        ("engine.simulation.spec", ("torch", "tokenizers")),
        ("engine.ranks.ranks", ("torch",)),
        ("engine.ranks.join", ("torch",)),
        (
            "engine.run.assembly",
            ("litestar", "granian", "prometheus_client", "structlog", "tokenizers"),
        ),
        ("pocket", ("torch", "tokenizers")),
    ],
)
def test_importing_a_room_does_not_drag_in_what_it_must_not_know(
    module: str, never: tuple[str, ...]
) -> None:
    code = f"import sys, {module}; print([m for m in {never!r} if m in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"
