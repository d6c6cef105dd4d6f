"""The messages between the service and the process that compiles grammars to try them
(``engine.constraint.trial``), in frames of ``engine.messages``."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from engine.messages import MAX_GRAMMAR_CHARS, Constraint


class TryGrammar(msgspec.Struct, frozen=True, tag="try_grammar"):
    """Check whether an engine would accept this constraint."""

    constraint: Constraint


class ConvertGrammar(msgspec.Struct, frozen=True, tag="convert_grammar"):
    """Convert a grammar from llama.cpp's GBNF notation to Lark's."""

    gbnf: Annotated[str, Meta(max_length=MAX_GRAMMAR_CHARS)]


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """``error`` None: success; ``grammar`` is then the converted one."""

    error: str | None = None
    grammar: str | None = None


ToTrial = TryGrammar | ConvertGrammar
