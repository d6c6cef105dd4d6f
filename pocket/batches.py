"""From the endless stream of documents to padded batches of about equal cost."""

import os
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

import torch
from tokenizers import Tokenizer
from torch import Tensor
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

from pocket import render
from pocket.text.dice import Dice
from pocket.text.mix import SHARES, stream
from pocket.tokenizer import copy_pieces

MAX_TOKENS: Final = 2048
"""Longer documents are dropped."""
_POOL: Final = 960
"""Documents drawn at a time and sorted by length, so that little is padding. Large batches
draw more."""


class Batch(NamedTuple):
    """Tokens (B, T), flat positions (N,) that predict a target, and the targets (N,)."""

    tokens: Tensor
    keep: Tensor
    targets: Tensor
    size: int
    """Real tokens, padding not counted."""


def collate(rows: list[tuple[list[int], list[bool]]]) -> Batch:
    """Pad documents to the right and note which positions have something to learn."""
    length = max(len(ids) for ids, _ in rows)
    tokens = torch.zeros(len(rows), length, dtype=torch.long)
    learn = torch.zeros(len(rows), length, dtype=torch.bool)
    for index, (ids, mask) in enumerate(rows):
        tokens[index, : len(ids)] = torch.tensor(ids)
        learn[index, : len(ids)] = torch.tensor(mask)
    learn[:, 0] = False  # nothing stands before the first token
    targets = learn.flatten().nonzero().squeeze(1)
    return Batch(tokens, targets - 1, tokens.flatten()[targets], sum(len(i) for i, _ in rows))


def batches(
    tokenizer: Tokenizer, dice: Dice, budget: int, warm_up: Callable[[], bool] = lambda: False
) -> Iterator[Batch]:
    """Batches of about `budget` tokens, padding included, in random order of length.

    A batch has at least two documents, so the very longest exceed the budget.
    """
    source = stream(dice, warm_up, SHARES, copy_pieces(tokenizer))
    pool = max(_POOL, budget // 10)  # a few percent of padding, at about 150 tokens a document
    while True:
        rows = render.encode(tokenizer, [next(source) for _ in range(pool)])
        rows = sorted((r for r in rows if len(r[0]) <= MAX_TOKENS), key=lambda r: len(r[0]))
        ready: list[Batch] = []
        group: list[tuple[list[int], list[bool]]] = []
        for row in rows:
            if len(group) > 1 and (len(group) + 1) * len(row[0]) > budget:
                ready.append(collate(group))
                group = []
            group.append(row)
        if len(group) > 1:  # a compiled model would be compiled again for a batch of one
            ready.append(collate(group))
        dice.shuffle(ready)
        yield from ready


class Feed(IterableDataset[Batch]):
    """Batches for a `DataLoader`, each of whose processes draws documents of its own."""

    def __init__(self, tokenizer: str, seed: str, budget: int) -> None:
        self.tokenizer, self.seed, self.budget = tokenizer, seed, budget

    def __iter__(self) -> Iterator[Batch]:
        info = get_worker_info()
        dice = Dice(f"{self.seed}:{info.id if info else 0}")
        return batches(Tokenizer.from_str(self.tokenizer), dice, self.budget)


def fed(
    tokenizer: Tokenizer, seed: str, budget: int, feeders: int, pinned: bool = False
) -> Iterator[Batch]:
    """Batches made by so many processes: for a GPU, which is faster than one of them."""
    # One thread each; otherwise every process's tokenizer would start one for every core.
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    feed = Feed(tokenizer.to_str(), seed, budget)
    return iter(
        DataLoader(feed, batch_size=None, num_workers=feeders, prefetch_factor=8, pin_memory=pinned)
    )
