"""Layers for multi-token prediction, which some checkpoints have after those of the model.

They propose further tokens, and the model's own tokens do not depend on them. transformers' classes
ignore them where they name the layer of one published size; the number is in ``config.json``. It is
not enough: a wrong ``num_hidden_layers`` must not drop one of the model's own layers.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any

# Fields that hold their number: DeepSeek, GLM and others; Qwen3.5; Inkling; MiniMax.
_COUNTS = (
    *("num_nextn_predict_layers", "mtp_num_hidden_layers"),
    *("num_mtp_layers", "num_mtp_modules"),
)
_SEPARATE = re.compile(r"(?:model\.)?mtp[._]")
# What only such layers have: they join the hidden state with the embedding of the next token.
_JOINS = re.compile(r"(?:eh_proj|enorm|hnorm)\.")


def predicts(config: Any, prefix: str, names: Iterable[str]) -> Callable[[str], bool]:
    """Return a function that says whether the tensor with a name belongs to such a layer.
    ``prefix``: of the names of the model's body; ``names``: all those in the checkpoint."""
    count = max(_count(config, field) for field in _COUNTS)
    if count < 1:
        return lambda name: False
    first: int = config.num_hidden_layers
    appended = re.compile(rf"(?:(?:model|{re.escape(prefix)})\.)?layers\.(\d+)\.")

    joining = {
        found[0]
        for name in names
        if (found := appended.match(name)) and _JOINS.match(name, found.end())
    }

    def belongs(name: str) -> bool:
        found = appended.match(name)
        if found is not None:
            return first <= int(found[1]) < first + count and found[0] in joining
        return _SEPARATE.match(name) is not None

    return belongs


def _count(config: Any, field: str) -> int:
    value = getattr(config, field, None)
    return value if isinstance(value, int) else 0
