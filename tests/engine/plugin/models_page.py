"""``python -m tests.engine.plugin.models_page``: writes the tables of docs/models.md from what the
tests check."""

from __future__ import annotations

import json
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

from engine.architecture.config import load_model_config
from engine.architecture.names import ARCHITECTURES
from engine.cpu.llama import compiled_pass_fits
from engine.gpu.availability import kernels_fit
from engine.sharding.shard import SERVED_BY_RANKS
from tests.engine.plugin.families import (
    FEW,
    HYBRIDS,
    MANY,
    NATIVE,
    ONLY_NATIVE,
    REFUSED,
    tiny_config,
)
from tests.engine.plugin.image_text import (
    NATIVE_TEXT,
    PLUGIN_TEXT,
    WITHOUT_WHOLE,
    architecture_of,
    tiny_image_text_config,
)

_LANES = 16  # of the widest vectors
PAGE = Path(__file__).resolve().parents[3] / "docs" / "models.md"
BEGIN, END = "<!-- begin: written by make docs -->\n", "<!-- end -->\n"


def tables() -> str:
    kinds = (*FEW, *MANY, *HYBRIDS, *NATIVE)
    served = sorted({kind.partition("#")[0] for kind in kinds})
    lines = [
        "| `architectures` | `model_type` | our own code | transformers' code |",
        "|---|---|---|---|",
    ]
    for kind in served:
        name = _architecture(kind)
        variants = [each for each in (*NATIVE, kind) if each.partition("#")[0] == kind]
        ours = ""
        if name in ARCHITECTURES:
            values = json.loads(tiny_config(variants[0]).to_json_string())
            ours = ", ".join(_paths(name, values))
        by = "with a state" if kind in HYBRIDS else "" if kind in ONLY_NATIVE else "yes"
        lines.append(f"| `{name}` | `{kind}` | {ours} | {by} |")
    lines += [
        "",
        "Image-text checkpoints, of which the language model is served:",
        "",
        "| `architectures` | `model_type` of `text_config` | our own code | transformers' code |",
        "|---|---|---|---|",
        *_image_text_rows(),
    ]
    lines += ["", "Refused, for example:", "", "| `architectures` | why |", "|---|---|"]
    lines += [f"| `{_architecture(kind)}` | {why} |" for kind, why in sorted(REFUSED.items())]
    return "\n".join(lines) + "\n"


def _image_text_rows() -> list[str]:
    rows: dict[str, str] = {}
    for kind in (*NATIVE_TEXT, *PLUGIN_TEXT, *WITHOUT_WHOLE):
        whole, _, text = kind.partition("#")[0].partition(":")
        ours, theirs = "", "yes"
        if kind in NATIVE_TEXT:
            values = json.loads(tiny_image_text_config(kind).to_json_string())
            ours = ", ".join(_paths(architecture_of(kind), values))
            has_class = text in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES
            theirs = "yes" if has_class and text not in ONLY_NATIVE else ""
        elif text in HYBRIDS:
            theirs = "with a state"
        row = f"| `{architecture_of(kind)}` | `{text}` | {ours} | {theirs} |"
        rows.setdefault(f"{whole}:{text}", row)
    return [rows[key] for key in sorted(rows)]


def _architecture(kind: str) -> str:
    found = MODEL_FOR_CAUSAL_LM_MAPPING_NAMES[kind]
    return found if isinstance(found, str) else found[0]


def _paths(architecture: str, values: dict[str, Any]) -> list[str]:
    """Return the paths that compute by our code what a config.json with ``values`` describes."""
    with TemporaryDirectory() as directory:
        config = Path(directory, "config.json")
        config.write_text(json.dumps(values | {"architectures": [architecture]}))
        model = load_model_config(directory)
    served = {
        "C": compiled_pass_fits(model, _LANES),
        "Triton": kernels_fit(model),
        "torch": True,
        "ranks": model.features <= SERVED_BY_RANKS,
    }
    return [path for path, serves in served.items() if serves]


def updated(page: str) -> str:
    before, rest = page.split(BEGIN)
    return before + BEGIN + tables() + END + rest.split(END)[1]


if __name__ == "__main__":
    PAGE.write_text(updated(PAGE.read_text()))
