"""Which files of a repository a server needs. Pure: names in, names out.

Only these are ever downloaded. Pickles and Python files can run code when they are loaded, and are
never among them.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import PurePosixPath

import msgspec

from engine.architecture.quantization import SEPARATE_FILES
from engine.gguf.part_names import part_name
from service.hub.errors import NotServableError

WEIGHTS_INDEX = "model.safetensors.index.json"
SINGLE_WEIGHTS = "model.safetensors"

_CONFIG = "config.json"
_TOKENIZER = "tokenizer.json"
_SMALL = (
    *(_CONFIG, "generation_config.json", *SEPARATE_FILES, WEIGHTS_INDEX),
    *(_TOKENIZER, "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json"),
    *("chat_template.jinja", "additional_chat_templates/*.jinja", "response_template.json"),
    *("processor_config.json", "chat_template.json"),  # chat templates of image-text models
    # How an embedding model pools.
    *("modules.json", "sentence_bert_config.json", "config_sentence_transformers.json"),
    "[0-9]_*/config.json",
)
_MOST_LISTED = 12  # files named in an error
_PICKLES = (".bin", ".pt", ".pth", ".ckpt", ".pkl")


@dataclass(frozen=True, slots=True)
class HubFile:
    """``digest``: SHA-256 of a large file (64 digits), Git's SHA-1 of others (40). ``size``: None
    if the hub, a mirror then, does not state it."""

    name: str
    size: int | None
    digest: str


def small_files(files: Iterable[HubFile]) -> list[HubFile]:
    """Return all that is needed besides the weights."""
    return [
        file for file in files if any(fnmatch.fnmatchcase(file.name, pattern) for pattern in _SMALL)
    ]


def absent_files(files: Iterable[HubFile]) -> list[str]:
    """Return which of the files that a repository need not have are not there."""
    names = [file.name for file in files]
    may_be = (pattern for pattern in _SMALL if pattern != WEIGHTS_INDEX)
    return [pattern for pattern in may_be if not fnmatch.filter(names, pattern)]


def check_servable(name: str, files: Iterable[HubFile], *, weights: bool) -> None:
    """Raise NotServableError unless a server could load them. ``weights``: whether those count."""
    files = list(files)
    there = {file.name for file in files}
    has_safetensors = bool({SINGLE_WEIGHTS, WEIGHTS_INDEX} & there)
    # Some have the original's config.json too.
    lacks = not has_safetensors and (weights or not {_CONFIG, _TOKENIZER} <= there)
    if lacks and (gguf := sorted(_gguf_models(files))):
        raise NotServableError(
            f"'{name}' has its weights only in GGUF files: name one, as in '{name}:Q4_K_M', or "
            f"choose the repository of the original model; it has {_listed(gguf)}"
        )
    if _CONFIG not in there:
        raise NotServableError(
            f"'{name}' has no config.json: it is not a model in Hugging Face layout; choose the "
            "repository of the original model"
        )
    if _TOKENIZER not in there:
        raise NotServableError(
            f"'{name}' has no tokenizer.json; choose a repository that has one, or download this "
            "one and convert its tokenizer with transformers"
        )
    if not weights or has_safetensors:
        return
    if pickles := sorted(one for one in there if PurePosixPath(one).suffix in _PICKLES):
        raise NotServableError(
            f"'{name}' has its weights only as pickles ({pickles[0]}), which could run code here "
            "and are never loaded; choose a repository or --revision with safetensors files"
        )
    if "adapter_config.json" in there:
        raise NotServableError(
            f"'{name}' is an adapter without the model's own weights; choose a merged model"
        )
    raise NotServableError(
        f"'{name}' has neither {SINGLE_WEIGHTS} nor {WEIGHTS_INDEX}; choose a "
        "repository with safetensors weights"
    )


def gguf_files(name: str, files: Iterable[HubFile], variant: str) -> list[HubFile]:
    """Return the GGUF file whose name, or else whose folder's, ends in ``variant``, or is it; or
    all parts of one in several, in their order. Raises NotServableError."""
    models = _gguf_models(files)
    found = _best_matches(models, variant)
    if len(found) == 1:
        return _whole(name, models[found[0]])
    if found:
        raise NotServableError(
            f"several files of '{name}' match '{variant}': {_listed(found)}; "
            f"{_way_out(name, models, found)}"
        )
    if not models:
        raise NotServableError(f"'{name}' has no GGUF file; leave out ':{variant}'")
    raise NotServableError(
        f"no GGUF file of '{name}' matches '{variant}'; it has {_listed([*models])}"
    )


def _gguf_models(files: Iterable[HubFile]) -> dict[str, list[HubFile]]:
    """Return each model in GGUF files by the name of its first, or only, one."""
    models: dict[str, list[HubFile]] = {}
    for file in sorted(files, key=lambda file: file.name):
        if _is_model(file.name):
            part = part_name(file.name)
            models.setdefault(file.name if part is None else part.of(1), []).append(file)
    return models


def _whole(name: str, parts: list[HubFile]) -> list[HubFile]:
    """Return the files. Raises NotServableError if a part is missing."""
    there, part = {file.name for file in parts}, part_name(parts[0].name)
    for number in range(1, 1 if part is None else part.count + 1):
        assert part is not None
        if part.of(number) not in there:
            raise NotServableError(
                f"'{name}' lacks {part.of(number)}, a part of the model in {part.count} files; "
                "choose another one or another --revision"
            )
    return parts


def _is_model(name: str) -> bool:
    """True for GGUF files except encoders of images, which come with the models that use them."""
    file = PurePosixPath(name)
    return file.suffix.lower() == ".gguf" and "mmproj" not in file.name.lower()


def _best_matches(models: Iterable[str], variant: str) -> list[str]:
    """Return those that match best. ``models``: names of first, or only, files."""
    names = [*models]
    for matches in (_is_named, _name_ends_in, _folder_ends_in):
        if found := [one for one in names if matches(one, variant)]:
            return found
        if found := [one for one in names if matches(one.lower(), variant.lower())]:
            return found
    return []


def _is_named(name: str, variant: str) -> bool:
    return PurePosixPath(name).name == variant


def _name_ends_in(name: str, variant: str) -> bool:
    """``name``: of the only file or of the first part, of which the number may be left out."""
    part = part_name(name)
    stems = [PurePosixPath(name).stem] + ([PurePosixPath(part.stem).name] if part else [])
    return any(_ends_in(stem, variant) for stem in stems)


def _folder_ends_in(name: str, variant: str) -> bool:
    return _ends_in(PurePosixPath(name).parent.name, variant)


def _ends_in(text: str, end: str) -> bool:
    return text == end or text.endswith(tuple(f"{separator}{end}" for separator in "-._"))


def _way_out(name: str, models: Iterable[str], found: list[str]) -> str:
    """Return what to do about several that match."""
    models = [*models]
    for one in found:
        for text in (PurePosixPath(one).name, PurePosixPath(one).parent.name):
            if text and _best_matches(models, text) == [one]:
                return f"give the rest of the name, or its folder's, as in '{name}:{text}'"
    return "download the one you want and serve its path"


def _listed(names: list[str]) -> str:
    more = len(names) - _MOST_LISTED
    return ", ".join(names[:_MOST_LISTED]) + (f" and {more} more" if more > 0 else "")


class _Index(msgspec.Struct):
    weight_map: dict[str, str]


def weight_files(name: str, files: Iterable[HubFile], index: bytes | None) -> list[HubFile]:
    """Return the files with the weights, as the engine reads them: the single one if it is there,
    else those that the index names. ``index``: its content; None: there is none. Raises
    NotServableError."""
    by_name = {file.name: file for file in files}
    if SINGLE_WEIGHTS in by_name:
        return [by_name[SINGLE_WEIGHTS]]
    try:
        named = msgspec.json.decode(index or b"", type=_Index).weight_map.values()
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise NotServableError(f"{WEIGHTS_INDEX} of '{name}' cannot be read: {error}") from None
    wanted = sorted(set(named))
    if wrong := [one for one in wanted if not one.endswith(".safetensors")]:
        raise NotServableError(
            f"{WEIGHTS_INDEX} of '{name}' names {wrong[0]}, which is not a safetensors file; "
            "choose another repository or --revision"
        )
    if missing := [one for one in wanted if one not in by_name]:
        raise NotServableError(
            f"{WEIGHTS_INDEX} of '{name}' names {missing[0]}, which the repository does not have; "
            "choose another --revision"
        )
    return [by_name[one] for one in wanted]
