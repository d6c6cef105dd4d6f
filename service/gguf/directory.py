"""Makes a model directory in Hugging Face layout for a GGUF file: its configuration, tokenizer and
chat template as files, and a link to the file itself. Of a model in several files it is a link to
the first, next to which the others are found by their names.

All parts of the server read model directories; they need not know where one came from. It lies in
the user's cache, under a name made from the path, size and time of each file, so that a later start
finds it, and a changed file gets its own.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import shutil
import tempfile
from pathlib import Path
from typing import Any

from engine.architecture.errors import ConfigError, ModelError
from engine.cpu.library import LibraryUnavailableError, cache_folder
from engine.gguf.config import config_json
from engine.gguf.keys import TOKENS_KEY, GgufKeys
from engine.gguf.names import LINK
from engine.gguf.part_names import named_part, part_name, parts_by_name
from engine.gguf.parts import read_gguf_header
from engine.gguf.served import MARKS, marks_of
from service.gguf.pooling import pooling_files
from service.gguf.tokenizer import adds_bos, special_token, tokenizer_json

_FORM = 7  # to be raised when the files are made differently
_TEMPLATE = "tokenizer.chat_template"
_TOKENIZER = "tokenizer.json"
_MAX_TOKENIZER_BYTES = 256 << 20
_SPECIAL = {
    "bos_token": "bos",
    "eos_token": "eos",
    "unk_token": "unknown",
    "pad_token": "padding",
}


def gguf_directory(path: Path) -> Path:
    """Return the model directory of a GGUF file, or of the first of several, made if it is not
    there yet. Raises ModelError."""
    given = path
    try:
        real, path = path.resolve(strict=True), named_part(path)
        # A part stays under its name: only next to that the others are found.
        is_part = part_name(path.name) is not None
        path = path.parent.resolve(strict=True) / path.name if is_part else real
        files = [_facts(each) for each in parts_by_name(path)]
    except (OSError, RuntimeError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise ModelError(f"cannot read {path}: {reason}") from error
    tokenizer = _tokenizer_file(given, named_part(given), real)
    facts = (str(path), files, tokenizer and _facts(tokenizer), _FORM)
    digest = hashlib.sha256(repr(facts).encode()).hexdigest()[:24]
    try:
        folder = cache_folder("gguf")
    except LibraryUnavailableError as error:
        raise ModelError(f"{error}; set XDG_CACHE_HOME to a folder of your own") from error
    made = folder / digest
    if not made.is_dir():
        _make(path, tokenizer, made)
    return made


def _tokenizer_file(*paths: Path) -> Path | None:
    """Return the first ``tokenizer.json`` next to one of ``paths``, all of the same file: in the
    hub's cache it is next to a link to the file."""
    found = (path.parent.absolute() / _TOKENIZER for path in paths)
    return next((each for each in found if each.exists()), None)


def _facts(path: Path) -> tuple[str, int, int] | None:
    """Return what changes with a file; None if it is missing."""
    with contextlib.suppress(FileNotFoundError):
        real = path.resolve(strict=True)
        status = real.stat()
        return str(real), status.st_size, status.st_mtime_ns
    return None


def _make(path: Path, tokenizer: Path | None, made: Path) -> None:
    """The directory appears complete or not at all."""
    files = _files(path, tokenizer)
    try:
        temporary = Path(tempfile.mkdtemp(dir=made.parent))
        try:
            for name, text in files.items():
                (temporary / name).parent.mkdir(exist_ok=True)
                (temporary / name).write_text(text, encoding="utf-8")
            (temporary / LINK).symlink_to(path)
            temporary.rename(made)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
    except OSError as error:
        if not made.is_dir():  # another start has made it meanwhile
            raise ModelError(f"cannot write to {made.parent}: {error.strerror}") from error


def _files(path: Path, tokenizer: Path | None) -> dict[str, str]:
    header = read_gguf_header(path)
    keys = GgufKeys(header)
    config = config_json(header)
    if tokenizer is None:
        text = json.dumps(tokenizer_json(keys), ensure_ascii=False)
    else:
        text = _checked_tokenizer(tokenizer, keys)
    files = {
        MARKS: json.dumps(marks_of(header)),
        "config.json": json.dumps(config, indent=2),
        "tokenizer.json": text,
        "tokenizer_config.json": json.dumps(_tokenizer_config(keys), ensure_ascii=False, indent=2),
    }
    files |= pooling_files(keys)
    if keys.has(_TEMPLATE):
        files["chat_template.jinja"] = keys.text(_TEMPLATE)
        if keys.has(f"{_TEMPLATE}.tool_use"):
            files["additional_chat_templates/tool_use.jinja"] = keys.text(f"{_TEMPLATE}.tool_use")
    return files


def _tokenizer_config(keys: GgufKeys) -> dict[str, Any]:
    special = {name: special_token(keys, key) for name, key in _SPECIAL.items()}
    return {**special, "add_bos_token": adds_bos(keys)}


def _checked_tokenizer(path: Path, keys: GgufKeys) -> str:
    """Return the text of a ``tokenizer.json``, which says more than the keys. Raises ConfigError if
    it is of another model, with other tokens."""
    try:
        if path.stat().st_size > _MAX_TOKENIZER_BYTES:
            raise ConfigError(f"{path} is larger than {_MAX_TOKENIZER_BYTES} bytes")
        text = path.read_text(encoding="utf-8")
        found = json.loads(text)
        numbers = {**found["model"]["vocab"]}
        numbers |= {one["content"]: one["id"] for one in found.get("added_tokens") or []}
    except KeyError as error:
        raise ConfigError(f"{path} has no {error}; correct or remove it") from error
    except (OSError, ValueError, LookupError, TypeError, RecursionError) as error:
        raise ConfigError(f"{path} cannot be read: {error}; correct or remove it") from error
    tokens = keys.texts(TOKENS_KEY)
    wrong = [token for token, number in numbers.items() if tokens[number : number + 1] != [token]]
    if tokens and wrong:
        raise ConfigError(
            f"{path} is the tokenizer of another model than {keys.source} (token {wrong[0]!r} "
            "differs); remove it, or move the file to another folder"
        )
    return text
