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

from service.hub.errors import NotServableError

WEIGHTS_INDEX = "model.safetensors.index.json"
_SINGLE = "model.safetensors"

_CONFIG = "config.json"
_TOKENIZER = "tokenizer.json"
_SMALL = (
    *(_CONFIG, "generation_config.json", WEIGHTS_INDEX),
    *(_TOKENIZER, "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json"),
    *("chat_template.jinja", "additional_chat_templates/*.jinja", "response_template.json"),
    # How an embedding model pools.
    *("modules.json", "sentence_bert_config.json", "config_sentence_transformers.json"),
    "[0-9]_*/config.json",
)
_PICKLES = (".bin", ".pt", ".pth", ".ckpt", ".pkl")


@dataclass(frozen=True, slots=True)
class HubFile:
    """``digest``: SHA-256 of a large file (64 digits), Git's SHA-1 of others (40)."""

    name: str
    size: int
    digest: str


def small_files(files: Iterable[HubFile]) -> list[HubFile]:
    """Return all that is needed besides the weights."""
    return [
        file for file in files if any(fnmatch.fnmatchcase(file.name, pattern) for pattern in _SMALL)
    ]


def check_servable(name: str, files: Iterable[HubFile], *, weights: bool) -> None:
    """Raise NotServableError unless a server could load them. ``weights``: whether those count."""
    there = {file.name for file in files}
    if _CONFIG not in there and (gguf := sorted(one for one in there if one.endswith(".gguf"))):
        raise NotServableError(
            f"'{name}' has only GGUF files, which cannot be served by name; download one, such as "
            f"{gguf[0]}, and start 'quire serve FILE.gguf', or choose the repository of the "
            "original model"
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
    if not weights or {_SINGLE, WEIGHTS_INDEX} & there:
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
        f"'{name}' has neither {_SINGLE} nor {WEIGHTS_INDEX}; choose a "
        "repository with safetensors weights"
    )


class _Index(msgspec.Struct):
    weight_map: dict[str, str]


def weight_files(name: str, files: Iterable[HubFile], index: bytes | None) -> list[HubFile]:
    """Return the files with the weights: those that the index names, as the engine reads them, or
    the only one. ``index``: its content; None: there is none. Raises NotServableError."""
    by_name = {file.name: file for file in files}
    if _SINGLE in by_name and index is None:
        return [by_name[_SINGLE]]
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
