"""The small files of a model directory that the service reads, and what is wrong with them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from engine.architecture.errors import ConfigError
from engine.architecture.tokenizer_files import TOKENIZER, TOKENIZER_CONFIG, read_tokenizer
from service.checkpoint.defaults import GENERATION
from service.checkpoint.vocabulary import UnsupportedTokenizerError, decoder_steps

RESPONSE_TEMPLATE = "response_template.json"

_TEMPLATE = "chat_template.jinja"
_TOOL_TEMPLATE = "additional_chat_templates/tool_use.jinja"
# Files of a processor, whose chat template transformers takes before a tokenizer's.
_PROCESSORS = ("processor_config.json", "chat_template.json")
_TOKENIZER_MODELS = ("BPE", "Unigram", "WordLevel", "WordPiece")  # the tokenizers library's
_MOST_PARSED = 1 << 20  # characters of a template that the supervisor parses


class CheckpointError(ValueError):
    """A file of the model that cannot be used. The message names it, and the reason."""

    def __init__(self, file: str, reason: object) -> None:
        super().__init__(f"{file}: {reason}")


class TemplateFile(NamedTuple):
    """A chat template, and the one for conversations with tools, if that is separate. ``file``:
    the name of the one that has them."""

    file: str
    source: str | None
    tool_use: str | None = None


def read_text(directory: Path, name: str) -> str:
    """Raises OSError and CheckpointError."""
    try:
        return (directory / name).read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise CheckpointError(name, f"it is not UTF-8 at byte {error.start}") from None


def read_json(directory: Path, name: str) -> dict[str, Any]:
    """Return the object; an empty one if there is no file. Raises OSError and CheckpointError."""
    if not (directory / name).exists():
        return {}
    try:
        value = json.loads(read_text(directory, name))
    except RecursionError:
        raise CheckpointError(name, "it is nested too deeply") from None
    except json.JSONDecodeError as error:
        raise CheckpointError(name, f"it is not valid JSON: {error}") from None
    if not isinstance(value, dict):
        raise CheckpointError(name, "it does not hold a JSON object")
    return value


def template_file(directory: Path, config: dict[str, Any]) -> TemplateFile:
    """Return the chat template by transformers' order: those that the processor of a model has that
    also reads images (``_PROCESSORS``), ``chat_template.jinja``, tokenizer_config.json, whose
    content is ``config``. Raises OSError and CheckpointError."""
    for name in _PROCESSORS:
        if (own := read_json(directory, name).get("chat_template")) is not None:
            return _declared(name, own)
    if (directory / _TEMPLATE).exists():
        has_tools = (directory / _TOOL_TEMPLATE).exists()
        with_tools = read_text(directory, _TOOL_TEMPLATE) if has_tools else None
        return TemplateFile(_TEMPLATE, read_text(directory, _TEMPLATE), with_tools)
    return _declared(TOKENIZER_CONFIG, config.get("chat_template"))


def files_problem(directory: Path) -> str:
    """Return what is wrong with the files, as far as it shows in a moment: of a tokenizer, only the
    kinds of its parts are looked at, and templates are parsed, but not compiled. Empty if nothing
    is. Raises OSError."""
    # Imported late: most commands need no Jinja.
    from service.checkpoint.template import syntax_problem

    try:
        template = template_file(directory, read_json(directory, TOKENIZER_CONFIG))
        read_json(directory, GENERATION)
        read_json(directory, RESPONSE_TEMPLATE)
        _check_tokenizer(directory)
        read_tokenizer(directory)  # also what files next to it add
    except (CheckpointError, ConfigError) as error:
        return str(error)
    tool_file = _TOOL_TEMPLATE if template.file == _TEMPLATE else template.file
    for file, source in ((template.file, template.source), (tool_file, template.tool_use)):
        if source is not None and len(source) <= _MOST_PARSED and (wrong := syntax_problem(source)):
            return f"{file}: {wrong}"
    return ""


def _declared(file: str, declared: Any) -> TemplateFile:
    """``declared``: a template, or named ones: an object, or a list of such with two fields."""
    if isinstance(declared, list):
        for entry in declared:
            if not isinstance(entry, dict) or not isinstance(entry.get("name"), str):
                raise CheckpointError(file, "an entry of chat_template has no name")
        declared = {entry["name"]: entry.get("template") for entry in declared}
    if not isinstance(declared, dict):
        return TemplateFile(file, _text(declared))
    named: dict[str, Any] = declared
    first = next(iter(named.values()), None)
    return TemplateFile(file, _text(named.get("default", first)), _text(named.get("tool_use")))


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


class _TokenizerParts(msgspec.Struct):
    """All of the file is checked, and little kept: the tokenizers of large models have 30 MB."""

    model: msgspec.Raw = msgspec.Raw(b"null")
    decoder: Any = None


class _TokenizerModel(msgspec.Struct):
    type: str | None = None  # files of early releases have none


def _check_tokenizer(directory: Path) -> None:
    try:
        parts = msgspec.json.decode((directory / TOKENIZER).read_bytes(), type=_TokenizerParts)
    except msgspec.ValidationError:
        raise CheckpointError(TOKENIZER, "it does not hold a JSON object") from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise CheckpointError(TOKENIZER, f"it is not valid JSON: {error}") from None
    try:
        kind = msgspec.json.decode(parts.model, type=_TokenizerModel).type
        decoder_steps(parts.decoder)
    except msgspec.ValidationError as error:
        raise CheckpointError(TOKENIZER, f"its model cannot be read: {error}") from None
    except UnsupportedTokenizerError as error:
        raise CheckpointError(TOKENIZER, error) from None
    except (KeyError, TypeError, RecursionError):
        raise CheckpointError(TOKENIZER, "its decoder is not in any known form") from None
    if kind is not None and kind not in _TOKENIZER_MODELS:
        known = ", ".join(_TOKENIZER_MODELS)
        raise CheckpointError(TOKENIZER, f"the type of its model is {kind!r}, not one of {known}")
