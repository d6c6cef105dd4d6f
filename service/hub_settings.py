"""The settings of a model that is served by its name on a hub."""

from __future__ import annotations

from typing import Annotated

import msgspec

from engine.options import OptionError, setting

_HUB = "Models by name"


class HubSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Which version of the model, and where its files are kept."""

    revision: (
        Annotated[
            str,
            setting(
                _HUB,
                "Branch, tag or commit of a model that is served by its name. Default: main, at "
                "the commit that was downloaded first; 'quire pull' fetches a newer one.",
                pattern=r"^[A-Za-z0-9][\w./-]*\Z",
                max_length=256,
            ),
        ]
        | None
    ) = None
    download_dir: (
        Annotated[
            str,
            setting(
                _HUB,
                "Directory for downloaded models, laid out as Hugging Face's cache. Default: that "
                "cache (HF_HUB_CACHE, else ~/.cache/huggingface/hub).",
                min_length=1,
                max_length=4096,
            ),
        ]
        | None
    ) = None

    def __post_init__(self) -> None:
        """Raise OptionError for a revision that could leave the cache's directory."""
        if self.revision is not None and ".." in self.revision:
            raise OptionError("--revision: a revision cannot contain '..'")
