"""Which special tokens take the white space around them, in a text, with them.

Published tokenizers say it of each token; the keys of a GGUF file do not.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from engine.gguf.keys import ARCHITECTURE_KEY, TOKENS_KEY, GgufKeys

KIND = "tokenizer.ggml.model"
_NAME = "general.name"
_PHI3_NAME = re.compile(r"(?<![a-z])phi-?3", re.IGNORECASE)  # by which llama.cpp knows it
# Only Phi-4 (14B) has both.
_PHI4_TOKENS = ("<|im_sep|>", "<|dummy_85|>")


class Stripping(NamedTuple):
    """Of the white space to the left and to the right of special tokens, ``unless`` they are one of
    these."""

    left: bool
    right: bool
    unless: frozenset[str] = frozenset()


NONE = Stripping(left=False, right=False)
_PHI3 = Stripping(left=False, right=True, unless=frozenset({"<unk>", "<s>", "<|endoftext|>"}))
_PHI4 = Stripping(left=True, right=True, unless=frozenset({"<think>", "</think>"}))


def stripping_of(keys: GgufKeys) -> Stripping:
    """Phi-4 mini has the architecture of Phi-3, but a byte-level vocabulary of its family."""
    if keys.text(KIND, "") == "llama":
        is_phi3 = keys.text(ARCHITECTURE_KEY, "") == "phi3"
        return _PHI3 if is_phi3 or _PHI3_NAME.search(keys.text(_NAME, "")) else NONE
    tokens = keys.texts(TOKENS_KEY)
    return _PHI4 if all(token in tokens for token in _PHI4_TOKENS) else NONE
