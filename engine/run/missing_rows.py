"""Warns of a tokenizer that has more tokens than the model has embeddings."""

from __future__ import annotations

import logging
from pathlib import Path

from engine.architecture.tokenizer_files import token_ids

_log = logging.getLogger(__name__)


def warn_of_missing_rows(directory: Path, rows: int) -> None:
    """``rows``: of the model's embeddings. Raises ConfigError for a tokenizer that cannot be
    read."""
    missing = [number for number in token_ids(directory) if number >= rows]
    if missing:
        _log.warning(
            "the model has no embedding for %d of the tokenizer's tokens (its ids end at %d, the "
            "tokenizer's at %d), so requests whose prompts contain one are refused",
            len(missing),
            rows - 1,
            max(missing),
        )
