"""``python -m service.hub``: downloads a model for ``quire serve``. With ``--first`` all but the
weights, which a worker needs; without it the rest, showing how far it is on a page of shared
memory."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from engine.beats import Page, Sign
from engine.lifetime import die_with_parent
from engine.options import OptionError, add_arguments, from_namespace
from observability import logging
from observability.stacks import write_stacks_on_sigusr1
from service.hub.place import ModelPlace
from service.hub.pull import first_files, rest


class DownloadOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What the process is to download, and whom it belongs to."""

    name: Annotated[str, Meta(description="Name of the model, OWNER/NAME.")]
    revision: Annotated[str, Meta(description="Branch, tag or commit.")]
    commit: Annotated[str, Meta(description="What the revision is.")] | None = None
    variant: Annotated[str, Meta(description="Which GGUF model, such as Q4_K_M.")] | None = None
    cache: Annotated[str, Meta(description="Directory of the cache.")]
    first: Annotated[bool, Meta(description="Only what a worker needs; print where it is.")] = False
    needs_weights: Annotated[bool, Meta(description="The model has weights.")] = True
    beats: Annotated[str, Meta(description="File to write progress to.")] | None = None
    parent_pid: Annotated[int, Meta(ge=1, description="Process id of the parent.")]
    log_format: Literal["auto", "json", "console"] = "auto"
    log_level: Literal["debug", "info", "warning", "error"] = "info"


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m service.hub", description=__doc__)
    add_arguments(parser, DownloadOptions)
    try:
        options = from_namespace(DownloadOptions, parser.parse_args(argv))
    except OptionError as error:
        parser.error(str(error))
    die_with_parent(options.parent_pid)
    write_stacks_on_sigusr1()
    writer = logging.configure(
        log_format=options.log_format, level=options.log_level, process="download"
    )
    place = ModelPlace(
        options.name, options.revision, Path(options.cache), options.commit, options.variant
    )
    try:
        if options.first:
            return first_files(place, needs_weights=options.needs_weights)
        page = Page(None if options.beats is None else Path(options.beats))

        def report(done: int, total: int) -> None:
            page[Sign.TOTAL] = float(total)
            page[Sign.PROGRESS] = float(done)

        return rest(place, report)
    finally:
        writer.close()


if __name__ == "__main__":
    status = main(sys.argv[1:])
    sys.stdout.flush()
    # Without waiting for transfers that continue in threads after a failure.
    os._exit(status)
