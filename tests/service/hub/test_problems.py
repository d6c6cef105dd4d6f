"""What was raised, as one sentence that says what to do."""

from __future__ import annotations

import errno
import json
from pathlib import Path

import pytest
from huggingface_hub.errors import (
    FileMetadataError,
    HFValidationError,
    LocalEntryNotFoundError,
    OfflineModeIsEnabled,
)

from service.hub.errors import HubError, HubUnreachableError, WrongChecksumError
from service.hub.place import ModelPlace
from service.hub.problems import explained, is_transient, no_room

PLACE = ModelPlace("owner/name", "main", Path("/cache"))


class TransportError(Exception):
    """As the library's HTTP client names its base class."""


class TimedOutError(TransportError):
    pass


class TooManyRedirects(TransportError):  # noqa: N818 - the client's name for it
    pass


def caused(error: Exception, cause: Exception) -> Exception:
    error.__cause__ = cause
    return error


@pytest.mark.parametrize(
    ("error", "kind", "said"),
    [
        (OSError(errno.ENOSPC, "No space left on device"), HubError, "no space is left"),
        (OSError(errno.EDQUOT, "Disk quota exceeded"), HubError, "(Disk quota exceeded)"),
        (OSError(errno.EROFS, "Read-only file system"), HubError, "another --download-dir"),
        (PermissionError(errno.EACCES, "Permission denied"), HubError, "cannot write to /cache"),
        (OSError(errno.EIO, "Input/output error"), HubError, "Input/output error"),
        (TimedOutError("timed out"), HubUnreachableError, "check the network"),
        (OfflineModeIsEnabled("no"), HubUnreachableError, "HF_HUB_OFFLINE forbids"),
        (FileMetadataError("no etag"), HubError, "check HF_ENDPOINT"),
        (HFValidationError("bad\nname."), HubError, "is not a model's name: bad"),
        (
            caused(LocalEntryNotFoundError("long"), TimedOutError("refused")),
            HubUnreachableError,
            "(refused)",
        ),
        (ValueError("first\nsecond"), HubError, "cannot download 'owner/name': first"),
        (LookupError(), HubError, "cannot download 'owner/name': LookupError"),
        (KeyError("id"), HubError, "does not answer as a hub does"),
        (json.JSONDecodeError("no", "<html>", 0), HubError, "does not answer as a hub does"),
        (TooManyRedirects("20"), HubError, "does not answer as a hub does"),
    ],
)
def test_one_sentence(error: Exception, kind: type[HubError], said: str) -> None:
    found = explained(error, PLACE, has_token=False)
    assert type(found) is kind
    assert said in str(found)
    assert "\n" not in str(found)
    assert not str(found).endswith(".")


def test_a_sentence_of_our_own_stays(tmp_path: Path) -> None:
    own = WrongChecksumError("so it is")
    assert explained(own, PLACE, has_token=True) is own


def test_only_trouble_that_may_pass_is_retried() -> None:
    assert is_transient(TimedOutError("x"))
    assert is_transient(caused(LocalEntryNotFoundError("x"), TimedOutError("y")))
    assert not is_transient(OSError(errno.ENOSPC, "full"))
    assert not is_transient(ValueError("x"))
    assert not is_transient(caused(HubError("too much"), TimedOutError("x")))


def test_too_little_room_says_both_numbers() -> None:
    said = str(no_room(PLACE, 16_000_000_000, 1_500_000_000))
    assert "needs 16.0 GB more in /cache, where 1.5 GB are free" in said
