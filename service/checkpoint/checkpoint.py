"""What the service reads from a model directory: tokenizer, chat template, sampling defaults.

Weights and shapes are read by the engine.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from engine.architecture.errors import ConfigError
from engine.architecture.tokenizer_files import (
    SPECIAL_TOKENS,
    TOKENIZER,
    TOKENIZER_CONFIG,
    special_tokens,
)
from pocket import MODEL_DIR
from service.checkpoint.defaults import (
    GENERATION,
    IgnoredDefault,
    SamplingDefaults,
    sampling_defaults,
)
from service.checkpoint.files import (
    RESPONSE_TEMPLATE,
    CheckpointError,
    read_json,
    template_file,
)
from service.checkpoint.probe import ProbedTemplate, probe_stranger, probe_template
from service.checkpoint.template import ChatTemplate, TemplateError
from service.checkpoint.tokenizer import Tokenizer
from service.checkpoint.vocabulary import UnsupportedTokenizerError, Vocabulary
from service.formats import (
    AUTO_NAMES,
    OutputFormat,
    detect_format,
    read_response_template,
)


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """``special_tokens``: those that tokenizer_config.json names (bos_token, …), which clients see;
    ``probed``: what is known of the chat template, also for format detection;
    ``ignored_defaults``: sampling defaults that cannot be used."""

    directory: Path
    tokenizer: Tokenizer
    template: ChatTemplate | None
    defaults: SamplingDefaults
    output_format: OutputFormat
    special_tokens: dict[str, str] = field(default_factory=dict)
    probed: ProbedTemplate = field(default_factory=ProbedTemplate)
    ignored_defaults: list[IgnoredDefault] = field(default_factory=list)

    @property
    def vocabulary(self) -> Vocabulary:
        return self.tokenizer.vocabulary

    @property
    def has_own_template(self) -> bool:
        """True if its chat template is that of Quire's embedded model, and thus trusted."""
        return self.template is not None and _is_own(self.template)


def _is_own(template: ChatTemplate) -> bool:
    return template.sources == (_own_template(),)


@functools.cache
def _own_template() -> str:
    return (MODEL_DIR / "chat_template.jinja").read_text(encoding="utf-8")


def load_checkpoint(
    directory: Path,
    *,
    tool_call_parser: str = "auto",
    reasoning_parser: str = "auto",
    probed: ProbedTemplate | None = None,
) -> Checkpoint:
    """Load a model directory. ``tool_call_parser`` and ``reasoning_parser`` name a shipped format,
    or are ``none``, or ``auto`` for detection. ``probed``: as found by another process; None:
    it is determined here.

    Raises OSError for missing files, CheckpointError for invalid ones, and ValueError for unknown
    names.
    """
    config = read_json(directory, TOKENIZER_CONFIG)
    special = _special_tokens(directory)
    file, source, tool_use = template_file(directory, config)
    defaults, ignored = sampling_defaults(read_json(directory, GENERATION))
    declared = config.get("response_template") or read_json(directory, RESPONSE_TEMPLATE)
    tokenizer = _tokenizer(directory)
    template = None if source is None else ChatTemplate(source, special, tool_use=tool_use)
    if template is None or source is None:
        probed = ProbedTemplate()
    elif probed is None and _is_own(template):
        probed = probe_template(template)
    elif probed is None:
        try:
            probed = probe_stranger(source, special, tool_use=tool_use)
        except TemplateError as error:
            raise CheckpointError(file, error) from error
    if template is not None:
        template.styles, template.efforts = probed.styles, probed.efforts
    return Checkpoint(
        directory=directory,
        tokenizer=tokenizer,
        template=template,
        defaults=defaults,
        output_format=_output_format(
            declared,
            "" if template is None else "\n".join((*template.sources, probed.written)),
            tokenizer.vocabulary,
            tool_call_parser,
            reasoning_parser,
        ),
        special_tokens=_shown(special, tokenizer),
        probed=probed,
        ignored_defaults=ignored,
    )


def _tokenizer(directory: Path) -> Tokenizer:
    try:
        return Tokenizer(directory)
    except OSError:
        raise
    except KeyError as error:
        raise CheckpointError(TOKENIZER, f"it has no {error}") from error
    except (ConfigError, UnsupportedTokenizerError) as error:
        raise CheckpointError(TOKENIZER, error) from error
    except Exception as error:  # the library raises Exception itself
        reason = f"the tokenizers library cannot read it: {error}"
        raise CheckpointError(TOKENIZER, reason) from error


def _output_format(
    declared: Any,
    shown: str,
    vocabulary: Vocabulary,
    calls: str,
    reasoning: str,
) -> OutputFormat:
    """The checkpoint's own declaration takes precedence over what its chat template has
    ``shown``."""
    own = read_response_template(declared)
    if own is not None and calls in AUTO_NAMES and reasoning in AUTO_NAMES:
        return own
    tokens = "\n".join(vocabulary.token_text)
    return detect_format(shown, calls=calls, reasoning=reasoning, tokens=tokens)


def _shown(special: dict[str, str], tokenizer: Tokenizer) -> dict[str, str]:
    """Leave out what is not a token: a field such as ``use_auth_token`` may hold a secret."""
    tokens = tokenizer.vocabulary.token_text
    return {
        name: text
        for name, text in special.items()
        if name in SPECIAL_TOKENS or tokenizer.token_id(text) is not None or text in tokens
    }


def _special_tokens(directory: Path) -> dict[str, str]:
    try:
        return special_tokens(directory)
    except ConfigError as error:
        raise CheckpointError(TOKENIZER_CONFIG, error) from error
