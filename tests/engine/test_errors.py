"""What the sender of a request may know of an error."""

from __future__ import annotations

import pytest

from engine.errors import UNTOLD, RefusedError, TellableError, told
from engine.pooling.pool import PoolingError
from engine.step.grammar_state import GrammarError


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (RefusedError("max_tokens is too large"), "max_tokens is too large"),
        (GrammarError("constraint: line 1"), "constraint: line 1"),
        (TellableError("not a number"), "TellableError: not a number"),
        (PoolingError("not finite"), "PoolingError: not finite"),
        (ValueError("/home/somebody/model"), UNTOLD),
        (OSError(2, "No such file", "/home/somebody/model"), UNTOLD),
        (RuntimeError(), UNTOLD),
    ],
)
def test_only_messages_written_for_the_sender_are_shown(error: Exception, message: str) -> None:
    assert told(error) == message
