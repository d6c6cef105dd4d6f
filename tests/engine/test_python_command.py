"""Every child process is started by one helper, which keeps the working directory off its path."""

from __future__ import annotations

import ast
from pathlib import Path

from engine.python_command import python_command

ROOT = Path(__file__).resolve().parents[2]
ROOMS = ("observability", "engine", "pocket", "client", "service", "dashboard")
HELPER = "engine/python_command.py"


def _builds_a_command(source: str) -> bool:
    """Whether ``sys.executable`` is used for anything but to be shown in a text."""
    if "executable" not in source:  # most files: there is nothing to parse
        return False
    tree = ast.parse(source)
    shown = {
        id(part)
        for text in ast.walk(tree)
        if isinstance(text, ast.FormattedValue)
        for part in ast.walk(text)
    }
    imported = any(
        isinstance(node, ast.ImportFrom)
        and node.module == "sys"
        and any(alias.name == "executable" for alias in node.names)
        for node in ast.walk(tree)
    )
    return imported or any(
        isinstance(node, ast.Attribute) and node.attr == "executable" and id(node) not in shown
        for node in ast.walk(tree)
    )


def test_no_other_place_builds_a_command_of_the_interpreter() -> None:
    found = {
        str(path.relative_to(ROOT))
        for room in ROOMS
        for path in (ROOT / room).rglob("*.py")
        if _builds_a_command(path.read_text())
    }
    # The dashboard imports nothing of the engine's.
    assert found == {HELPER, "dashboard/__main__.py", "dashboard/tour/processes.py"}


def test_every_command_keeps_the_working_directory_off_the_import_path() -> None:
    from dashboard.__main__ import command

    for line in (python_command("-m", "engine"), command("127.0.0.1", 8501)):
        assert line[1] == "-P"
