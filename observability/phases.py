"""The phases of a request, declared once: label values of a metric, names of spans and fields of
the log line. Imports nothing outside the standard library."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RequestPhase:
    """``help``: when it begins and ends."""

    name: str
    help: str

    @property
    def log_field(self) -> str:
        return f"{self.name}_ms"


RECEIVING = RequestPhase("receive", "from the request's headers to the last byte of its body")
RENDERING = RequestPhase("render", "the chat template renders the prompt's text")
TOKENIZING = RequestPhase("tokenize", "the prompt's text is turned into token ids")
ADMITTING = RequestPhase(
    "admit",
    "from the body's last byte until the engine has the request, except rendering and tokenizing: "
    "decoding, waiting for a preparation process, reading stored responses, trying grammars, "
    "waiting for the next engine",
)
QUEUEING = RequestPhase("queue", "from the engine's receipt of the request to its first scheduling")
PREFILLING = RequestPhase("prefill", "from first scheduling to first token")
DECODING = RequestPhase("decode", "from first to last token")
FLUSHING = RequestPhase("flush", "writes wait for the client to read; may overlap decode")

# In the order in which they begin. All but ``flush`` follow one another.
PHASES = (RECEIVING, RENDERING, TOKENIZING, ADMITTING, QUEUEING, PREFILLING, DECODING, FLUSHING)
