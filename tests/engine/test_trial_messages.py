"""What the trial of a grammar is sent, and what it answers, survives the way."""

from __future__ import annotations

import msgspec
import pytest

from engine.messages import Constraint
from engine.trial_messages import ConvertGrammar, ToTrial, TryGrammar, Verdict


@pytest.mark.parametrize("message", [TryGrammar(Constraint(grammar="a")), ConvertGrammar("b")])
def test_a_request_is_decoded_by_its_tag(message: ToTrial) -> None:
    body = msgspec.msgpack.encode(message)
    assert msgspec.msgpack.decode(body, type=ToTrial) == message


def test_a_verdict_without_an_error_is_a_success() -> None:
    assert Verdict(grammar="start: a").error is None
