"""The properties of an encoder: its family, sizes and head, read from a Hugging Face directory."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from engine.architecture.config import read_activation, read_dtype
from engine.architecture.errors import ConfigError
from engine.architecture.fields import ConfigFields, read_object
from engine.architecture.names import ENCODERS

_CLASSIFIER = "ForSequenceClassification"
_MAX_SIZE = 1 << 24


@dataclass(frozen=True, slots=True)
class EncoderConfig:
    """Sizes are in elements, lengths in tokens.

    ``first_position``: the row of the position table for the first token. ``num_scores``: outputs
    of a sequence classifier's head, 0 for an encoder without one; ``scores_by_sigmoid``: they are
    mapped to [0, 1] unless a request says otherwise.
    """

    architecture: str
    family: str  # bert, roberta
    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_layers: int
    num_heads: int
    num_positions: int  # rows of the position table
    first_position: int
    num_token_types: int
    norm_eps: float
    activation: str
    num_scores: int
    scores_by_sigmoid: bool
    dtype: str

    @property
    def padding_id(self) -> int | None:
        """The token that takes no position, also within a text: it has the row before the first.
        None if there is none, as in BERT."""
        return self.first_position - 1 if self.first_position else None

    @property
    def max_tokens(self) -> int:
        """The longest text that has a position for each token."""
        return self.num_positions - self.first_position


def is_encoder(directory: str | Path) -> bool:
    """True if config.json names a supported encoder. False if it cannot be read, which
    ``engine.architecture.config`` reports."""
    try:
        names = read_object(Path(directory) / "config.json").strings("architectures")
    except ConfigError:
        return False
    return any(name in ENCODERS for name in names or ())


def load_encoder_config(directory: Path) -> EncoderConfig:
    """Raises ConfigError when a field is unusable or requires something unsupported."""
    fields = read_object(directory / "config.json")
    architecture = next(name for name in fields.strings("architectures") or () if name in ENCODERS)
    family = ENCODERS[architecture]
    if fields.text("position_embedding_type", "absolute") != "absolute":
        raise ConfigError(f"{fields.source}: only absolute position embeddings are supported")
    if fields.flag("is_decoder", False) or fields.flag("add_cross_attention", False):
        raise ConfigError(f"{fields.source}: {architecture} as a decoder is not supported")
    hidden_size = fields.integer("hidden_size", 768, low=1, high=_MAX_SIZE)
    num_heads = fields.integer("num_attention_heads", 12, low=1, high=4096)
    if hidden_size % num_heads:
        raise ConfigError(
            f"{fields.source}: hidden_size {hidden_size} is not a multiple of its {num_heads} heads"
        )
    vocab_size = fields.integer("vocab_size", 30522, low=1, high=_MAX_SIZE)
    num_positions = fields.integer("max_position_embeddings", 512, low=4, high=1 << 24)
    first_position = 0
    if family == "roberta":  # numbers positions starting after the padding token's id
        first_position = 1 + fields.integer("pad_token_id", 1, low=0, high=num_positions - 3)
    num_scores = _num_scores(fields) if architecture.endswith(_CLASSIFIER) else 0
    return EncoderConfig(
        architecture=architecture,
        family=family,
        vocab_size=vocab_size,
        hidden_size=hidden_size,
        intermediate_size=fields.integer("intermediate_size", 3072, low=1, high=_MAX_SIZE),
        num_layers=fields.integer("num_hidden_layers", 12, low=1, high=4096),
        num_heads=num_heads,
        num_positions=num_positions,
        first_position=first_position,
        num_token_types=fields.integer("type_vocab_size", 2, low=1, high=1024),
        norm_eps=fields.number("layer_norm_eps", 1e-12, low=0.0, high=1.0),
        activation=read_activation(fields, "hidden_act", "gelu"),
        num_scores=num_scores,
        scores_by_sigmoid=num_scores > 0 and _scores_by_sigmoid(directory, fields),
        dtype=read_dtype(fields),
    )


def _num_scores(fields: ConfigFields) -> int:
    """A head's outputs are its labels; transformers assumes two if none are named."""
    labels = fields.section("id2label")
    count = fields.integer("num_labels", 2, low=1, high=1 << 16) if labels is None else 0
    count = count or len(labels.values if labels else {})
    if count != 1:
        raise ConfigError(
            f"{fields.source}: a classifier with {count} labels is not supported; one with a "
            "single label scores pairs of texts"
        )
    return count


def _scores_by_sigmoid(directory: Path, fields: ConfigFields) -> bool:
    """True unless the checkpoint names another function, as sentence-transformers writes it: since
    version 6 in a file, before that in a section of config.json (``fields``), and first in a field.
    There too, the newest place comes first."""
    path = directory / "config_sentence_transformers.json"
    places = (
        (read_object(path) if path.is_file() else None, "activation_fn"),
        (fields.section("sentence_transformers"), "activation_fn"),
        (fields, "sbert_ce_default_activation_function"),
    )
    for place, name in places:
        if place is not None and place.has(name):
            kind = place.text(name).rpartition(".")[2]
            if kind not in ("Sigmoid", "Identity"):
                raise ConfigError(
                    f"{place.source}: scores through {kind} are not supported; "
                    "supported: Sigmoid, Identity"
                )
            return kind == "Sigmoid"
    return True
