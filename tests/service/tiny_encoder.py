"""An encoder's directory in miniature: a WordPiece tokenizer that reads pairs, random weights
written by transformers itself."""

from __future__ import annotations

import json
from pathlib import Path

from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

from tests.engine.tiny_encoders import MAX_TOKENS, VOCABULARY, save_encoder

_WORDS = (
    *("the", "quick", "brown", "fox", "jump", "##ed", "##s", "over", "lazy", "dog", "is", "not"),
    *("a", "cat", "paris", "berlin", "capital", "of"),
)


def write_tiny_tokenizer(directory: Path) -> None:
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]
    letters = [chr(code) for code in range(ord("a"), ord("z") + 1)]
    digits = [str(digit) for digit in range(10)]
    characters = [each for each in (*letters, *digits) if each not in _WORDS]
    tokens = [*special, *_WORDS, *characters, *(f"##{each}" for each in (*letters, *digits))]
    tokens = list(dict.fromkeys(tokens))
    assert len(tokens) <= VOCABULARY
    vocabulary = {token: index for index, token in enumerate(tokens)}
    tokenizer = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[("[CLS]", 2), ("[SEP]", 3)],
    )
    tokenizer.add_special_tokens(special)
    tokenizer.save(str(directory / "tokenizer.json"))
    (directory / "tokenizer_config.json").write_text(
        json.dumps({"tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": MAX_TOKENS})
    )


def write_tiny_encoder(kind: tuple[type, type, dict[str, object]], directory: Path) -> Path:
    """``kind``: one of tests.engine.tiny_encoders."""
    directory.mkdir(parents=True, exist_ok=True)
    save_encoder(kind, directory, num_labels=1)
    write_tiny_tokenizer(directory)
    return directory
