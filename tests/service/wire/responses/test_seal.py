"""Sealed reasoning can only be opened by the key that sealed it, and is unchanged then."""

from __future__ import annotations

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.wire.responses.seal import ReasoningSeal, SealError

SEAL = ReasoningSeal(b"a secret of sixteen bytes or more")


@given(st.text(), st.text(max_size=64))
def test_sealed_reasoning_can_be_opened(text: str, owner: str) -> None:
    assert SEAL.open(SEAL.seal(text, owner), owner) == text


def test_the_reasoning_cannot_be_read_in_it() -> None:
    sealed = SEAL.seal("the butler did it", "me")
    assert b"butler" not in base64.urlsafe_b64decode(sealed.removeprefix("qr1."))
    assert SEAL.seal("the butler did it", "me") != sealed


@given(st.data())
def test_any_change_is_noticed(data: st.DataObject) -> None:
    sealed = SEAL.seal("why", "me")
    raw = bytearray(base64.urlsafe_b64decode(sealed.removeprefix("qr1.")))
    place = data.draw(st.integers(0, len(raw) - 1))
    raw[place] ^= data.draw(st.integers(1, 255))
    with pytest.raises(SealError):
        SEAL.open("qr1." + base64.urlsafe_b64encode(bytes(raw)).decode(), "me")


@pytest.mark.parametrize("content", ["", "gAAAA", "qr1.", "qr1.!!", "qr1.AAAA", "qr1.é"])
def test_an_invalid_seal_is_refused(content: str) -> None:
    with pytest.raises(SealError):
        SEAL.open(content, "me")


def test_another_key_or_another_server_cannot_open_it() -> None:
    sealed = SEAL.seal("why", "me")
    with pytest.raises(SealError):
        SEAL.open(sealed, "you")
    with pytest.raises(SealError):
        ReasoningSeal(b"another secret, just as long").open(sealed, "me")
