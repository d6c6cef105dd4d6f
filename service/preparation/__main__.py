"""``python -m service.preparation``: prepares requests for an API worker, one at a time.

This is a separate process because a chat template or a tokenizer cannot be interrupted: the parent
kills it when a job takes too long or is no longer needed. It reads jobs from standard input and
answers each on standard output, in frames of ``engine.messages``; it ends with its input. Its
memory beyond the tokenizer's is limited.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import resource
import sys
import traceback
from pathlib import Path
from typing import BinaryIO

import msgspec

from engine.lifetime import end_without_reader, watch_parent
from engine.messages import FRAME_HEADER
from observability.stacks import write_stacks_on_sigusr1
from service.checkpoint.checkpoint import load_checkpoint
from service.errors import InternalError, QuireError
from service.preparation.jobs import AnyJob, Noted, Reply, Setup, Stage, failure, too_much_memory
from service.preparation.sending import packed
from service.preparation.steps import perform
from service.preparation.work import Model, Work
from service.wire.messages.signatures import Signer
from service.wire.responses.seal import ReasoningSeal

MAX_MEMORY_BYTES = 1 << 30
_NICENESS = 5


def answer_jobs(model_of: Model, source: BinaryIO, sink: BinaryIO) -> None:
    """Answer jobs until the input ends."""
    decoder: msgspec.msgpack.Decoder[AnyJob] = msgspec.msgpack.Decoder(AnyJob)

    reached = Stage("")

    def stage(name: str, param: str | None) -> None:
        nonlocal reached
        if (name, param) != (reached.name, reached.param):
            reached = Stage(name, param)
            _send(sink, reached)

    while (frame := _read(source)) is not None:
        noted, reached = Noted(), Stage("")
        reply: Reply
        try:
            job = decoder.decode(frame)
            del frame
            reply = packed(perform(Work(job, noted, model_of, stage)))
            del job
        except QuireError as error:
            reply = failure(error, noted)
        except MemoryError:
            reply = failure(too_much_memory(reached), noted)
            reply = msgspec.structs.replace(reply, is_last=True)
        except Exception as error:
            fault = InternalError("The server had an error while processing the request.")
            trace = "".join(traceback.format_exception(error))
            reply = msgspec.structs.replace(failure(fault, noted), trace=trace)
        _send(sink, reply)


def _read(source: BinaryIO) -> bytes | None:
    header = source.read(FRAME_HEADER.size)
    if len(header) < FRAME_HEADER.size:
        return None
    (size,) = FRAME_HEADER.unpack(header)
    return source.read(size)


def _send(sink: BinaryIO, reply: Reply | None) -> None:
    body = b"" if reply is None else msgspec.msgpack.encode(reply)
    sink.write(FRAME_HEADER.pack(len(body)))
    sink.write(body)
    sink.flush()


def _bound_memory() -> None:
    """Limit how much the process may grow from now on."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
        most = pages * resource.getpagesize() + MAX_MEMORY_BYTES
        resource.setrlimit(resource.RLIMIT_AS, (most, most))


def main(argv: list[str]) -> int:
    write_stacks_on_sigusr1()
    parser = argparse.ArgumentParser(prog="python -m service.preparation", description=__doc__)
    parser.add_argument("--model", required=True, help="the model's directory")
    parser.add_argument("--tool-call-parser", default="auto")
    parser.add_argument("--reasoning-parser", default="auto")
    options = parser.parse_args(argv)
    watch_parent(lambda: os._exit(0))
    # Its threads would compete with the engine for cores.
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    with contextlib.suppress(OSError):
        os.nice(_NICENESS)
    source, sink = sys.stdin.buffer, sys.stdout.buffer
    greeting = _read(source)
    if greeting is None:
        return 0
    setup = msgspec.msgpack.decode(greeting, type=Setup)
    checkpoint = load_checkpoint(
        Path(options.model),
        tool_call_parser=options.tool_call_parser,
        reasoning_parser=options.reasoning_parser,
        probed=setup.probed,
    )
    model = Model(checkpoint, Signer(setup.signing_key), ReasoningSeal(setup.sealing_key))
    _bound_memory()
    with end_without_reader():
        _send(sink, None)
        answer_jobs(model, source, sink)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
