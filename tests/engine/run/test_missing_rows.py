"""Tokens that the model has no embedding for are announced once, when it is loaded."""

from __future__ import annotations

from pathlib import Path

import pytest
from tokenizers import Tokenizer
from tokenizers.models import BPE

from engine.config import EngineConfig
from engine.run.encoder_runner import EncoderRunner
from engine.run.missing_rows import warn_of_missing_rows
from engine.run.setup import set_up
from engine.sharding.collectives import ALONE
from tests.engine.tiny_encoders import ENCODERS, save_encoder
from tests.engine.tiny_encoders import VOCABULARY as ENCODER_VOCABULARY
from tests.engine.tiny_models import VARIANTS, VOCABULARY, save_model


def write_tokenizer(directory: Path, tokens: int) -> None:
    """Of ``tokens`` tokens, of which the last two are added ones."""
    tokenizer = Tokenizer(BPE({chr(0x4E00 + number): number for number in range(tokens - 2)}, []))
    tokenizer.add_special_tokens(["<one>", "<two>"])
    tokenizer.save(str(directory / "tokenizer.json"))


@pytest.mark.parametrize(("rows", "missing"), [(12, 0), (99, 0), (11, 1), (8, 4)])
def test_their_number_and_the_largest_id_are_said(
    rows: int, missing: int, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write_tokenizer(tmp_path, 12)
    warn_of_missing_rows(tmp_path, rows)
    assert len(caplog.messages) == min(missing, 1)
    if missing:
        assert f"no embedding for {missing} of the tokenizer's tokens" in caplog.text
        assert f"(its ids end at {rows - 1}, the tokenizer's at 11)" in caplog.text


def test_a_model_without_a_tokenizer_is_not_warned_of(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    warn_of_missing_rows(tmp_path, 1)
    assert not caplog.messages


@pytest.mark.parametrize("more", [0, 3])
def test_a_decoder_is_looked_at_when_it_is_loaded(
    more: int, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    save_model(VARIANTS["llama"], tmp_path)
    write_tokenizer(tmp_path, VOCABULARY + more)
    set_up(EngineConfig(model=str(tmp_path), device="cpu", threads=1), ALONE)
    assert caplog.text.count(f"no embedding for {more} of the tokenizer's") == min(more, 1)


@pytest.mark.parametrize("more", [0, 3])
def test_an_encoder_too(more: int, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    save_encoder(ENCODERS["bert"], tmp_path)
    write_tokenizer(tmp_path, ENCODER_VOCABULARY + more)
    EncoderRunner(EngineConfig(model=str(tmp_path), device="cpu", threads=1), lambda *_: None)
    assert caplog.text.count(f"no embedding for {more} of the tokenizer's") == min(more, 1)
