"""The embedded model with a tokenizer whose regular expression takes exponential time."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from pocket import MODEL_DIR

ENDLESS_TEXT = "a" * 100 + "!"
"""The regular expression gives up on it; on a few letters it does not."""


def write_exponential_tokenizer(directory: Path) -> Path:
    """Return the model's directory."""
    shutil.copytree(MODEL_DIR, directory, dirs_exist_ok=True)
    path = directory / "tokenizer.json"
    fields = json.loads(path.read_text(encoding="utf-8"))
    split = {
        "type": "Split",
        "pattern": {"Regex": "(a|a|aa)+$"},
        "behavior": "Isolated",
        "invert": False,
    }
    own = fields["pre_tokenizer"]
    fields["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": [split, own]}
    path.write_text(json.dumps(fields), encoding="utf-8")
    return directory
