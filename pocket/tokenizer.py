"""The tokenizer: byte-level BPE trained on the generator's own text.

Digits, words, spaces and runs of punctuation never merge with each other, so a word is written
with the same tokens wherever it stands, and `": "` is one token. Pieces are at most six characters
long: spelling is a table from token to letters, and short tokens keep that table small.
"""

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

from pocket import render
from pocket.text.dice import Dice
from pocket.text.mix import SHARES, stream

VOCABULARY: Final = 1280
END: Final = "<|im_end|>"
STOP: Final = (END, "<|endoftext|>")
_CONTROL: Final = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
# Not special in the tokenizer's sense: they must survive `skip_special_tokens`, for a parser reads
# them in the decoded text.
_MARKS: Final = (
    "<think>",
    "</think>",
    "<tool_call>",
    "</tool_call>",
    "<tool_response>",
    "</tool_response>",
    "<tools>",
    "</tools>",
)
_SPLIT: Final = r"\p{L}+|\p{N}|\n+|[^\s\p{L}\p{N}]+(?: [^\s\p{L}\p{N}]+)*|\s"


def _corpus(documents: int) -> Iterator[str]:
    # Copied noise would only spend merges; the byte fallback covers it.
    shares = {task: share for task, share in SHARES.items() if task not in ("coverage", "spelling")}
    source = stream(Dice("tokenizer"), lambda: False, shares)
    for _ in range(documents):
        for piece in render.pieces(next(source)):
            yield piece.text


def train(documents: int = 40_000) -> Tokenizer:
    """Train the tokenizer on that many generated documents (half a minute)."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(_SPLIT), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY - len(_MARKS),
        special_tokens=list(_CONTROL),
        max_token_length=6,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.add_special_tokens([AddedToken(mark, special=True) for mark in _CONTROL])
    corpus = (_without_marks(text) for text in _corpus(documents))
    tokenizer.train_from_iterator(corpus, trainer)
    tokenizer.add_tokens([AddedToken(mark, special=False, normalized=False) for mark in _MARKS])
    assert tokenizer.get_vocab_size() == VOCABULARY, tokenizer.get_vocab_size()
    return tokenizer


def _without_marks(text: str) -> str:
    for mark in (*_CONTROL, *_MARKS):
        text = text.replace(mark, "")
    return text


def copy_pieces(tokenizer: Tokenizer) -> list[str]:
    """Texts of the ordinary tokens that are whole characters, for coverage copying."""
    marks = {*_CONTROL, *_MARKS}
    decoded = (tokenizer.decode([i]) for i in range(tokenizer.get_vocab_size()))
    return [text for text in decoded if text and "\ufffd" not in text and text not in marks]


def main() -> None:
    """Train and write tokenizer.json."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--out", type=Path, required=True, help="file to write")
    train().save(str(parser.parse_args().out))


if __name__ == "__main__":
    main()
