"""``python -m engine``: runs the engine by itself.

With ``--socket PATH`` it listens on that socket. With ``--prompt-token-ids 1,2,3`` it continues one
prompt and prints the output, one JSON object per line, then a summary.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from engine.architecture.errors import ModelError
from engine.beats import Page
from engine.config import DeviceError, EngineConfig, OnProgress, hosts_problem
from engine.faults.page import FaultPage
from engine.loop.core import EngineCore
from engine.loop.process import EngineProcess
from engine.messages import FinishReason, Generate, SamplingParams, Submit
from engine.options import (
    OptionError,
    add_arguments,
    environment_defaults,
    forget_secrets,
    from_namespace,
)
from engine.simulation.spec import SpecError, is_simulated, parse_spec
from engine.step.runner import Runner
from observability.logging import configure
from observability.stacks import write_stacks_on_sigusr1


class ProcessOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What this process does with the model."""

    socket: (
        Annotated[str, Meta(description="Serve on this unix socket (created with mode 0600).")]
        | None
    ) = None
    beats: (
        Annotated[str, Meta(description="File to write heartbeats to (engine.beats).")] | None
    ) = None
    faults: (
        Annotated[str, Meta(description="File with faults to inject (engine.faults).")] | None
    ) = None
    exit_with_parent: Annotated[
        bool, Meta(description="Stop when the process that started this one ends.")
    ] = True
    parent_pid: Annotated[int, Meta(ge=1, description="Process id of the parent.")] | None = None
    log_format: Annotated[
        Literal["auto", "json", "console"],
        Meta(description="Log format; auto: text on a terminal, else JSON."),
    ] = "auto"
    log_level: Annotated[
        Literal["debug", "info", "warning", "error"],
        Meta(description="Lowest severity that is logged."),
    ] = "info"
    prompt_token_ids: (
        Annotated[str, Meta(description="Instead of serving, continue this prompt: 1,2,3.")] | None
    ) = None
    max_tokens: Annotated[int, Meta(ge=1, description="Maximum output tokens, with a prompt.")] = 16
    temperature: Annotated[
        float, Meta(ge=0, le=100, description="Sampling temperature, with a prompt; 0: greedy.")
    ] = 0.0
    sampling_seed: Annotated[
        int, Meta(ge=0, le=2**63 - 1, description="Sampling seed, with a prompt.")
    ] = 0
    ignore_eos: Annotated[
        bool, Meta(description="Continue after an end-of-sequence token, with a prompt.")
    ] = False


def load_model(
    config: EngineConfig,
    on_progress: OnProgress,
    ends: ExitStack,
    *,
    rank_arguments: tuple[str, ...] = (),
    on_failure: Callable[[str], None] = lambda reason: None,
    on_gathered: Callable[[], None] = lambda: None,
) -> Runner:
    """Load the model onto its devices, or create a simulated one. Closing ``ends`` frees it.
    ``on_gathered()`` is called when other hosts, if there are any, have joined. For several ranks
    see ``engine.ranks.ranks.Ranks``."""
    # Imported late on purpose: torch takes seconds to import, and the socket must be ready first.
    if is_simulated(config.model):
        from engine.simulation.runner import SimulatedRunner

        return SimulatedRunner(config, on_progress)
    from engine.architecture.encoder_config import is_encoder

    if is_encoder(config.model):
        from engine.run.encoder_runner import EncoderRunner

        return EncoderRunner(config, on_progress)
    if config.tensor_parallel_size > 1:
        from engine.ranks.hosts import Hosts
        from engine.ranks.ranks import Ranks
        from engine.servable import check_settings

        check_settings(config)
        # Started before this process imports torch, so that all processes import it in parallel.
        ranks = Ranks(
            config.tensor_parallel_size,
            arguments=rank_arguments,
            on_failure=on_failure,
            hosts=None if config.tensor_parallel_hosts == 1 else Hosts(config, on_progress),
        )
        ends.enter_context(ranks)
        on_gathered()
        from engine.ranks.runner import parallel_runner

        return ends.enter_context(parallel_runner(config, on_progress, ranks))
    from engine.run.assembly import load_model_runner

    return load_model_runner(config, on_progress)


def continue_prompt(config: EngineConfig, settings: ProcessOptions, ends: ExitStack) -> int:
    """Generate for one prompt, printing to stdout. Returns the exit status: 0, or 1 if the engine
    refused the prompt."""
    assert settings.prompt_token_ids is not None
    prompt = _token_ids(settings.prompt_token_ids)
    runner = load_model(config, _log_progress, ends, rank_arguments=_rank_arguments(settings))
    sizes = config.sizes(runner.info.default_sizes)
    core = EngineCore(
        runner,
        max_num_seqs=sizes.max_num_seqs,
        max_num_batched_tokens=sizes.max_num_batched_tokens,
        enable_prefix_caching=config.enable_prefix_caching,
    )
    connection = 0
    core.connect(connection)
    params = SamplingParams(
        max_tokens=settings.max_tokens,
        temperature=settings.temperature,
        seed=settings.sampling_seed,
        ignore_eos=settings.ignore_eos,
    )
    core.add(
        connection,
        Submit(
            handle=0,
            request_id="prompt",
            prompt_token_ids=prompt,
            task=Generate(params),
            arrival_time=time.monotonic(),
        ),
    )
    while True:
        outputs = core.step()[connection]
        for token_id in memoryview(outputs.token_ids).cast("i"):
            print(json.dumps({"token_id": token_id}), flush=True)
        for finished in outputs.finished:
            print(json.dumps(msgspec.to_builtins(finished)), flush=True)
            return 1 if finished.reason is FinishReason.ERROR else 0


def _token_ids(text: str) -> list[int]:
    """Raises OptionError."""
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise OptionError(
            "--prompt-token-ids: must be whole numbers separated by commas, such as 1,2,3"
        ) from None


def _log_progress(phase: str, done: int, total: int) -> None:
    logging.getLogger("engine").info("loading %s: %d of %d", phase, done, total)


def _parse(argv: list[str]) -> tuple[EngineConfig, ProcessOptions]:
    parser = argparse.ArgumentParser(
        prog="python -m engine",
        # The list of all flags would bury the error below it.
        usage="python -m engine --model MODEL (--socket PATH | --prompt-token-ids 1,2,3) "
        "[--FLAG VALUE ...]  (all flags: python -m engine --help)",
        description=__doc__,
    )
    add_arguments(parser, ProcessOptions, "process")
    add_arguments(parser, EngineConfig)
    try:
        for struct_type in (ProcessOptions, EngineConfig):
            parser.set_defaults(**environment_defaults(struct_type, os.environ))
        namespace = parser.parse_args(argv)
        config = from_namespace(EngineConfig, namespace)
        settings = from_namespace(ProcessOptions, namespace)
        if settings.prompt_token_ids is not None:
            _token_ids(settings.prompt_token_ids)
        if is_simulated(config.model):
            parse_spec(config.model)
    except (OptionError, SpecError) as error:
        parser.error(str(error))
    if problem := hosts_problem(config):
        parser.error(problem)
    forget_secrets(EngineConfig, os.environ)
    if (settings.socket is None) == (settings.prompt_token_ids is None):
        parser.error("give either --socket or --prompt-token-ids")
    return config, settings


def main(argv: list[str]) -> int:
    write_stacks_on_sigusr1()
    config, settings = _parse(argv)
    writer = configure(log_format=settings.log_format, level=settings.log_level, process="engine")
    with ExitStack() as ends:
        if settings.socket is None:
            try:
                return continue_prompt(config, settings, ends)
            except (ModelError, DeviceError) as error:  # the message is sufficient
                writer.close()  # so that what was logged comes first
                print(f"python -m engine: error: {error}", file=sys.stderr)
                return 1

        def load(config: EngineConfig, on_progress: OnProgress) -> Runner:
            arguments = _rank_arguments(settings)
            runner = load_model(
                config,
                on_progress,
                ends,
                rank_arguments=arguments,
                on_failure=process.fail,
                on_gathered=process.begin_to_load,
            )
            if settings.faults is None:
                return runner
            from engine.injection.runner import with_faults

            return with_faults(runner, FaultPage(Path(settings.faults)))

        beats = None if settings.beats is None else Page(Path(settings.beats))
        process = EngineProcess(config, Path(settings.socket), load, beats)
        return process.run(exit_with_parent=settings.exit_with_parent, parent=settings.parent_pid)


def _rank_arguments(settings: ProcessOptions) -> tuple[str, ...]:
    return f"--log-format={settings.log_format}", f"--log-level={settings.log_level}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
