"""How a GGUF file says that an embedding model pools, as sentence-transformers' files say it."""

from __future__ import annotations

import json

from engine.architecture.errors import UnsupportedError
from engine.gguf.keys import ARCHITECTURE_KEY, GgufKeys

# By the number in the key, as llama.cpp counts them.
_MODES = {0: None, 1: "mean", 2: "cls", 3: "lasttoken"}
_RANK = 4
_MOST = 1 << 31


def declared_pooling(keys: GgufKeys) -> str | None:
    """Return sentence-transformers' word for it; None if the file says none. Raises ConfigError,
    and UnsupportedError."""
    architecture = keys.text(ARCHITECTURE_KEY, "")
    name = f"{architecture}.pooling_type"
    number = keys.integer(name, 0, low=0, high=_MOST)
    if number == _RANK:
        raise UnsupportedError(
            f"{keys.source}: rerankers ({name} {number}) are not supported as GGUF; serve the "
            "original checkpoint"
        )
    if number not in _MODES:
        known = ", ".join(map(str, _MODES))
        raise UnsupportedError(f"{keys.source}: {name} {number} is not supported; known: {known}")
    return _MODES[number]


def pooling_files(keys: GgufKeys) -> dict[str, str]:
    """Return the contents of files by their paths. Embeddings are normalised, as llama.cpp does
    by default."""
    mode = declared_pooling(keys)
    if mode is None:
        return {}
    kinds = (("", "Transformer"), ("1_Pooling", "Pooling"), ("2_Normalize", "Normalize"))
    modules = [
        {"idx": place, "path": path, "type": f"sentence_transformers.models.{kind}"}
        for place, (path, kind) in enumerate(kinds)
    ]
    return {
        "modules.json": json.dumps(modules, indent=2),
        "1_Pooling/config.json": json.dumps({"pooling_mode": mode}),
    }
