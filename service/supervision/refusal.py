"""Finds out whether transformers' code refuses a model, before its weights are downloaded. A child
does it: the supervisor imports neither torch nor transformers."""

from __future__ import annotations

import os
import subprocess

from engine.config import EngineConfig
from engine.python_command import python_command
from observability import logging
from service.supervision.child_process import child_environment
from service.supervision.download import ending_at_signals, without_token

_log = logging.get_logger()

REFUSAL_MODULE = "engine.run.refusal"
_MOST_SECONDS = 120.0


def why_refused(engine: EngineConfig) -> str:
    """Return why an engine with these settings would refuse the decoder in ``engine.model``;
    empty if it would not as far as the small files there show, or if the child fails or takes
    minutes: the engine will say why. Raises SystemExit at a signal that stops this process."""
    # It takes seconds, or a minute on a slow disk, and nothing else is logged meanwhile.
    _log.info("checking whether transformers can run the model", model=engine.model)
    child = subprocess.Popen(
        python_command(
            *("-m", REFUSAL_MODULE, engine.model, f"--model-impl={engine.model_impl}"),
            f"--parent-pid={os.getpid()}",
        ),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        process_group=0,  # the terminal's Ctrl-C is for this process
        env=child_environment(without_token(os.environ)),
    )
    with child, ending_at_signals(child) as stopped:
        try:
            output, _ = child.communicate(timeout=_MOST_SECONDS)
        except subprocess.TimeoutExpired:
            child.kill()
            return ""
    if stopped:
        raise SystemExit(128 + stopped[0])
    return output.decode(errors="replace") if child.returncode == 0 else ""
