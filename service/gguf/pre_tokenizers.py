"""How the vocabularies of GGUF files split text before they merge: by the name that the file gives
(``tokenizer.ggml.pre``), the pattern of the family's own ``tokenizer.json``."""

from __future__ import annotations

from typing import NamedTuple

_CONTRACTIONS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_REST = r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_UPPER, _LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_START = r"[^\r\n\p{L}\p{N}]?"
_CASED = (f"{_START}{_UPPER}*{_LOWER}+", f"{_START}{_UPPER}+{_LOWER}*")

_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_LLAMA3 = rf"{_CONTRACTIONS}|{_START}\p{{L}}+|\p{{N}}{{1,3}}|{_REST}"
_QWEN2 = rf"{_CONTRACTIONS}|{_START}\p{{L}}+|\p{{N}}|{_REST}"
_QWEN35 = (
    rf"{_CONTRACTIONS}|{_START}[\p{{L}}\p{{M}}]+|\p{{N}}"
    r"| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_SLASHES = r" ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_TEKKEN = rf"{_CASED[0]}|{_CASED[1]}|\p{{N}}|{_SLASHES}"
_GPT4O = rf"{_CASED[0]}{_CONTRACTIONS}?|{_CASED[1]}{_CONTRACTIONS}?|\p{{N}}{{1,3}}|{_SLASHES}"
_SEED = (
    rf"{_CONTRACTIONS}|{_START}\p{{L}}+|\p{{N}}| ?[^\s\p{{L}}\p{{N}}\r\n]+|\s*[\r\n]+|\s+(?!\S)|\s+"
)
# Numbers, then Chinese and Japanese, then the rest.
_DEEPSEEK3 = (
    r"\p{N}{1,3}",
    r"[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+",
    r"[!-/:-@\[-`{-~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+",
)


class PreTokenizer(NamedTuple):
    """``patterns``: each splits the pieces left by the one before. ``digits``: digits are split off
    first, one by one.
    ``ignore_merges``: a piece that is a token is not merged from smaller ones. ``adds_bos``: if the
    file does not say."""

    patterns: tuple[str, ...]
    digits: bool = False
    ignore_merges: bool = False
    adds_bos: bool = False


_LLAMA3_LIKE = PreTokenizer((_LLAMA3,), ignore_merges=True, adds_bos=True)
_DIGITS_APART = PreTokenizer((_GPT2,), digits=True)

_PLAIN = PreTokenizer((_GPT2,))
_LLAMA3_ONLY = PreTokenizer((_LLAMA3,))
_QWEN2_LIKE = PreTokenizer((_QWEN2,))
_GPT4O_LIKE = PreTokenizer((_GPT4O,))

PRE_TOKENIZERS = {
    **dict.fromkeys(("gpt-2", "olmo", "granite-docling", "exaone4"), _PLAIN),
    **dict.fromkeys(
        ("llama-bpe", "llama3", "llama-v3", "falcon3", "falcon-h1", "pixtral", "midm-2.0", "lfm2"),
        _LLAMA3_LIKE,
    ),
    **dict.fromkeys(("smaug-bpe", "dbrx", "glm4", "chatglm-bpe"), _LLAMA3_ONLY),
    **dict.fromkeys(
        ("qwen2", "deepseek-r1-qwen", "megrez", "kormo", "f2llmv2", "hunyuan"), _QWEN2_LIKE
    ),
    "qwen35": PreTokenizer((_QWEN35,)),
    "tekken": PreTokenizer((_TEKKEN,), ignore_merges=True, adds_bos=True),
    **dict.fromkeys(("gpt-4o", "llama4", "kanana2", "minimax-m2"), _GPT4O_LIKE),
    "seed-coder": PreTokenizer((_SEED,)),
    **dict.fromkeys(("deepseek-v3", "hunyuan-dense"), PreTokenizer(_DEEPSEEK3)),
    **dict.fromkeys(("smollm", "starcoder", "refact", "command-r"), _DIGITS_APART),
}
