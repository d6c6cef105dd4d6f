"""Inside ``engine/`` and ``service/`` too, a room imports only from rooms before it.

Type-only imports count: to understand a room, no later one should be needed.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.parsing import parsed

ROOT = Path(__file__).resolve().parents[1]

# Rooms and top-level modules, each after everything that it may import.
ORDER = {
    "engine": (
        *(
            "errors",
            "addresses",
            "python_command",
            "heap",
            "lifetime",
            "options",
            "config",
            "inspected",
            "queueing",
        ),
        *("messages", "trial_messages", "beats", "block_names", "prefix_table"),
        *(
            "frames",
            "faults",
            "architecture",
            "device",
            "sharding",
            "weights",
            "gguf",
            "quantized",
            "step",
            "attention",
        ),
        *(
            "sampling",
            "pooling",
            "servable",
            "model",
            "cpu",
            "gpu",
            "plugin",
            "constraint",
            "schedule",
            "run",
            "ranks",
        ),
        *("simulation", "injection", "loop", "__main__"),
    ),
    "service": (
        *(
            "version",
            "identity",
            "errors",
            "problems",
            "ids",
            "admin_keys",
            "fault_settings",
            "tracing_settings",
            "admin_settings",
            "schema_targets",
            "wording",
        ),
        *(
            "archive_settings",
            "api_keys",
            "key_settings",
            "drain_settings",
            "hub_settings",
            "turns",
            "garbage",
        ),
        *("settings", "conversation", "gguf", "hub", "served_model", "tenants", "routes"),
        *("supervision", "proto", "engine"),
        *("formats", "checkpoint", "output", "constraint", "generation", "pooling", "admission"),
        *("telemetry", "records", "store", "overview", "wire", "preparation", "peers"),
        *("serving", "admin"),
        *("grpc", "http", "injection", "start_failure", "start_checks", "doctor", "app"),
        *("admin_app", "worker"),
        *("settings_page", "unknown_arguments", "unknown_variables", "routes_page", "drill_page"),
        "printing",
        *("key_commands", "cli"),
    ),
}
# Libraries, and the only room that may import each. Generated code is left out.
ONLY_IN = {
    "litestar": "service/http",
    "granian": "service/http",
    "grpc": "service/grpc",
    "sqlalchemy": "service/store",
    "jinja2": "service/checkpoint",
    "triton": "engine/gpu",
    "transformers": "engine/plugin",
    "huggingface_hub": "service/hub",
}


@cache
def imports(path: Path) -> tuple[str, ...]:
    return tuple(_imports(parsed(path.read_text())))


def _imports(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def modules(top: str) -> list[Path]:
    return [path for path in sorted((ROOT / top).rglob("*.py")) if "proto" not in path.parts]


@pytest.mark.parametrize("top", ORDER)
def test_every_room_has_its_place_in_the_order(top: str) -> None:
    inside = {
        path.stem
        for path in (ROOT / top).iterdir()
        if path.suffix == ".py" or (path / "__init__.py").exists()
    }
    assert set(ORDER[top]) == inside - {"__init__"}


@pytest.mark.parametrize("top", ORDER)
def test_a_room_imports_only_from_rooms_before_its_own(top: str) -> None:
    place = {room: index for index, room in enumerate(ORDER[top])}
    wrong = []
    for path in modules(top):
        own = path.relative_to(ROOT / top).parts[0].removesuffix(".py")
        if own == "__init__":
            continue
        for module in imports(path):
            first, _, rest = module.partition(".")
            room = rest.partition(".")[0]
            if first == top and room in place and place[room] > place[own]:
                wrong.append(f"{path.relative_to(ROOT)} imports {module}")
    assert not wrong


def test_a_library_is_known_to_one_room() -> None:
    strangers = [
        f"{path.relative_to(ROOT)} imports {library}"
        for top in ORDER
        for path in modules(top)
        for library in {module.partition(".")[0] for module in imports(path)} & set(ONLY_IN)
        if not path.is_relative_to(ROOT / ONLY_IN[library])
    ]
    assert not strangers
