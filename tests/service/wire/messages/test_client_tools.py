"""Anthropic's tools that clients run: their calls are what the SDK's own types describe."""

from __future__ import annotations

from typing import Any, get_args

import pytest
from anthropic.types.beta import BetaMemoryTool20250818Command

from service.wire.messages.client_tools import vendor_tool


def properties_of(tool_type: str) -> dict[str, Any]:
    tool = vendor_tool(tool_type)
    assert tool is not None
    assert tool.description
    found: dict[str, Any] = tool.parameters["properties"]
    assert set(tool.parameters["required"]) <= found.keys()
    return found


def test_memory_has_all_commands_and_fields_of_the_sdk() -> None:
    variants = get_args(get_args(BetaMemoryTool20250818Command)[0])
    commands = {get_args(each.model_fields["command"].annotation)[0] for each in variants}
    found = properties_of("memory_20250818")
    assert set(found["command"]["enum"]) == commands
    assert found.keys() == {name for each in variants for name in each.model_fields}


@pytest.mark.parametrize(
    ("version", "can_undo", "has_text"),
    [
        ("20241022", True, False),
        ("20250124", True, False),
        ("20250429", False, False),
        ("20250728", False, True),
        ("20990101", False, True),
    ],
)
def test_an_editor_has_the_commands_of_its_version(
    version: str, can_undo: bool, has_text: bool
) -> None:
    found = properties_of(f"text_editor_{version}")
    assert ("undo_edit" in found["command"]["enum"]) == can_undo
    assert ("insert_text" in found) == has_text


@pytest.mark.parametrize(
    "other",
    ["", "custom", "computer_20250124", "bash_code_execution", "memory_202508189", "bash_٢٠٢٥٠١٢٤"],
)
def test_any_other_type_is_unknown(other: str) -> None:
    assert vendor_tool(other) is None
