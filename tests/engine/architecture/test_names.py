"""The names of the architectures that our own code computes."""

from __future__ import annotations

from engine.architecture.names import ARCHITECTURES, BARE_ARCHITECTURES, ENCODERS, SUPPORTED


def test_every_architecture_has_one_without_a_head() -> None:
    assert list(BARE_ARCHITECTURES.values()) == list(ARCHITECTURES.values())


def test_no_name_is_both_a_decoder_s_and_an_encoder_s() -> None:
    assert not {*ARCHITECTURES, *BARE_ARCHITECTURES} & {*ENCODERS}


def test_a_refusal_lists_decoders_and_encoders() -> None:
    assert "decoders (LlamaForCausalLM, " in SUPPORTED
    assert "encoders (BertModel, " in SUPPORTED
