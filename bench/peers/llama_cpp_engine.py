"""llama.cpp through llama-cpp-python's C functions, one sequence id per prompt."""

from __future__ import annotations

import ctypes
from typing import Any

import llama_cpp
import numpy as np

from bench.peers.protocol import Prompts, Stopwatch, Timing, serve

MAX_BATCH = 4096  # tokens of one llama_decode call
MICRO_BATCH = 512  # llama.cpp's own default
LENGTH = 512  # tokens reserved for a sequence


# Suppress llama.cpp's log.
_silent = llama_cpp.llama_log_callback(lambda level, text, data: None)


class LlamaCpp:
    def __init__(self, settings: dict[str, Any]) -> None:
        llama_cpp.llama_log_set(_silent, ctypes.c_void_p(0))
        llama_cpp.llama_backend_init()
        self._model = llama_cpp.llama_model_load_from_file(
            settings["model"].encode(), llama_cpp.llama_model_default_params()
        )
        self._threads = settings["threads"]
        vocabulary = llama_cpp.llama_model_get_vocab(self._model)
        self._vocabulary = llama_cpp.llama_vocab_n_tokens(vocabulary)
        self._batch = llama_cpp.llama_batch_init(MAX_BATCH, 0, 1)
        self._contexts: dict[int, Any] = {}

    def run(self, prompts: Prompts, max_tokens: int) -> Timing:
        context = self._context(len(prompts))
        llama_cpp.llama_memory_clear(llama_cpp.llama_get_memory(context), True)
        watch = Stopwatch()
        last: list[int] = []
        rows = self._fill(
            [
                (token, position, number, position == len(prompt) - 1)
                for number, prompt in enumerate(prompts)
                for position, token in enumerate(prompt)
            ]
        )
        last = first = self._decode(context, rows)
        watch.prefilled()
        tokens = len(prompts)
        for step in range(max_tokens - 1):
            rows = self._fill(
                [
                    (token, len(prompt) + step, number, True)
                    for number, (token, prompt) in enumerate(zip(last, prompts, strict=True))
                ]
            )
            last = self._decode(context, rows)
            tokens += len(last)
        return watch.stop(tokens, first)

    def _context(self, sequences: int) -> Any:
        if sequences not in self._contexts:
            params = llama_cpp.llama_context_default_params()
            params.n_ctx = sequences * LENGTH
            params.n_batch, params.n_ubatch = MAX_BATCH, MICRO_BATCH
            params.n_seq_max = sequences
            params.n_threads = params.n_threads_batch = self._threads
            if hasattr(params, "kv_unified"):
                params.kv_unified = False
            self._contexts[sequences] = llama_cpp.llama_init_from_model(self._model, params)
        return self._contexts[sequences]

    def _fill(self, rows: list[tuple[int, int, int, bool]]) -> list[int]:
        """Put (token, position, sequence, needs logits) into the batch. Returns the indices of the
        rows that need logits."""
        batch = self._batch
        batch.n_tokens = len(rows)
        for i, (token, position, sequence, wanted) in enumerate(rows):
            batch.token[i], batch.pos[i], batch.n_seq_id[i] = token, position, 1
            batch.seq_id[i][0], batch.logits[i] = sequence, wanted
        return [i for i, row in enumerate(rows) if row[3]]

    def _decode(self, context: Any, wanted: list[int]) -> list[int]:
        """Return greedy tokens for the rows that need logits."""
        if llama_cpp.llama_decode(context, self._batch) != 0:
            raise RuntimeError("llama_decode failed")
        pointers = (llama_cpp.llama_get_logits_ith(context, row) for row in wanted)
        return [
            int(np.argmax(np.ctypeslib.as_array(pointer, shape=(self._vocabulary,))))
            for pointer in pointers
        ]


def start(settings: dict[str, Any]) -> tuple[str, Any]:
    return f"llama-cpp-python {llama_cpp.__version__}", LlamaCpp(settings).run


if __name__ == "__main__":
    serve(start)
