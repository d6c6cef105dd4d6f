"""The server knows its own thinking again, and does not judge anybody else's."""

from __future__ import annotations

from service.wire.messages.signatures import Signer


def test_only_an_altered_text_with_our_seal_is_forged() -> None:
    ours, same, other = Signer("one secret of many"), Signer("one secret of many"), Signer()
    signature = ours.sign("I think.")
    assert not same.is_forged("I think.", signature)
    assert same.is_forged("I do not think.", signature)
    assert same.is_forged("I think.", signature[:-1])
    assert not other.is_forged("anything", signature)  # of another server: nothing to check
    assert not ours.is_forged("anything", "")
