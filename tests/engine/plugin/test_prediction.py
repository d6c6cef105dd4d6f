"""Which tensors belong to layers for multi-token prediction."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from engine.plugin.prediction import predicts

APPENDED = (
    *("model.layers.4.eh_proj.weight", "model.layers.4.mlp.gate.weight"),
    *("layers.5.mlp.experts.0.up_proj.weight", "layers.5.enorm.weight"),
)
SEPARATE = ("mtp.fc.weight", "model.mtp.layers.0.enorm.weight", "model.mtp_layers.0.enorm.weight")
OTHERS = (
    *("model.layers.3.spare", "model.layers.6.eh_proj.weight", "model.mtpx.weight"),
    *("visual.layers.4.weight", "model.norm.weight", "model.layers.x.mtp.weight"),
)
ALL = (*APPENDED, *SEPARATE, *OTHERS)


@pytest.mark.parametrize(
    "field",
    ["num_nextn_predict_layers", "mtp_num_hidden_layers", "num_mtp_layers", "num_mtp_modules"],
)
def test_their_number_is_in_the_configuration(field: str) -> None:
    is_predicting = predicts(SimpleNamespace(num_hidden_layers=4, **{field: 2}), "model", ALL)
    assert all(map(is_predicting, (*APPENDED, *SEPARATE)))
    assert not any(map(is_predicting, OTHERS))


@pytest.mark.parametrize("count", [0, None, "2", -1])
def test_without_a_number_there_are_none(count: object) -> None:
    config = SimpleNamespace(num_hidden_layers=4, num_nextn_predict_layers=count)
    assert not any(map(predicts(config, "model", ALL), ALL))


def test_a_body_may_have_another_name() -> None:
    config = SimpleNamespace(num_hidden_layers=4, num_nextn_predict_layers=1)
    names = [f"backbone.layers.4.{part}.weight" for part in ("norm", "hnorm")]
    assert all(map(predicts(config, "backbone", names), names))
    assert not any(map(predicts(config, "model", names), names))


def test_an_ordinary_layer_beyond_the_configured_number_is_not_one_of_them() -> None:
    config = SimpleNamespace(num_hidden_layers=2, num_nextn_predict_layers=2)
    ordinary = [f"model.layers.2.{part}.weight" for part in ("self_attn.q_proj", "mlp.enorm")]
    appended = [f"model.layers.3.{part}.weight" for part in ("self_attn.q_proj", "hnorm")]
    is_predicting = predicts(config, "model", [*ordinary, *appended])
    assert not any(map(is_predicting, ordinary))
    assert all(map(is_predicting, appended))
