"""Model directories of GGUF files, and what decoders make of them."""

from __future__ import annotations

import json
from pathlib import Path

import torch
from torch import Tensor

from engine.architecture.config import load_model_config
from engine.attention.layout import Rows
from engine.cpu.library import library
from engine.gguf.config import config_json
from engine.gguf.names import LINK
from engine.gguf.parts import read_gguf_header
from engine.run.loader import DecoderOptions, LoadSettings, load_decoder
from tests.engine.gguf.making import write_gguf
from tests.engine.model.decoding import BLOCK_SIZE, CPU, empty_cache, states_in_pieces
from tests.engine.tiny_models import MAX_POSITIONS


def file_directory(original: Path, folder: Path, kind: str) -> Path:
    """Return the directory, in ``folder``, of the checkpoint ``original`` as a file whose matrices
    are of type ``kind``."""
    return directory_of(write_gguf(original, folder / f"{kind}.gguf", kind, tokenizer=False))


def directory_of(path: Path) -> Path:
    """Return the directory, next to it, of a file without a tokenizer, or of the first of
    several."""
    directory = path.with_suffix("")
    directory.mkdir()
    (directory / "config.json").write_text(json.dumps(config_json(read_gguf_header(path))))
    (directory / LINK).symlink_to(path)
    return directory


def all_logits(directory: Path, tokens: Tensor, *, compiled: bool = False) -> Tensor:
    """Return float32 [tokens, vocabulary], in plain torch or by the compiled path."""
    config = load_model_config(directory)
    settings = LoadSettings(directory, torch.float32, CPU, lambda *_: None)
    options = DecoderOptions(MAX_POSITIONS, library=library() if compiled else None)
    count, blocks = len(tokens), MAX_POSITIONS // BLOCK_SIZE
    with torch.inference_mode():
        decoder = load_decoder(config, settings, options).decoder
        if compiled:
            layout = Rows(torch.arange(blocks)[None], torch.zeros(count, dtype=torch.int64), count)
            cache = empty_cache(config, blocks)
            states = decoder.hidden_states(tokens, torch.arange(count), cache, layout, None)
        else:
            (states,) = states_in_pieces(decoder, config, tokens.tolist(), [count])
        found: Tensor = decoder.logits(states)
    return found
