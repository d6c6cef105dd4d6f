"""The source of a class is what ``inspect`` finds, without its decorators."""

from __future__ import annotations

import inspect
from collections import OrderedDict

import pytest
import torch
from transformers.models.falcon_h1 import modeling_falcon_h1
from transformers.models.qwen3_next import modeling_qwen3_next

from engine.plugin.code import class_code


@pytest.mark.parametrize("module", [modeling_falcon_h1, modeling_qwen3_next])
def test_it_is_what_inspect_finds(module: object) -> None:
    kinds = [
        kind
        for _, kind in inspect.getmembers(module, inspect.isclass)
        if kind.__module__.startswith("transformers.")
    ]
    assert len(kinds) > 10
    for kind in kinds:
        code = class_code(kind)
        assert code.startswith(f"class {kind.__name__}")
        assert inspect.getsource(kind).endswith(code)  # before it are its decorators


def test_classes_of_other_packages_have_none() -> None:
    assert class_code(torch.nn.Linear) == ""
    assert class_code(OrderedDict) == ""
