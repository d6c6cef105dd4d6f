"""A model family's tokenizer for simulated models: text to tokens and back, and the end token."""

from __future__ import annotations

from pathlib import Path

from tokenizers import Tokenizer

from engine.architecture.end_tokens import declared_ends
from engine.architecture.errors import ModelError
from engine.architecture.tokenizer_files import named_end, read_tokenizer


class TextTokens:
    """The tokenizer of a directory in Hugging Face layout. ``eos`` is the token that ends an
    answer, one of ``eos_token_ids``; ``added`` are the tokens that do not result from merging
    (tags, turns). Raises ModelError for a directory without a tokenizer."""

    def __init__(self, directory: Path) -> None:
        path = directory / "tokenizer.json"
        try:
            self._tokenizer = Tokenizer.from_str(read_tokenizer(directory))
        except OSError as error:
            raise ModelError(f"cannot read {path}: {error.strerror}") from error
        except ModelError:
            raise
        except Exception as error:  # the library raises nothing more specific
            raise ModelError(f"{path} is not a tokenizer: {error}") from error
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()
        ids = self._tokenizer.get_vocab(with_added_tokens=True).values()
        self.vocab_size = max(ids, default=-1) + 1
        self.added: dict[int, str] = {
            token_id: token.content
            for token_id, token in self._tokenizer.get_added_tokens_decoder().items()
        }
        ends = [token for token in declared_ends(directory) if token < self.vocab_size]
        # The tokenizer names the one that ends a chat turn; others may end documents.
        if (named := named_end(directory)) is not None:
            ends.insert(0, named)
        self.eos_token_ids = frozenset(ends)
        if not ends:
            raise ModelError(
                f"{directory} names no end-of-sequence token: eos_token in tokenizer_config.json, "
                "or eos_token_id in config.json or generation_config.json"
            )
        self.eos = ends[0]

    def encode(self, text: str) -> list[int]:
        """Encode ``text``; special tokens spelled out in it become themselves, and none is
        added."""
        ids: list[int] = self._tokenizer.encode(text, add_special_tokens=False).ids
        return ids

    def decode(self, token_ids: list[int]) -> str:
        """Decode, spelling out special tokens."""
        text: str = self._tokenizer.decode(token_ids, skip_special_tokens=False)
        return text
