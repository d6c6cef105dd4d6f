"""Creates models by transformers' own classes: never from code in the checkpoint's directory."""

from __future__ import annotations

import re
from copy import deepcopy
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.distributions import Distribution
from transformers import AutoConfig, AutoModelForCausalLM
from transformers.utils import logging as transformers_logging

from engine.architecture.errors import ConfigError, UnsupportedError
from engine.architecture.fields import ConfigFields, read_object
from engine.architecture.quantization import read_quantization
from engine.architecture.text_part import text_fields, text_part
from engine.plugin.corrections import correct
from engine.plugin.inline import implementation

# Parts of a configuration that describe encoders of other inputs.
_MEDIA = re.compile("vision|audio")

# They read values, for which a step would wait for the device.
Distribution.set_default_validate_args(False)
transformers_logging.set_verbosity_error()
transformers_logging.disable_progress_bar()


def read_source(directory: Path) -> Any:
    """Return the configuration as transformers reads it. Raises ConfigError."""
    fields = read_object(directory / "config.json")
    read_quantization(directory)  # refuses what the weights' readers do not know
    try:
        config = AutoConfig.from_pretrained(
            directory, trust_remote_code=False, local_files_only=True
        )
    except Exception as error:
        hint = (
            "; Quire never runs the code that its auto_map names" if fields.has("auto_map") else ""
        )
        raise UnsupportedError(
            f"{fields.source}: transformers cannot read it ({first_line(error)}){hint}"
        ) from error
    if hasattr(config, "quantization_config"):
        del config.quantization_config  # the weights are dequantized, or in our products
    if (found := text_part(fields)) is not None:
        return _text_source(config, text_fields(fields, found[1]))
    if not _is_text_alone(config):
        raise UnsupportedError(
            f"{fields.source}: {config.model_type} is more than a decoder of text, which alone is "
            "supported"
        )
    return config


def _is_text_alone(config: Any) -> bool:
    try:
        text = config.get_text_config()
    except ValueError:  # there are several
        return False
    return text is config and not _MEDIA.search(" ".join(config.sub_configs))


def _text_source(config: Any, fields: ConfigFields) -> Any:
    """Return the part of ``config`` that is the language model. ``fields``: what config.json says
    of it."""
    text = config.get_text_config()
    if hasattr(text, "quantization_config"):
        del text.quantization_config
    text.tie_word_embeddings = fields.flag("tie_word_embeddings", False)
    return text


def new_model(config: Any, device: torch.device, dtype: torch.dtype) -> nn.Module:
    """Return a causal language model that calls our attention. On the device ``meta`` it has no
    weights, elsewhere random ones. Raises UnsupportedError if transformers has none for it."""
    try:
        with device:
            model: nn.Module = AutoModelForCausalLM.from_config(
                # A copy, as models write their choices into it.
                deepcopy(config),
                dtype=dtype,
                attn_implementation=implementation(config),
                trust_remote_code=False,
            )
    except UnsupportedError:
        raise
    except Exception as error:
        raise UnsupportedError(
            f"transformers builds no causal language model for {config.model_type} that attends by "
            f"Quire's KV cache ({first_line(error)})"
        ) from error
    correct(model, config)
    return model.eval()


def named_class(model: Any, config: Any) -> tuple[str, bool]:
    """Return the class that config.json names, and whether it generates: the class of ``model``
    does, that of its body has no output head. Raises ConfigError for any other."""
    found, bare = type(model).__name__, type(model.base_model).__name__
    named = config.architectures or ()
    for name in (found, bare):
        # transformers goes by the model_type; Phi-3.5-MoE's PhiMoEForCausalLM is Phimoe… there.
        if name.casefold() in map(str.casefold, named):
            return name, name == found
    if model.config_class is not type(config):  # EXAONE 3 is computed as a Llama, say
        for name in named:
            if name.endswith("ForCausalLM"):
                return name, True
    raise ConfigError(
        f"config.json's architectures are {', '.join(named) or 'missing'}, where {found} "
        f"generates text for a {config.model_type}, and {bare} makes embeddings"
    )


def model_without_head(config: Any, device: torch.device, dtype: torch.dtype) -> nn.Module:
    """Do the same as ``new_model`` for a checkpoint that has no output head: the embeddings serve
    as the head, so that no parameter is missing; it is never used. ``config`` is changed.
    Raises UnsupportedError if the head has other parameters."""
    config.tie_word_embeddings = True
    model = new_model(config, device, dtype)
    decoder: Any = model
    body = {id(parameter) for parameter in decoder.base_model.parameters()}
    own = [name for name, each in model.named_parameters() if id(each) not in body]
    if own:
        raise UnsupportedError(
            f"a {config.model_type} without an output head is not supported: "
            f"{type(model).__name__} has {', '.join(own[:3])} besides"
        )
    return model


def first_line(error: BaseException) -> str:
    """Return what an error of a library says, shortened to a part of a sentence."""
    lines = str(error).strip().splitlines()
    text = lines[0].strip().rstrip(".") if lines else ""
    text = text if len(text) <= 200 else text[:197] + "..."
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
