"""The child that says whether an engine would refuse a model. What it says is tested in
tests/engine/run/test_refusal.py, the whole in tests/service/hub/test_pull.py."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import structlog.testing

from engine.config import EngineConfig
from service.supervision import refusal
from service.supervision.refusal import why_refused

CONFIG = {"architectures": ["BloomForCausalLM"], "model_type": "bloom"}


def engine_for(directory: Path) -> EngineConfig:
    (directory / "config.json").write_text(json.dumps(CONFIG))
    return EngineConfig(model=str(directory), model_impl="transformers")


def test_a_child_says_why(tmp_path: Path) -> None:
    with structlog.testing.capture_logs() as logged:
        said = why_refused(engine_for(tmp_path))
    assert [line["event"] for line in logged] == ["checking whether transformers can run the model"]
    assert said == f"{tmp_path}/config.json does not say how many positions it has"


def test_a_child_that_fails_refuses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(refusal, "REFUSAL_MODULE", "engine.no_such_module")
    assert why_refused(engine_for(tmp_path)) == ""


def test_a_child_that_takes_too_long_refuses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(refusal, "_MOST_SECONDS", 0.0)
    assert why_refused(engine_for(tmp_path)) == ""
