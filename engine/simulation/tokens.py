"""A model family's tokenizer for simulated models: text to tokens and back, and the end token."""

from __future__ import annotations

from pathlib import Path

from tokenizers import Tokenizer

from engine.architecture.errors import ModelError
from engine.architecture.fields import read_object


class TextTokens:
    """The tokenizer of a directory in Hugging Face layout. ``eos`` is the token that ends an
    answer, one of ``eos_token_ids``; ``added`` are the tokens that do not result from merging
    (tags, turns). Raises ModelError for a directory without a tokenizer."""

    def __init__(self, directory: Path) -> None:
        path = directory / "tokenizer.json"
        try:
            self._tokenizer = Tokenizer.from_str(path.read_text(encoding="utf-8"))
        except OSError as error:
            raise ModelError(f"cannot read {path}: {error.strerror}") from error
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
        named = self._named_end(directory)
        declared = _declared_ends(directory)
        self.eos_token_ids = frozenset(
            token for token in (*declared, *named) if token < self.vocab_size
        )
        if not self.eos_token_ids:
            raise ModelError(
                f"{directory} names no end-of-sequence token: eos_token in tokenizer_config.json, "
                "or eos_token_id in config.json or generation_config.json"
            )
        # The tokenizer names the one that ends a chat turn; others may end documents.
        self.eos = next(iter(named or declared))

    def encode(self, text: str) -> list[int]:
        """Encode ``text``; special tokens spelled out in it become themselves, and none is
        added."""
        ids: list[int] = self._tokenizer.encode(text, add_special_tokens=False).ids
        return ids

    def decode(self, token_ids: list[int]) -> str:
        """Decode, spelling out special tokens."""
        text: str = self._tokenizer.decode(token_ids, skip_special_tokens=False)
        return text

    def _named_end(self, directory: Path) -> tuple[int, ...]:
        path = directory / "tokenizer_config.json"
        if not path.is_file():
            return ()
        token = read_object(path).values.get("eos_token")
        if isinstance(token, dict):
            token = token.get("content")
        token_id = self._tokenizer.token_to_id(token) if isinstance(token, str) else None
        return () if token_id is None else (token_id,)


def _declared_ends(directory: Path) -> tuple[int, ...]:
    ends: tuple[int, ...] = ()
    for name in ("generation_config.json", "config.json"):
        path = directory / name
        if path.is_file():
            ends += read_object(path).token_ids("eos_token_id")
    return ends
