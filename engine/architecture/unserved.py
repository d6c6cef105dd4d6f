"""What neither our own code nor a causal language model of transformers computes: known from
config.json alone, so that it is refused before its weights are downloaded."""

from __future__ import annotations

from engine.architecture.errors import UnsupportedError
from engine.architecture.fields import ConfigFields

# Text models of these types are encoders, or have an encoder and a decoder.
OTHER_TYPES = frozenset(
    {
        *("albert", "canine", "convbert", "deberta", "deberta-v2", "distilbert", "esm", "eurobert"),
        *("flaubert", "fnet", "funnel", "gte", "ibert", "jina_embeddings_v3", "layoutlm", "led"),
        *("longformer", "longt5", "luke", "m2m_100", "mobilebert", "modernbert", "mpnet", "mra"),
        *("mt5", "nomic_bert", "nystromformer", "splinter", "squeezebert", "switch_transformers"),
        *("t5", "t5gemma", "umt5", "yoso"),
    }
)
# How names of models end whose head is neither for generation nor absent.
OTHER_HEADS = (
    *("ForMaskedLM", "ForPreTraining", "ForSequenceClassification", "ForTokenClassification"),
    *("ForQuestionAnswering", "ForMultipleChoice", "ForNextSentencePrediction"),
)


def refuse_other_kinds(fields: ConfigFields, why_not: UnsupportedError | None) -> None:
    """Raise UnsupportedError, ``why_not`` if given, for a decoder's config.json (``fields``) that
    describes something else."""
    names = fields.strings("architectures") or []
    has_other_head = bool(names) and all(name.endswith(OTHER_HEADS) for name in names)
    kind = fields.values.get("model_type")
    if has_other_head or (isinstance(kind, str) and kind in OTHER_TYPES):
        raise why_not or UnsupportedError(
            f"{fields.source}: {', '.join(names) or kind} is not supported: transformers' code is "
            "used for decoders only"
        )
