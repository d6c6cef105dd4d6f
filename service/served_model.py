"""Resolves the argument of ``quire serve MODEL``: a directory, a simulation, or by default
pocket."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from engine.simulation.spec import is_simulated, parse_spec, with_tokenizer
from pocket import MODEL_DIR

POCKET_NAME = "pocket"
POCKET_NOTE = (
    "Serving pocket, the embedded model: it shows every protocol feature and knows next to "
    "nothing.\nFor a model of your own: quire serve DIRECTORY"
)
SIMULATION_NOTE = (
    "This is a SIMULATION: no model computes the answers, a timer stands in for the forward pass."
)


@dataclass(frozen=True, slots=True)
class ServedModel:
    """``reference`` is passed to the engine; ``directory`` holds the tokenizer and the chat
    template; ``name`` is what clients use unless settings say otherwise (None: the directory's);
    ``note`` is shown to the operator."""

    reference: str
    directory: Path
    name: str | None = None
    note: str = ""

    @property
    def is_simulated(self) -> bool:
        return is_simulated(self.reference)


def served_model(asked: str | None) -> ServedModel:
    """Raises SpecError for an invalid simulation."""
    if asked is None:
        return ServedModel(str(MODEL_DIR), MODEL_DIR, POCKET_NAME, POCKET_NOTE)
    if not is_simulated(asked):
        return ServedModel(asked, Path(asked))
    reference = with_tokenizer(asked, str(MODEL_DIR))
    simulation = parse_spec(reference)
    return ServedModel(
        reference,
        Path(simulation.tokenizer or MODEL_DIR),
        f"simulated:{simulation.profile}",
        SIMULATION_NOTE,
    )
