"""Run the gates over a model directory: `python -m pocket.evaluate [--model-dir DIR]`.

Greedy decoding with transformers in float32 on the shipped bfloat16 weights. Exit status 1 when a
blocking gate falls short.
"""

import argparse
import json
import sys
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch
from tqdm import tqdm  # type: ignore[import-untyped]
from transformers import AutoModelForCausalLM, AutoTokenizer, DynamicCache

from pocket import MODEL_DIR
from pocket.answer import Answer, parse
from pocket.export import MANIFEST, write_manifest
from pocket.gates import MAX_TOKENS, SIZE_LIMIT, Case, gates, table

Answering = Callable[[list[Case]], list[Answer]]
"""Anything that answers cases, in their order: this module's `Local`, or a client of a server."""


class Local:
    """Answers cases with the files of a model directory."""

    def __init__(self, directory: Path, batch: int = 64) -> None:
        self.tokenizer = AutoTokenizer.from_pretrained(directory, padding_side="left")
        self.model: Any = AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float32)
        self.model.requires_grad_(False)
        self.batch = batch
        self.stops = set(self.model.generation_config.eos_token_id)

    def prompt(self, case: Case) -> str:
        """The prompt of a case, as the chat template renders it."""
        return str(
            self.tokenizer.apply_chat_template(
                case.messages,
                tools=[*case.tools] or None,
                tokenize=False,
                add_generation_prompt=True,
                enable_thinking=case.enable_thinking,
            )
        )

    def __call__(self, cases: list[Case]) -> list[Answer]:
        """Answer the cases, in batches of similar length."""
        prompts = [self.prompt(case) for case in cases]
        out = self.generate(prompts)
        return [
            parse(str(self.tokenizer.decode(tokens)), stopped=tokens[-1] in self.stops)
            for tokens in out
        ]

    def generate(self, prompts: list[str]) -> list[list[int]]:
        """Greedy continuations as token ids, the stop token included where there is one."""
        order = sorted(range(len(prompts)), key=lambda i: len(prompts[i]))
        out: dict[int, list[int]] = {}
        for start in tqdm(range(0, len(order), self.batch), unit="batch", mininterval=5):
            part = order[start : start + self.batch]
            out.update(zip(part, self._batch([prompts[i] for i in part]), strict=True))
        return [out[index] for index in range(len(prompts))]

    @torch.inference_mode()
    def _batch(self, prompts: list[str]) -> list[list[int]]:
        """One batch. Rows that are done leave it, so that one endless answer costs only itself."""
        given = self.tokenizer(prompts, return_tensors="pt", padding=True, add_special_tokens=False)
        tokens, mask = given["input_ids"], given["attention_mask"]
        positions = (mask.cumsum(1) - 1).clamp(min=0)
        cache = DynamicCache()
        rows = list(range(len(prompts)))
        out: list[list[int]] = [[] for _ in prompts]
        for _ in range(MAX_TOKENS):
            logits = self.model(
                input_ids=tokens,
                attention_mask=mask,
                position_ids=positions,
                past_key_values=cache,
                logits_to_keep=1,
            ).logits
            chosen = logits[:, -1].argmax(-1).tolist()
            for row, token in zip(rows, chosen, strict=True):
                out[row].append(token)
            stay = [i for i, token in enumerate(chosen) if token not in self.stops]
            if not stay:
                break
            if len(stay) < len(rows):
                kept = torch.tensor(stay)
                cache.batch_select_indices(kept)
                mask, positions = mask[kept], positions[kept]
                rows = [rows[i] for i in stay]
            tokens = torch.tensor([[chosen[i]] for i in stay])
            mask = torch.cat((mask, torch.ones_like(tokens)), dim=1)
            positions = positions[:, -1:] + 1
        return out


def _share(directory: Path, samples: int, only: str, part: int, parts: int) -> list[Answer]:
    """Answers of one process: every `parts`-th case. Cases are drawn anew, judges do not travel."""
    torch.set_num_threads(1)
    cases = [case for gate in gates(samples) if only in gate.name for case in gate.cases]
    return Local(directory)(cases[part::parts])


def spread(directory: Path, samples: int, only: str, processes: int) -> Answering:
    """An answering function that shares its cases out among processes."""

    def answering(cases: list[Case]) -> list[Answer]:
        out: list[Answer] = [Answer()] * len(cases)
        with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
            shares = [
                pool.submit(_share, directory, samples, only, part, processes)
                for part in range(processes)
            ]
            for part, share in enumerate(shares):
                out[part::processes] = share.result()
        return out

    return answering


def judge(
    answering: Answering, samples: int, only: str = "", show: int = 0
) -> list[tuple[str, float, float, int, bool]]:
    """Score every gate whose name contains `only`; print `show` failures of each.

    All cases go to the answering function at once, so that it can order and batch them.
    """
    chosen = [gate for gate in gates(samples) if only in gate.name]
    answers = iter(answering([case for gate in chosen for case in gate.cases]))
    rows = []
    for gate in chosen:
        results = [(case, next(answers)) for case in gate.cases]
        failed = [(case, answer) for case, answer in results if not case.score(answer)]
        for case, answer in failed[:show]:
            print(
                f"[{gate.name}] {case.messages[-1]['content']!r}\n"
                f"   wanted {case.expected!r}\n   got    {answer}"
            )
        score = 1 - len(failed) / len(results)
        rows.append((gate.name, score, gate.must, len(results), gate.blocking))
    return rows


def main() -> int:
    """Print the gate table of a model directory."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--model-dir", type=Path, default=MODEL_DIR)
    parser.add_argument("--samples", type=int, default=300, help="cases per gate")
    parser.add_argument("--only", default="", help="gates whose name contains this")
    parser.add_argument("--show", type=int, default=0, help="failures to print per gate")
    parser.add_argument("--processes", type=int, default=2, help="to share the cases among")
    parser.add_argument("--record", action="store_true", help="scores into the manifest")
    given = parser.parse_args()
    answering = spread(given.model_dir, given.samples, given.only, given.processes)
    rows = judge(answering, given.samples, given.only, given.show)
    size = sum(path.stat().st_size for path in given.model_dir.iterdir())
    print(table(rows))
    print(f"size of the directory: {size} bytes of at most {SIZE_LIMIT}")
    if given.record:
        facts = json.loads((given.model_dir / MANIFEST).read_text())
        found = {
            name: {"score": round(score, 4), "must": must, "cases": cases}
            for name, score, must, cases, _ in rows
        }
        facts["gates"] = (facts["gates"] if given.only else {}) | found
        write_manifest(given.model_dir, facts)
    short = [name for name, score, must, _, blocking in rows if blocking and score < must]
    return 1 if short or size > SIZE_LIMIT else 0


if __name__ == "__main__":
    sys.exit(main())
