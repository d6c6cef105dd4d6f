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

_BAILING = (
    rf"'(?i:[sdmt]|ll|ve|re)|{_START}\p{{L}}+|\p{{N}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*"
    r"|\s*[\r\n]|\s+(?!\S)|\s+"
)
# Kimi: Chinese apart from other letters.
_KIMI_UPPER, _KIMI_LOWER = (rf"[{each}&&[^\p{{Han}}]]" for each in (_UPPER, _LOWER))
_KIMI = (
    r"\p{Han}+"
    rf"|{_START}{_KIMI_UPPER}*{_KIMI_LOWER}+{_CONTRACTIONS}?"
    rf"|{_START}{_KIMI_UPPER}+{_KIMI_LOWER}*{_CONTRACTIONS}?|\p{{N}}{{1,3}}|{_REST}"
)
_ASIAN = r"[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+"
# Most letters with case, as of Unicode 11.
_CASED_LETTERS = (
    "A-Za-z\u00b5\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u01ba\u01bc-\u01bf\u01c4-\u0293"
    "\u0295-\u02af\u0370-\u0373\u0376\u0377\u037b-\u037d\u037f\u0386\u0388-\u038a\u038c"
    "\u038e-\u03a1\u03a3-\u03f5\u03f7-\u0481\u048a-\u052f\u0531-\u0556\u10a0-\u10c5"
    "\u13a0-\u13f5\u13f8-\u13fd\u1c90-\u1cba\u1cbd-\u1cbf\u1d00-\u1d2b\u1d6b-\u1d77"
    "\u1d79-\u1d9a\u1e00-\u1f15\u1f18-\u1f1d\u1f20-\u1f45\u1f48-\u1f4d\u1f50-\u1f57\u1f59"
    "\u1f5b\u1f5d\u1f5f-\u1f7d\u1f80-\u1fb4\u1fb6-\u1fbc\u1fbe\u1fc2-\u1fc4\u1fc6-\u1fcc"
    "\u1fd0-\u1fd3\u1fd6-\u1fdb\u1fe0-\u1fec\u1ff2-\u1ff4\u1ff6-\u1ffc\u2102\u2107"
    "\u210a-\u2113\u2115\u2119-\u211d\u2124\u2126\u2128\u212a-\u212d\u212f-\u2134\u2139"
    "\u213c-\u213f\u2145-\u2149\u214e\u2183\u2184\u2c00-\u2c7b\u2c7e-\u2ce4\u2ceb-\u2cee"
    "\u2cf2\u2cf3\ua640-\ua66d\ua680-\ua69b\ua722-\ua76f\ua771-\ua787\ua78b-\ua78e"
    "\uab70-\uabbf\ufb00-\ufb06\ufb13-\ufb17\uff21-\uff3a\uff41-\uff5a\U00010400-\U0001044f"
    "\U000104b0-\U000104d3\U000104d8-\U000104fb\U00010c80-\U00010cb2\U00010cc0-\U00010cf2"
    "\U000118a0-\U000118df\U0001e900-\U0001e943"
)
_DEEPSEEK_LLM = (
    r"[\r\n]",
    rf"\s?[{_CASED_LETTERS}]+",
    r"\s?[!-/:-~\uff01-\uff0f\uff1a-\uff5e\u2018-\u201f\u3000-\u3002]+",
    r"(?<!\s)\s++$",  # as \s+$, in linear time
    _ASIAN,
    r"\p{N}",
)
_DEEPSEEK_CODER = (r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", _ASIAN, r"\p{N}")


class PreTokenizer(NamedTuple):
    """``patterns``: each splits the pieces left by the one before. ``digits``: digits are split off
    first, one by one.
    ``ignore_merges``: a piece that is a token is not merged from smaller ones. ``adds_bos``: if the
    file does not say. ``nfc``: texts are brought into Unicode's normal form C first."""

    patterns: tuple[str, ...]
    digits: bool = False
    ignore_merges: bool = False
    adds_bos: bool = False
    nfc: bool = False


_LLAMA3_LIKE = PreTokenizer((_LLAMA3,), ignore_merges=True, adds_bos=True)
_DIGITS_APART = PreTokenizer((_GPT2,), digits=True)
_PLAIN = PreTokenizer((_GPT2,))
_LLAMA3_ONLY = PreTokenizer((_LLAMA3,))
_QWEN2_LIKE = PreTokenizer((_QWEN2,))
_GPT4O_LIKE = PreTokenizer((_GPT4O,))

PRE_TOKENIZERS = {
    **dict.fromkeys(("gpt-2", "granite-docling", "exaone4"), _PLAIN),
    "olmo": _PLAIN._replace(nfc=True),
    **dict.fromkeys(
        ("llama-bpe", "llama3", "llama-v3", "falcon3", "falcon-h1", "pixtral", "midm-2.0", "lfm2"),
        _LLAMA3_LIKE,
    ),
    **dict.fromkeys(("smaug-bpe", "dbrx", "glm4", "chatglm-bpe"), _LLAMA3_ONLY),
    **dict.fromkeys(("qwen2", "deepseek-r1-qwen"), _QWEN2_LIKE._replace(nfc=True)),
    **dict.fromkeys(("megrez", "kormo", "f2llmv2", "hunyuan"), _QWEN2_LIKE),
    "qwen35": PreTokenizer((_QWEN35,), nfc=True),
    "tekken": PreTokenizer((_TEKKEN,), ignore_merges=True, adds_bos=True),
    **dict.fromkeys(("gpt-4o", "llama4", "kanana2", "minimax-m2"), _GPT4O_LIKE),
    "seed-coder": PreTokenizer((_SEED,)),
    **dict.fromkeys(("deepseek-v3", "hunyuan-dense"), PreTokenizer(_DEEPSEEK3)),
    **dict.fromkeys(("bailingmoe", "bailingmoe2"), PreTokenizer((_BAILING,))),
    "kimi-k2": PreTokenizer((_KIMI,), ignore_merges=True),
    "deepseek-llm": PreTokenizer(_DEEPSEEK_LLM),
    "deepseek-coder": PreTokenizer(_DEEPSEEK_CODER),
    **dict.fromkeys(("smollm", "starcoder", "refact"), _DIGITS_APART),
    "command-r": _DIGITS_APART._replace(nfc=True),
}

KNOWN_PATTERNS = frozenset(one for each in PRE_TOKENIZERS.values() for one in each.patterns)
