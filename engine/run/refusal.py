"""``python -m engine.run.refusal MODEL``: prints why an engine would refuse the model, as far as
its small files show; nothing if they show no reason. Run before the weights are downloaded, in a
separate process, because transformers takes seconds to import and much memory."""

from __future__ import annotations

import argparse
import contextlib
import sys

from engine.architecture.errors import ModelError
from engine.config import EngineConfig
from engine.lifetime import die_with_parent
from engine.run.setup import read_config
from observability.stacks import write_stacks_on_sigusr1


def reason_to_refuse(config: EngineConfig) -> str:
    """Return the reason, or an empty text. ``config.model``: a decoder's directory."""
    try:
        read_config(config, has_files=False)
    except ModelError as error:
        return str(error)
    return ""


def main(argv: list[str]) -> int:
    write_stacks_on_sigusr1()
    parser = argparse.ArgumentParser(prog="python -m engine.run.refusal", description=__doc__)
    parser.add_argument("model", help="its directory")
    parser.add_argument("--model-impl", choices=("auto", "native", "transformers"), default="auto")
    parser.add_argument("--parent-pid", type=int, help="the process with which this one ends")
    options = parser.parse_args(argv)
    if options.parent_pid is not None:
        die_with_parent(options.parent_pid)
    with contextlib.redirect_stdout(sys.stderr):  # a library may print
        reason = reason_to_refuse(EngineConfig(model=options.model, model_impl=options.model_impl))
    print(reason, end="")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
