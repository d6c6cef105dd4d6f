"""What the library, the hub or the disk raised, as one sentence that says what to do."""

from __future__ import annotations

import contextlib
import errno
import http
from collections.abc import Iterator

from huggingface_hub import constants
from huggingface_hub.errors import (
    GatedRepoError,
    HfHubHTTPError,
    HFValidationError,
    LocalEntryNotFoundError,
    OfflineModeIsEnabled,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)

from service.hub.errors import HubError, HubUnreachableError
from service.hub.place import ModelPlace
from service.hub.units import in_units

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_READ_ONLY = (errno.EROFS, errno.EACCES, errno.EPERM)
# How the library's HTTP client names what goes wrong below HTTP. By name, because the library has
# changed its client between releases.
_TRANSPORT_ERRORS = frozenset({"TransportError", "StreamError", "XetDownloadError"})
# What its code raises when another server answers, such as the login page of a network.
_OTHER_ANSWERS = frozenset(
    {"JSONDecodeError", "KeyError", "TooManyRedirects", "DecodingError", "FileMetadataError"}
)
# And more, which mean nothing elsewhere: an answer may have anything in place of anything.
_WRONG_ANSWERS = (AttributeError, RecursionError, TypeError, UnicodeDecodeError)
_BUSY = (http.HTTPStatus.REQUEST_TIMEOUT, http.HTTPStatus.TOO_MANY_REQUESTS)


def is_transient(error: BaseException) -> bool:
    """True if the same request may succeed in a moment: the network's or the hub's trouble."""
    for one in _chain(error):
        if isinstance(one, HubError):  # our own verdict, whatever error it was raised during
            return False
        if _is_transient(one):
            return True
    return False


def _is_transient(error: BaseException) -> bool:
    if isinstance(error, HfHubHTTPError):
        status = error.response.status_code
        return status >= http.HTTPStatus.INTERNAL_SERVER_ERROR or status in _BUSY
    return any(kind.__name__ in _TRANSPORT_ERRORS for kind in type(error).__mro__)


def _chain(error: BaseException) -> Iterator[BaseException]:
    """Yield the error and what caused it."""
    next_error: BaseException | None = error
    while next_error is not None:
        yield next_error
        next_error = next_error.__cause__ or next_error.__context__


@contextlib.contextmanager
def reading_answers() -> Iterator[None]:
    """Within, the library reads what a hub answers. Raises HubError where it was something else."""
    try:
        yield
    except _WRONG_ANSWERS as error:
        raise _no_hub() from error


def _no_hub() -> HubError:
    return HubError(
        f"{shown_endpoint()} does not answer as a hub does; check HF_ENDPOINT, and proxies on the "
        "way"
    )


def explained(error: BaseException, place: ModelPlace, *, has_token: bool) -> HubError:
    """Return the sentence for the operator about an error while ``place`` was filled."""
    if isinstance(error, HubError):
        return error
    for one in _chain(error):
        found = _explained(one, place, has_token=has_token)
        if found is not None:
            return found
    return HubError(f"cannot download '{place.name}': {_first_line(error)}")


def _explained(error: BaseException, place: ModelPlace, *, has_token: bool) -> HubError | None:
    name, hub = place.name, shown_endpoint()
    if any(kind.__name__ in _OTHER_ANSWERS for kind in type(error).__mro__):
        return _no_hub()
    match error:
        case HubError():
            return error
        case OfflineModeIsEnabled():
            return HubUnreachableError(
                f"'{place.asked}' is not whole in {place.cache}, and HF_HUB_OFFLINE forbids asking "
                f"the hub; unset it, or run 'quire pull {place.asked}' where there is a network"
            )
        case GatedRepoError():
            then = (
                "the token's account has no access to it yet; request it there"
                if has_token
                else "request access there, then set HF_TOKEN to a token of that account"
            )
            return HubError(f"'{name}' is gated ({hub}/{name}): {then}")
        case RevisionNotFoundError():
            return _no_revision(place)
        case RepositoryNotFoundError():
            seen = "this token may not see it" if has_token else "it needs a token (HF_TOKEN)"
            return HubError(
                f"there is no model '{name}' on {hub}, or {seen}, and no directory of that name "
                "here; check the spelling"
            )
        case HFValidationError():
            return HubError(f"'{name}' is not a model's name: {_first_line(error)}")
        case HfHubHTTPError():
            return _refused(error, place, has_token=has_token)
        case LocalEntryNotFoundError():
            return None  # the library's own summary of what caused it
        case OSError():
            return _disk_problem(error, place)
    if _is_transient(error):
        return HubUnreachableError(
            f"cannot reach {hub} for '{name}' ({_first_line(error)}); check the network, proxies "
            "and HF_ENDPOINT, then start again: what was downloaded is kept"
        )
    return None


def _no_revision(place: ModelPlace) -> HubError:
    if place.pinned is not None:
        return HubError(
            f"'{place.name}' on {shown_endpoint()} no longer has commit {place.pinned}, with which "
            "this download began, so the repository has changed; start again"
        )
    return HubError(
        f"'{place.name}' has no revision '{place.revision}'; give another --revision, such as main"
    )


def _refused(error: HfHubHTTPError, place: ModelPlace, *, has_token: bool) -> HubError:
    status, hub = error.response.status_code, shown_endpoint()
    if _is_transient(error):
        return HubUnreachableError(
            f"{hub} is not available now (HTTP {status}) for '{place.name}'; try again later: what "
            "was downloaded is kept"
        )
    if status == http.HTTPStatus.UNAUTHORIZED and has_token:
        return HubError(
            f"{hub} does not accept the token: it is wrong or expired; correct HF_TOKEN or the "
            f"token's file ({constants.HF_TOKEN_PATH})"
        )
    if status in (http.HTTPStatus.UNAUTHORIZED, http.HTTPStatus.FORBIDDEN):
        return HubError(
            f"{hub} refuses '{place.name}' (HTTP {status}); set HF_TOKEN to a token that may read "
            "it"
        )
    return HubError(f"{hub} answered HTTP {status} for '{place.name}'; check HF_ENDPOINT")


def _disk_problem(error: OSError, place: ModelPlace) -> HubError | None:
    reason = error.strerror or str(error)
    if error.errno in _FULL:
        return HubError(
            f"no space is left for '{place.name}' in {place.cache} ({reason}); free some, or "
            "choose another --download-dir, then start again: whole files are kept"
        )
    if error.errno in _READ_ONLY:
        return HubError(
            f"cannot write to {place.cache} ({reason}); choose another --download-dir, or change "
            "its owner"
        )
    if error.errno is None:  # one of the library's
        return None
    return HubError(f"cannot keep '{place.name}' in {place.cache}: {reason}")


def no_room(place: ModelPlace, needed: int, free: int) -> HubError:
    return HubError(
        f"'{place.name}' needs {in_units(needed)} more in {place.cache}, where {in_units(free)} "
        "are free; free some space, or choose another --download-dir"
    )


def _first_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    if not lines:
        return type(error).__name__
    return lines[0].rstrip(".").replace(constants.ENDPOINT, shown_endpoint())


def shown_endpoint() -> str:
    """Return the hub's URL without a user's name and password."""
    scheme, mark, rest = constants.ENDPOINT.partition("://")
    host, slash, path = rest.partition("/")
    return scheme + mark + host.rpartition("@")[2] + slash + path
