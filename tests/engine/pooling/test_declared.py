"""What sentence-transformers' files say about pooling is followed, and refused where it is not
served."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from engine.architecture.errors import ConfigError
from engine.messages import Embed, Pooling
from engine.pooling.declared import PoolingRules, pooling_rules

TRANSFORMER = {"path": "", "type": "sentence_transformers.models.Transformer"}
POOLING = {"path": "1_Pooling", "type": "sentence_transformers.models.Pooling"}
NORMALIZE = {"path": "2_Normalize", "type": "sentence_transformers.models.Normalize"}


def declare(directory: Path, modules: Any, pooling: dict[str, Any] | None = None) -> Path:
    (directory / "modules.json").write_text(json.dumps(modules))
    (directory / "1_Pooling").mkdir(exist_ok=True)
    (directory / "1_Pooling" / "config.json").write_text(json.dumps(pooling or {}))
    return directory


def rules(directory: Path, asked: str = "auto") -> PoolingRules:
    return pooling_rules(directory, asked=asked, default=Pooling.LAST)


def test_a_directory_that_declares_nothing_gets_the_default_and_length_one(tmp_path: Path) -> None:
    assert rules(tmp_path) == PoolingRules(Pooling.LAST, normalizes=True)


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ({"pooling_mode": "mean"}, Pooling.MEAN),
        ({"pooling_mode": "lasttoken"}, Pooling.LAST),
        ({"pooling_mode": "cls"}, Pooling.CLS),
        ({"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": False}, Pooling.CLS),
        ({"pooling_mode_lasttoken": True}, Pooling.LAST),
        ({}, Pooling.MEAN),  # what sentence-transformers takes where nothing is flagged
    ],
)
def test_the_declared_pooling_holds_in_the_new_notation_and_in_the_old(
    written: dict[str, Any], expected: Pooling, tmp_path: Path
) -> None:
    found = rules(declare(tmp_path, [TRANSFORMER, POOLING], written))
    assert found.pooling is expected
    assert not found.normalizes  # no module does


def test_an_asked_pooling_overrides_even_one_that_is_not_served(tmp_path: Path) -> None:
    both = {"pooling_mode_max_tokens": True, "pooling_mode_mean_tokens": True}
    declare(tmp_path, [TRANSFORMER, POOLING, NORMALIZE], both)
    with pytest.raises(ConfigError, match=r"mean\+max.*--pooling mean, last or cls overrides"):
        rules(tmp_path)
    assert rules(tmp_path, "cls") == PoolingRules(Pooling.CLS, normalizes=True)


@pytest.mark.parametrize(
    ("modules", "complaint"),
    [
        ({}, "must hold a JSON list"),
        (["Transformer"], "a list of objects"),
        ([TRANSFORMER | {"type": "a.Dense"}, POOLING], "has Dense; supported"),
        ([POOLING | {"path": "../elsewhere"}], "outside its directory"),
        ([POOLING | {"path": "/etc"}], "outside its directory"),
        ([{"path": ""}], "type must be a string"),
    ],
)
def test_unsupported_modules_and_those_outside_the_directory_are_refused(
    modules: Any, complaint: str, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match=complaint):
        rules(declare(tmp_path, modules))


def test_lengths_and_sizes_that_a_checkpoint_was_trained_for(tmp_path: Path) -> None:
    (tmp_path / "sentence_bert_config.json").write_text('{"max_seq_length": 256}')
    (tmp_path / "config.json").write_text('{"matryoshka_dimensions": [64, 128]}')
    found = rules(tmp_path)
    assert (found.max_tokens, found.matryoshka_dimensions) == (256, (64, 128))
    (tmp_path / "sentence_bert_config.json").write_text('{"max_seq_length": null}')
    assert rules(tmp_path).max_tokens is None
    (tmp_path / "config.json").write_text('{"matryoshka_dimensions": [64, 0]}')
    with pytest.raises(ConfigError, match="matryoshka_dimensions must be a list of sizes"):
        rules(tmp_path)


@pytest.mark.parametrize(
    ("length", "expected"),
    [(128, 128), (128.0, 128), (int(1e30), None), (1e30, None), (None, None), ("long", None)],
)
def test_the_length_may_be_the_tokenizer_s_where_sentence_transformers_wrote_it(
    length: Any, expected: int | None, tmp_path: Path
) -> None:
    """As of version 6, which writes no max_seq_length."""
    (tmp_path / "sentence_bert_config.json").write_text('{"module_output_name": "x"}')
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"model_max_length": length}))
    assert rules(tmp_path).max_tokens is None  # transformers' own, of no embedding model
    declare(tmp_path, [TRANSFORMER, POOLING])
    assert rules(tmp_path).max_tokens == expected
    (tmp_path / "sentence_bert_config.json").write_text('{"max_seq_length": 64}')
    assert rules(tmp_path).max_tokens == 64


LOWERCASE = {"type": "Lowercase"}
STRIP = {"type": "Strip"}


@pytest.mark.parametrize(
    ("normalizer", "is_served"),
    [
        (None, False),
        (STRIP, False),
        ({"type": "BertNormalizer", "lowercase": False}, False),
        ({"type": "Sequence", "normalizers": [STRIP]}, False),
        (LOWERCASE, True),
        ({"type": "BertNormalizer", "lowercase": True}, True),
        ({"type": "Sequence", "normalizers": [STRIP, LOWERCASE]}, True),
    ],
)
def test_lower_case_is_refused_unless_the_tokenizer_sees_to_it(
    normalizer: dict[str, Any] | None, is_served: bool, tmp_path: Path
) -> None:
    # As large as those of multilingual models, which are larger than any config.json may be.
    vocabulary = {f"word {number}": number for number in range(300_000)}
    values = {"normalizer": normalizer, "model": {"vocab": vocabulary}}
    (tmp_path / "tokenizer.json").write_text(json.dumps(values))
    (tmp_path / "sentence_bert_config.json").write_text('{"do_lower_case": false}')
    rules(tmp_path)
    (tmp_path / "sentence_bert_config.json").write_text('{"do_lower_case": true}')
    if is_served:
        rules(tmp_path)
        return
    with pytest.raises(ConfigError, match="do_lower_case is supported only if"):
        rules(tmp_path)


@pytest.mark.parametrize("declared", [True, False])
def test_a_request_s_wish_comes_first_and_a_shortened_vector_gets_length_one(
    declared: bool,
) -> None:
    subject = PoolingRules(Pooling.MEAN, normalizes=declared)
    assert subject.normalizes_for(Embed()) is declared
    assert subject.normalizes_for(Embed(dimensions=8))
    assert not subject.normalizes_for(Embed(dimensions=8, activate=False))
    assert subject.normalizes_for(Embed(activate=True))
