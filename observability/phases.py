"""The phases of a request, declared once: label values of a metric, names of spans and fields of the
log line. Imports nothing outside the standard library."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Phase:
    """``help``: when it begins and ends. ``of_choices``: each choice of a request goes through it on
    its own."""

    name: str
    help: str
    of_choices: bool = False

    @property
    def log_field(self) -> str:
        return f"{self.name}_ms"


RECEIVE = Phase("receive", "from the request's headers to the last byte of its body")
RENDER = Phase("render", "the chat template makes the prompt's text")
TOKENIZE = Phase("tokenize", "the prompt's text becomes token ids")
ADMIT = Phase(
    "admit",
    "from the body's last byte until the engine has the request, without rendering and tokenizing: "
    "decoding, waiting for a preparation process, reading stored responses, trying grammars, waiting "
    "for the next engine",
)
QUEUE = Phase("queue", "from the engine having the request to its first scheduling", True)
PREFILL = Phase("prefill", "from first scheduling to first token", True)
DECODE = Phase("decode", "from first to last token", True)
FLUSH = Phase("flush", "writes wait for the client to read; may run beside decode")

# In the order in which they begin. All but ``flush`` follow one another.
PHASES = (RECEIVE, RENDER, TOKENIZE, ADMIT, QUEUE, PREFILL, DECODE, FLUSH)
