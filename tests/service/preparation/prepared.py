"""Requests of every API, prepared as a worker prepares the quick ones."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

from engine.messages import Ready
from pocket import MODEL_DIR
from service.checkpoint.checkpoint import load_checkpoint
from service.checkpoint.tokenizer import Tokenizer
from service.preparation.jobs import Limits, Noted, Setup
from service.preparation.steps import STEPS, perform
from service.preparation.work import Model, Work
from service.wire.messages.signatures import Signer
from service.wire.responses.seal import ReasoningSeal

LIMITS = Limits(names=("pocket",), max_choices=16)
SETUP = Setup(signing_key="a secret of the test", sealing_key=b"another secret of it")


def engine(**fields: Any) -> Ready:
    return Ready(
        **{
            "model": "pocket",
            "architecture": "Pocket",
            "dtype": "float32",
            "device": "cpu",
            "num_parameters": 1,
            "vocab_size": 1500,
            "max_model_len": 4096,
            "max_num_seqs": 8,
            "max_num_batched_tokens": 64,
            "block_size": 16,
            "num_kv_blocks": 64,
            "kv_cache_bytes": 1,
            "load_seconds": 1.0,
            "embedding_size": 8,
            **fields,
        }
    )


@cache
def model() -> Model:
    """What pocket's requests are prepared with."""
    checkpoint = load_checkpoint(MODEL_DIR)
    return Model(checkpoint, Signer(SETUP.signing_key), ReasoningSeal(SETUP.sealing_key))


def tokenizer() -> Tokenizer:
    return model().checkpoint.tokenizer


def work_of(
    step: str,
    body: Any = b"",
    *,
    loaded: Ready | None = None,
    noted: Noted | None = None,
    limits: Limits = LIMITS,
    **fields: Any,
) -> Work:
    """``body``: bytes, or what is to be JSON. ``fields``: the job's own."""
    job = STEPS[step].job(
        step=step,
        body=body if isinstance(body, bytes) else json.dumps(body).encode(),
        limits=limits,
        engine=loaded or engine(),
        request_id="req_1",
        arrival_time=1.5,
        **fields,
    )
    return Work(job, noted or Noted(), model())


def prepared(step: str, body: Any = b"", **fields: Any) -> Any:
    """What the step makes of it; as ``work_of``."""
    return perform(work_of(step, body, **fields))
