"""Resolves the argument of ``quire serve MODEL``: a directory, a name on the hub, a
simulation, or by default pocket."""

from __future__ import annotations

import contextlib
import difflib
import itertools
import os
import shlex
from dataclasses import dataclass
from pathlib import Path

from engine.options import OptionError
from engine.simulation.spec import is_simulated, parse_spec, with_tokenizer
from pocket import MODEL_DIR
from service.gguf.name import is_gguf_name, model_name
from service.hub.place import ModelPlace, is_hub_name, suggested_name
from service.hub_settings import HubSettings

POCKET_NAME = "pocket"
POCKET_NOTE = (
    "Serving pocket, the embedded model: it shows every protocol feature and knows next to "
    "nothing.\nFor a model of your own: quire serve DIRECTORY, or a name such as Qwen/Qwen3-0.6B"
)
SIMULATION_NOTE = (
    "This is a SIMULATION: no model computes the answers, a timer stands in for the forward pass."
)

_RESEMBLING = 0.75  # of 1, by difflib
_MOST_ENTRIES = 1000  # of a folder that are compared


@dataclass(frozen=True, slots=True)
class ServedModel:
    """``reference`` is passed to the engine; ``directory`` holds the tokenizer and the chat
    template; ``name`` is what clients use unless settings say otherwise (None: the directory's);
    ``note`` is shown to the operator. ``place``: of a model with a name on the hub, whose directory
    is known once its files are there. ``gguf``: a GGUF file, or the first of several, whose
    directory is made at the start; None if it is not there yet.
    """

    reference: str
    directory: Path
    name: str | None = None
    note: str = ""
    place: ModelPlace | None = None
    gguf: Path | None = None

    @property
    def is_simulated(self) -> bool:
        return is_simulated(self.reference)


def model_asked_for(positional: str | None, flag: str | None) -> str | None:
    """Return the model that the command line names; None if it names none. Raises OptionError if it
    names two."""
    if None not in (positional, flag) and positional != flag:
        raise OptionError(
            f"--model: the command names two models, {positional} and {flag}; give one of them, "
            "as MODEL or with --model"
        )
    return flag if positional is None else positional


def served_model(asked: str | None, hub: HubSettings | None = None) -> ServedModel:
    """``hub``: how a model with a name is downloaded. Raises SpecError for an invalid simulation,
    OptionError for a path that does not exist but resembles a hub name or another path."""
    if asked is None:
        return ServedModel(str(MODEL_DIR), MODEL_DIR, POCKET_NAME, POCKET_NOTE)
    if not asked:
        raise OptionError("the model's name is empty")
    if not (is_simulated(asked) or _exists(asked)):
        meant = suggested_name(asked) or (None if is_hub_name(asked) else _resembling_path(asked))
        if meant is not None:
            raise OptionError(
                f"no such file or directory: {asked}; did you mean 'quire serve {meant}'?"
            )
    # OWNER/NAME:FILE.gguf is a name, OWNER/FILE.gguf a path.
    if is_gguf_name(asked) and not (":" in asked and is_hub_name(asked)):
        path = Path(asked)
        return ServedModel(asked, path, model_name(path), gguf=path)
    if is_hub_name(asked):
        hub = hub or HubSettings()
        place = ModelPlace.of(asked, hub.revision, hub.download_dir)
        snapshot = place.whole_snapshot()
        gguf = None if snapshot is None else place.gguf_in(snapshot)
        return ServedModel(asked, snapshot or Path(asked), asked, place=place, gguf=gguf)
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


def _exists(path: str) -> bool:
    try:
        return Path(path).exists()
    except OSError:  # too long, or in a folder that may not be read
        return False


def _resembling_path(asked: str) -> str | None:
    """Return the model in the same folder whose name is most like ``asked``, quoted for a shell;
    None if there is none like it."""
    path = Path(asked)
    names: dict[str, str] = {}
    with contextlib.suppress(OSError), os.scandir(path.parent) as entries:
        for entry in itertools.islice(entries, _MOST_ENTRIES):
            names.setdefault(entry.name.casefold(), entry.name)
    for found in difflib.get_close_matches(path.name.casefold(), names, cutoff=_RESEMBLING):
        meant = path.with_name(names[found])
        if names[found].isprintable() and _is_model(meant):
            return shlex.quote(str(meant))
    return None


def _is_model(path: Path) -> bool:
    try:
        return is_gguf_name(str(path)) or (path / "config.json").is_file()
    except OSError:
        return False
