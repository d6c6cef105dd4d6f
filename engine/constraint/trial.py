"""``python -m engine.constraint.trial``: compiles grammars before they go to an engine.

This is a separate process because llguidance cannot be interrupted: the parent kills it when an
answer takes too long. It reads requests from standard input and answers each on standard output, in
frames of ``engine.messages``; an empty verdict means that it is ready. It ends with its input.
Limits are the engine's, so what passes here compiles there, at about the same cost.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import resource
import sys
from pathlib import Path
from typing import BinaryIO

import msgspec
from llguidance.gbnf_to_lark import gbnf_to_lark

from engine.constraint.grammar import Tokens, allowed_tokens, compile_grammar
from engine.lifetime import end_without_reader, watch_parent
from engine.messages import FRAME_HEADER
from engine.step.grammar_state import GrammarError
from engine.trial_messages import ConvertGrammar, ToTrial, TryGrammar, Verdict
from observability.stacks import write_stacks_on_sigusr1

_MAX_MEMORY_BYTES = 4 << 30
_NICENESS = 5


def answer(request: ToTrial, tokens: Tokens) -> Verdict:
    match request:
        case TryGrammar(constraint):
            try:
                allowed = allowed_tokens(compile_grammar(constraint, tokens), tokens)
            except GrammarError as error:
                return Verdict(error=str(error))
            if not allowed.mask.any() and not allowed.ends:
                return Verdict(error="no text matches the grammar")
            return Verdict()
        case ConvertGrammar(gbnf):
            try:
                return Verdict(grammar=gbnf_to_lark(gbnf))
            except RecursionError:
                return Verdict(error="the grammar is nested too deeply")
            except Exception as error:  # the library raises bare exceptions for bad syntax
                return Verdict(error=str(error) or type(error).__name__)


def serve(tokens: Tokens, source: BinaryIO, sink: BinaryIO) -> None:
    """Answer requests until the input ends."""
    decoder: msgspec.msgpack.Decoder[ToTrial] = msgspec.msgpack.Decoder(ToTrial)
    _send(sink, Verdict())
    while header := source.read(FRAME_HEADER.size):
        (size,) = FRAME_HEADER.unpack(header)
        try:
            verdict = answer(decoder.decode(source.read(size)), tokens)
        except (msgspec.ValidationError, MemoryError) as error:
            verdict = Verdict(error=str(error) or "not enough memory for the grammar")
        _send(sink, verdict)


def _send(sink: BinaryIO, verdict: Verdict) -> None:
    body = msgspec.msgpack.encode(verdict)
    sink.write(FRAME_HEADER.pack(len(body)) + body)
    sink.flush()


def main(argv: list[str]) -> int:
    write_stacks_on_sigusr1()
    parser = argparse.ArgumentParser(prog="python -m engine.constraint.trial", description=__doc__)
    parser.add_argument("--model", required=True, help="the model's directory")
    model = Path(parser.parse_args(argv).model)
    watch_parent(lambda: os._exit(0))
    with contextlib.suppress(OSError, ValueError):
        os.nice(_NICENESS)
        resource.setrlimit(resource.RLIMIT_AS, (_MAX_MEMORY_BYTES, _MAX_MEMORY_BYTES))
    tokens = Tokens(model, vocab_size=None, eos_token_ids=frozenset())
    with end_without_reader():
        serve(tokens, sys.stdin.buffer, sys.stdout.buffer)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
