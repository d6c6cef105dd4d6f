"""What does ``--deterministic`` cost? CPU time of the same work, with it and without, in turn.

python -m bench.deterministic                      # the bundled model
python -m bench.deterministic --model DIR --dtype bfloat16
"""

from __future__ import annotations

import argparse
import random
import statistics
import time
from typing import Any

from bench.report import print_table, write_result
from engine.config import EngineConfig
from engine.loop.core import EngineCore
from engine.messages import Generate, SamplingParams, Submit
from engine.run.assembly import load_model_runner
from engine.run.model_runner import ModelRunner
from pocket import MODEL_DIR

CONNECTION = 1
PROMPT_TOKENS = 400


class Subject:
    """An engine in this process. Its handles never repeat."""

    def __init__(self, config: EngineConfig) -> None:
        runner: ModelRunner = load_model_runner(config, lambda phase, done, total: None)
        self._core = EngineCore(
            runner,
            max_num_seqs=config.sizes().max_num_seqs,
            max_num_batched_tokens=config.sizes().max_num_batched_tokens,
            enable_prefix_caching=False,
        )
        self._core.connect(CONNECTION)
        self._vocab = runner.info.vocab_size
        self._next = 0

    def seconds(self, sequences: int, tokens: int) -> tuple[float, float]:
        """Return CPU seconds of prefill and of decode."""
        chance = random.Random(sequences)
        params = SamplingParams(max_tokens=tokens, temperature=0.0, ignore_eos=True)
        for _ in range(sequences):
            self._next += 1
            prompt = chance.choices(range(self._vocab), k=PROMPT_TOKENS)
            self._core.add(
                CONNECTION,
                Submit(
                    handle=self._next,
                    request_id=str(self._next),
                    prompt_token_ids=prompt,
                    task=Generate(params),
                    arrival_time=0.0,
                ),
            )
        begun, started = time.process_time(), 0
        while started < sequences:
            started += len(self._core.step()[CONNECTION].handles) // 8
        filled = time.process_time()
        while self._core.has_work:
            self._core.step()
        return filled - begun, time.process_time() - filled


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--model", default=str(MODEL_DIR))
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--tokens", type=int, default=100)
    parser.add_argument("--runs", type=int, default=7)
    options = parser.parse_args()
    subjects = {
        deterministic: Subject(
            EngineConfig(
                model=options.model,
                dtype=options.dtype,
                threads=options.threads,
                max_num_batched_tokens=8192,
                deterministic=deterministic,
            )
        )
        for deterministic in (False, True)
    }
    rows: list[dict[str, Any]] = []
    for sequences in (1, 16):
        found: dict[bool, list[tuple[float, float]]] = {False: [], True: []}
        for _ in range(options.runs):
            for deterministic, subject in subjects.items():
                found[deterministic].append(subject.seconds(sequences, options.tokens))
        plain, kept = (
            [statistics.median(column) for column in zip(*found[each], strict=True)]
            for each in (False, True)
        )
        rows.append(
            {
                "sequences": sequences,
                "prefill ratio": kept[0] / plain[0],
                "decode ratio": kept[1] / plain[1],
            }
        )
    print_table(rows)
    figures = {"model": options.model.rsplit("/", 1)[-1], "dtype": options.dtype}
    print(write_result("deterministic", rows, **figures))


if __name__ == "__main__":
    main()
