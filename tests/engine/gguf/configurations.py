"""Compares the config.json of a GGUF file with that of its checkpoint."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from engine.gguf.config import config_json
from engine.gguf.parts import read_gguf_header
from tests.engine.gguf.making import write_gguf
from tests.engine.plugin.families import save_family

# What no computation depends on.
_OTHER_FIELDS = {
    *("initializer_range", "transformers_version", "use_cache", "attention_dropout"),
    *("output_router_logits", "router_aux_loss_coef", "pad_token_id", "bos_token_id"),
}


def save_kinds(folders: pytest.TempPathFactory, kinds: Iterable[str]) -> dict[str, Path]:
    """Return the directories of checkpoints of these kinds."""
    found = {kind: folders.mktemp("made") for kind in kinds}
    for kind, directory in found.items():
        save_family(kind, directory)
    return found


def file_config(original: Path, folder: Path, **keys: Any) -> dict[str, Any]:
    """Return the config.json of a GGUF file made from ``original``. ``keys``: changes to its
    architecture's keys, with __ for a dot; None removes one. Raises ConfigError."""
    header = read_gguf_header(write_gguf(original, folder / "t.gguf", "Q8_0", tokenizer=False))
    prefix = header.keys["general.architecture"]
    for key, value in keys.items():
        name = f"{prefix}.{key.replace('__', '.')}"
        header.keys.pop(name, None)
        if value is not None:
            header.keys[name] = value
    return config_json(header)


def assert_same_configuration(original: Path, found: dict[str, Any], *others: str) -> None:
    """``others``: fields that may be missing or differ."""
    expected = json.loads((original / "config.json").read_text())
    ignored = {*_OTHER_FIELDS, *others, "dtype", "eos_token_id"}
    computed = expected.keys() & found.keys() - ignored
    assert {key: found[key] for key in computed} == {key: expected[key] for key in computed}
    assert expected.keys() - found.keys() <= ignored
