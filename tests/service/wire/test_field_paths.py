"""Paths of fields hold no name that a client made up."""

from __future__ import annotations

import pytest

import service.preparation.steps  # noqa: F401  # all structs of requests
from service.wire.field_paths import public_path


@pytest.mark.parametrize(
    ("path", "shown"),
    [
        ("max_tokens", "max_tokens"),
        ("messages[3].content[0].text", "messages[3].content[0].text"),
        ("tools.0.function.parameters", "tools.0.function.parameters"),
        ("chat_template_kwargs.canary", "chat_template_kwargs.*"),
        (
            "response_format.json_schema.schema.canary.type",
            "response_format.json_schema.schema.*.type",
        ),
        ("metadata.5551234567", "metadata.*"),
        ("canary", "*"),
        ("canary\n{}", "*"),
        ("messages[" + "9" * 5000, "messages[*"),
        ("Last-Event-ID", "Last-Event-ID"),
        ("", None),
        (None, None),
    ],
)
def test_a_path_is_shown_without_made_up_names(path: str | None, shown: str | None) -> None:
    assert public_path(path) == shown
