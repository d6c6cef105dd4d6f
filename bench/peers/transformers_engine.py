"""transformers: ``generate`` on a padded batch, or continuous batching (``generate_batch``)."""

from __future__ import annotations

from typing import Any

import torch
import transformers
from transformers import (
    AutoModelForCausalLM,
    ContinuousBatchingConfig,
    GenerationConfig,
    StoppingCriteria,
)

from bench.peers.protocol import Prompts, Stopwatch, Timing, serve


class FirstToken(StoppingCriteria):
    """Never stops generation; notifies the stopwatch of the first token."""

    def __init__(self, watch: Stopwatch) -> None:
        self._watch = watch

    def __call__(self, input_ids: torch.Tensor, scores: Any, **more: Any) -> torch.Tensor:
        self._watch.prefilled()
        return torch.zeros(input_ids.shape[0], dtype=torch.bool)


class Transformers:
    def __init__(self, settings: dict[str, Any]) -> None:
        transformers.logging.set_verbosity_error()
        torch.set_num_threads(settings["threads"])
        self._model = AutoModelForCausalLM.from_pretrained(
            settings["model"], dtype=getattr(torch, settings["dtype"])
        ).eval()

    def generate(self, prompts: Prompts, max_tokens: int) -> Timing:
        inputs = torch.tensor(prompts)
        watch = Stopwatch()
        with torch.inference_mode():
            out = self._model.generate(
                inputs,
                attention_mask=torch.ones_like(inputs),
                max_new_tokens=max_tokens,
                do_sample=False,
                pad_token_id=0,
                eos_token_id=None,
                stopping_criteria=[FirstToken(watch)],
            )
        tokens = int(out.numel()) - inputs.numel()
        return watch.stop(tokens, out[:, inputs.shape[1]].tolist())

    def generate_batch(self, prompts: Prompts, max_tokens: int) -> Timing:
        watch = Stopwatch()
        out = self._model.generate_batch(
            inputs=prompts,
            generation_config=GenerationConfig(
                max_new_tokens=max_tokens, do_sample=False, eos_token_id=-1, pad_token_id=0
            ),
            continuous_batching_config=ContinuousBatchingConfig(
                num_blocks=256, max_batch_tokens=2048
            ),
            progress_bar=False,
        )
        generated = [output.generated_tokens for output in out.values()]
        return watch.stop(sum(map(len, generated)), [tokens[0] for tokens in generated])


def start(settings: dict[str, Any]) -> tuple[str, Any]:
    peer = Transformers(settings)
    run = peer.generate_batch if settings["continuous"] else peer.generate
    return f"transformers {transformers.__version__}", run


if __name__ == "__main__":
    serve(start)
