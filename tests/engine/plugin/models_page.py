"""``python -m tests.engine.plugin.models_page``: writes the tables of docs/models.md from what the
tests check."""

from __future__ import annotations

from pathlib import Path

from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

from engine.architecture.config import ARCHITECTURES
from tests.engine.plugin.families import FEW, HYBRIDS, MANY, REFUSED

PAGE = Path(__file__).resolve().parents[3] / "docs" / "models.md"
BEGIN, END = "<!-- begin: written by make docs -->\n", "<!-- end -->\n"


def tables() -> str:
    served = sorted({kind.partition("#")[0] for kind in (*FEW, *MANY, *HYBRIDS)})
    lines = ["| `architectures` | `model_type` | computed by |", "|---|---|---|"]
    for kind in served:
        name = _architecture(kind)
        by = "our own code, or transformers'" if name in ARCHITECTURES else "transformers' code"
        by += ", with a state" if kind in HYBRIDS else ""
        lines.append(f"| `{name}` | `{kind}` | {by} |")
    lines += ["", "Refused, for example:", "", "| `architectures` | why |", "|---|---|"]
    lines += [f"| `{_architecture(kind)}` | {why} |" for kind, why in sorted(REFUSED.items())]
    return "\n".join(lines) + "\n"


def _architecture(kind: str) -> str:
    found = MODEL_FOR_CAUSAL_LM_MAPPING_NAMES[kind]
    return found if isinstance(found, str) else found[0]


def updated(page: str) -> str:
    before, rest = page.split(BEGIN)
    return before + BEGIN + tables() + END + rest.split(END)[1]


if __name__ == "__main__":
    PAGE.write_text(updated(PAGE.read_text()))
