"""Compiles grammars with llguidance, with limits that turn excessive ones into errors.

llguidance runs a grammar with an Earley parser over a lexer of regex derivatives, both of which
grow with the output. Its limits keep a hostile grammar from consuming time and memory; they are set
well below its defaults:

- items in a row of the parser: at most ``Constraint.row_items``. The time for one byte grows with
  its square, while holding the interpreter's lock: with 300 items about 1 ms, with llguidance's own
  2,000 more than 0.1 s;
- states of the lexer: 20,000 of 1 to 2 kB each;
- symbols of the grammar, and fuel for building regexes and for one mask.

This module can be imported without llguidance; an error is raised when it is needed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from engine.architecture.tokenizer_files import read_tokenizer
from engine.constraint.explained import plain_error
from engine.messages import Constraint
from engine.step.grammar_state import GrammarError
from engine.step.mask import Allowed, TokenMask

try:
    import llguidance
except ImportError:  # not needed without constraints
    llguidance = None  # type: ignore[assignment]  # the module, or nothing

if TYPE_CHECKING:
    from llguidance import LLMatcher, LLTokenizer

_MAX_GRAMMAR_SYMBOLS = 100_000
_MAX_LEXER_STATES = 20_000
_STEP_LEXER_FUEL = 100_000  # about 7 ms
_STEP_MAX_ITEMS = 50_000

# Bytes that a grammar fully determines are tokenized by the tokenizer. Text that looks like a
# special token would become that token, which the grammar then rejects.
_HEADER = "%llguidance {}"
_HEADER_WITHOUT_FORCING = '%llguidance {"no_forcing": true}'
_TELLING_CHARS = 4  # prefix of a special token's text; some models have thousands of them

_LISTING = re.compile(r"\n *\d+ \| ")
_MAX_ERROR_CHARS = 400


class Tokens:
    """The model's vocabulary as grammars see it: the bytes of each token.

    Reading a large ``tokenizer.json`` holds the interpreter's lock for up to a second, so it is
    done while the engine loads.
    """

    def __init__(
        self, directory: Path, *, vocab_size: int | None, eos_token_ids: frozenset[int]
    ) -> None:
        """``vocab_size`` is the number of logits (None: the number of tokens). Raises GrammarError,
        OSError or ValueError when the vocabulary cannot be read."""
        if llguidance is None:
            raise GrammarError("llguidance is not installed")
        text = read_tokenizer(directory)
        # Those beyond the logits are never sampled, and the library refuses them.
        eos = [one for one in sorted(eos_token_ids) if vocab_size is None or one < vocab_size]
        try:
            self.library: LLTokenizer = llguidance.LLTokenizer(
                text, n_vocab=vocab_size, eos_token=eos or None
            )
        except ValueError:  # the tokenizer has more tokens than the model has logits
            self.library = llguidance.LLTokenizer(text, eos_token=eos or None)
        self._special_beginnings = frozenset(_special_beginnings(text))
        self.num_words = -(-self.library.vocab_size // 32)
        # A model without an end-of-sequence token gets the tokenizer's, which ends no sequence.
        self.eos_token_ids = frozenset(self.library.eos_tokens)
        self.stop_token_ids = eos_token_ids

    def may_read_like_special(self, grammar: str) -> bool:
        """True if a grammar's text may spell out a special token."""
        plain = grammar.replace("\\", "")
        return any(beginning in plain for beginning in self._special_beginnings)


def _special_beginnings(tokenizer_json: str) -> Iterator[str]:
    """Yield the beginnings of special tokens' texts, up to the first character that a grammar may
    escape."""
    for token in json.loads(tokenizer_json).get("added_tokens") or ():
        beginning = re.split(r'["\\]', token["content"][:_TELLING_CHARS])[0]
        if beginning.strip():  # some models have tokens of many spaces or line breaks
            yield beginning


def compile_grammar(constraint: Constraint, tokens: Tokens) -> LLMatcher:
    """Raises GrammarError. Runs outside the interpreter's lock."""
    limits = llguidance.LLParserLimits(
        max_items_in_row=constraint.row_items,
        max_grammar_size=_MAX_GRAMMAR_SYMBOLS,
        max_lexer_states=_MAX_LEXER_STATES,
        step_lexer_fuel=_STEP_LEXER_FUEL,
        step_max_items=_STEP_MAX_ITEMS,
        verbose_errors=False,
    )
    grammar = constraint.grammar
    if grammar.startswith(_HEADER) and tokens.may_read_like_special(grammar):
        grammar = _HEADER_WITHOUT_FORCING + grammar.removeprefix(_HEADER)
    matcher = llguidance.LLMatcher(tokens.library, grammar, log_level=0, limits=limits)
    if matcher.is_error():
        # Only a client's own grammar has lines that the client knows.
        raise GrammarError(explain(matcher, has_place=not constraint.grammar.startswith(_HEADER)))
    return matcher


def allowed_tokens(matcher: LLMatcher, tokens: Tokens) -> Allowed:
    """Raises GrammarError. Runs outside the interpreter's lock."""
    mask: TokenMask = np.zeros(tokens.num_words, dtype=np.uint32)
    matcher.unsafe_compute_mask_ptr(mask.ctypes.data, mask.nbytes)
    if matcher.is_error():
        raise GrammarError(explain(matcher))
    return Allowed(mask, matcher.is_accepting())


def explain(matcher: LLMatcher, *, has_place: bool = False) -> str:
    """Return the matcher's error in one line, without its listing of the grammar's text.
    ``has_place``: with the line in the grammar."""
    text, *_ = _LISTING.split(matcher.get_error(), maxsplit=1)
    text = " ".join(text.removesuffix("<non-verbose/>").split())
    text = plain_error(text, has_place=has_place)[:_MAX_ERROR_CHARS]
    if text == "NoExtensionBias":
        return "no text matches the grammar"
    return text or "the grammar failed"
