"""Reads from sentence-transformers' files how a checkpoint's hidden states are to be pooled.

``modules.json`` names a chain of modules; supported are a transformer, then a pooling, then
optionally a normalisation. Without this file, embeddings are normalised to length 1, as clients of
OpenAI's API expect.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from engine.architecture.errors import ConfigError
from engine.architecture.fields import ConfigFields, read_json_file, read_object
from engine.messages import Embed, Pooling

MODULES = "modules.json"
SETTINGS = "sentence_bert_config.json"
_LONGEST = 1 << 30
_MAX_TOKENIZER_BYTES = 256 << 20

_MODES = {
    "mean": Pooling.MEAN,
    "lasttoken": Pooling.LAST,
    "last": Pooling.LAST,
    "cls": Pooling.CLS,
}
_OLD_FLAGS = {
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_lasttoken": "lasttoken",
    "pooling_mode_cls_token": "cls",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt_len_tokens",
    "pooling_mode_weightedmean_tokens": "weightedmean",
}


@dataclass(frozen=True, slots=True)
class PoolingRules:
    """``normalizes``: embeddings are normalised to length 1 unless a request says otherwise.
    ``max_tokens``: the longest text the checkpoint was made for, None if unspecified."""

    pooling: Pooling
    normalizes: bool = True
    max_tokens: int | None = None
    matryoshka_dimensions: tuple[int, ...] = ()

    def normalizes_for(self, embed: Embed) -> bool:
        """True if this embedding is normalised. A shortened one is, unless the request disables
        it."""
        if embed.activate is not None:
            return embed.activate
        return self.normalizes or embed.dimensions is not None


def pooling_rules(directory: Path, *, asked: str, default: Pooling) -> PoolingRules:
    """``asked``: a pooling that overrides the checkpoint's, or ``auto``.

    Raises ConfigError for files that cannot be read or require something unsupported.
    """
    modules = _modules(directory)
    _refuse_lower_case(directory)
    declared = None if asked != "auto" else _declared_pooling(directory, modules)
    pooling = Pooling(asked) if asked != "auto" else declared or default
    return PoolingRules(
        pooling=pooling,
        normalizes=modules is None or any(kind == "Normalize" for kind, _ in modules),
        max_tokens=_max_tokens(directory, modules),
        matryoshka_dimensions=_matryoshka(directory),
    )


def _modules(directory: Path) -> list[tuple[str, str]] | None:
    """Return kind and folder of each module, in order; None if nothing is declared."""
    path = directory / MODULES
    if not path.is_file():
        return None
    listed = read_json_file(path)
    if not isinstance(listed, list):
        raise ConfigError(f"{path} must hold a JSON list")
    modules = []
    for entry in listed:
        if not isinstance(entry, dict):
            raise ConfigError(f"{path} must hold a list of objects")
        fields = ConfigFields(str(path), entry)
        folder = fields.text("path", "")
        if Path(folder).is_absolute() or ".." in Path(folder).parts:
            raise ConfigError(f"{path} names {folder!r}, outside its directory")
        modules.append((fields.text("type").rpartition(".")[2], folder))
    unserved = [kind for kind, _ in modules if kind not in ("Transformer", "Pooling", "Normalize")]
    if unserved:
        raise ConfigError(
            f"{path} has {', '.join(unserved)}; supported: Transformer, Pooling, Normalize"
        )
    return modules


def _declared_pooling(directory: Path, modules: list[tuple[str, str]] | None) -> Pooling | None:
    folders = [folder for kind, folder in modules or () if kind == "Pooling"]
    if not folders:
        return None
    path = directory / folders[0] / "config.json"
    fields = read_object(path)
    if fields.has("pooling_mode"):
        mode = fields.text("pooling_mode")
    else:
        flagged = [mode for flag, mode in _OLD_FLAGS.items() if fields.flag(flag, False)]
        mode = "+".join(flagged) or "mean"
    if mode not in _MODES:
        raise ConfigError(
            f"{path}: pooling {mode} is not supported; --pooling mean, last or cls overrides it"
        )
    return _MODES[mode]


def _max_tokens(directory: Path, modules: list[tuple[str, str]] | None) -> int | None:
    """Since version 6, sentence-transformers writes the length into its tokenizer's file, where
    transformers writes 1e30 for none."""
    path = directory / SETTINGS
    if path.is_file() and (fields := read_object(path)).has("max_seq_length"):
        return fields.integer("max_seq_length", low=1, high=_LONGEST)
    path = directory / "tokenizer_config.json"
    if modules is None or not path.is_file():
        return None
    length = read_object(path).values.get("model_max_length")
    if not isinstance(length, int | float) or not 1 <= length <= _LONGEST:
        return None
    return int(length)


def _refuse_lower_case(directory: Path) -> None:
    """sentence-transformers converts texts to lower case where the tokenizer does not."""
    path = directory / SETTINGS
    if not path.is_file() or not read_object(path).flag("do_lower_case", False):
        return
    tokenizer = read_object(directory / "tokenizer.json", _MAX_TOKENIZER_BYTES)
    if not _lowers_case(tokenizer.section("normalizer")):
        raise ConfigError(
            f"{path}: do_lower_case is supported only if the normalizer in tokenizer.json converts "
            'to lower case; put {"type": "Lowercase"} first there'
        )


def _lowers_case(normalizer: ConfigFields | None) -> bool:
    if normalizer is None:
        return False
    kind = normalizer.text("type", "")
    if kind == "Sequence":
        parts = normalizer.values.get("normalizers")
        return isinstance(parts, list) and any(
            isinstance(part, dict) and _lowers_case(ConfigFields(normalizer.source, part))
            for part in parts
        )
    return kind == "Lowercase" or (kind == "BertNormalizer" and normalizer.flag("lowercase", True))


def _matryoshka(directory: Path) -> tuple[int, ...]:
    path = directory / "config.json"
    sizes = read_object(path).values.get("matryoshka_dimensions") if path.is_file() else None
    if sizes is None:
        return ()
    if not isinstance(sizes, list) or not all(
        isinstance(size, int) and 0 < size < 1 << 24 for size in sizes
    ):
        raise ConfigError(f"{path}: matryoshka_dimensions must be a list of sizes")
    return tuple(sizes)
