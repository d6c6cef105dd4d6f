"""Computes llama.cpp's logits of given tokens: ``llama_cpp_logits MODEL TOKENS.json OUT.npy``.

TOKENS.json is a list of sequences. OUT is float32 [tokens of all, vocabulary].
"""

from __future__ import annotations

import ctypes
import json
import sys
from pathlib import Path

import llama_cpp
import numpy as np


def logits_of(path: str, sequences: list[list[int]]) -> np.ndarray:
    llama_cpp.llama_backend_init()
    model = llama_cpp.llama_model_load_from_file(
        path.encode(), llama_cpp.llama_model_default_params()
    )
    size = llama_cpp.llama_vocab_n_tokens(llama_cpp.llama_model_get_vocab(model))
    longest = max(map(len, sequences))
    params = llama_cpp.llama_context_default_params()
    params.n_ctx = params.n_batch = params.n_ubatch = longest
    # Keys and values as exact as the weights, so that only products differ from others'.
    params.type_k = params.type_v = llama_cpp.GGML_TYPE_F32
    context = llama_cpp.llama_init_from_model(model, params)
    batch = llama_cpp.llama_batch_init(longest, 0, 1)
    found = []
    for tokens in sequences:
        llama_cpp.llama_memory_clear(llama_cpp.llama_get_memory(context), True)
        batch.n_tokens = len(tokens)
        for i, token in enumerate(tokens):
            batch.token[i], batch.pos[i], batch.n_seq_id[i] = token, i, 1
            batch.seq_id[i][0], batch.logits[i] = 0, True
        if llama_cpp.llama_decode(context, batch) != 0:
            raise SystemExit("llama_decode failed")
        every = llama_cpp.llama_get_logits(context)
        shape = (len(tokens), size)
        found.append(
            np.ctypeslib.as_array(ctypes.cast(every, ctypes.POINTER(ctypes.c_float)), shape).copy()
        )
    return np.concatenate(found)


def main() -> None:
    model, tokens, out = sys.argv[1:]
    np.save(out, logits_of(model, json.loads(Path(tokens).read_text())))


if __name__ == "__main__":
    main()
