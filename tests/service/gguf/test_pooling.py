"""How a GGUF file says that an embedding model pools."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from engine.architecture.errors import ConfigError, UnsupportedError
from engine.gguf.container import GgufHeader
from engine.gguf.keys import GgufKeys
from engine.messages import Pooling
from engine.pooling.declared import PoolingRules, pooling_rules
from service.gguf.pooling import declared_pooling, pooling_files


def keys_of(**keys: Any) -> GgufKeys:
    values = {f"qwen3.{name}": value for name, value in keys.items()}
    return GgufKeys(
        GgufHeader(Path("tiny.gguf"), 3, {"general.architecture": "qwen3"} | values, {})
    )


@pytest.mark.parametrize(
    ("number", "pooling"), [(1, Pooling.MEAN), (2, Pooling.CLS), (3, Pooling.LAST)]
)
def test_the_engine_pools_as_the_file_says(tmp_path: Path, number: int, pooling: Pooling) -> None:
    for name, text in pooling_files(keys_of(pooling_type=number)).items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    assert pooling_rules(tmp_path, asked="auto", default=Pooling.LAST) == PoolingRules(pooling)


@pytest.mark.parametrize("keys", [{}, {"pooling_type": 0}])
def test_a_file_that_says_nothing_leaves_it_open(keys: dict[str, Any]) -> None:
    assert (declared_pooling(keys_of(**keys)), pooling_files(keys_of(**keys))) == (None, {})


def test_a_reranker_and_an_unknown_pooling_are_refused() -> None:
    with pytest.raises(UnsupportedError, match=r"rerankers \(qwen3.pooling_type 4\)"):
        declared_pooling(keys_of(pooling_type=4))
    with pytest.raises(
        UnsupportedError, match="pooling_type 9 is not supported; known: 0, 1, 2, 3"
    ):
        declared_pooling(keys_of(pooling_type=9))
    with pytest.raises(ConfigError, match="pooling_type must be an integer"):
        declared_pooling(keys_of(pooling_type="mean"))
