"""The picture of the errors is true, and every outcome is one that is counted."""

from __future__ import annotations

import json
import re

from observability.outcomes import is_outcome
from service import errors
from service.errors import QuireError


def every_error() -> list[type[QuireError]]:
    found, queue = [], [QuireError]
    while queue:
        children = queue.pop().__subclasses__()
        found += children
        queue += children
    return found


def test_the_picture_at_the_top_names_every_error_with_its_status_and_outcome() -> None:
    drawn = {
        name: (int(status), outcome)
        for name, status, outcome in re.findall(r"── (\w+) +(\d+) +(\S+)", errors.__doc__ or "")
    }
    assert drawn == {e.__name__: (e.kind.status, e.kind.outcome) for e in every_error()}


def test_every_outcome_is_in_the_catalogue() -> None:
    assert all(is_outcome(error.kind.outcome) for error in every_error())


def test_a_body_has_openais_four_fields() -> None:
    body = json.loads(errors.ModelNotFoundError("No 'x' here.", param="model").to_body())
    assert body == {
        "error": {
            "message": "No 'x' here.",
            "type": "invalid_request_error",
            "param": "model",
            "code": "model_not_found",
        }
    }


def test_retry_after_is_sent_only_if_the_wait_is_known() -> None:
    assert "retry-after" not in errors.OverloadedError("busy").headers()
    assert errors.OverloadedError("busy", retry_after=3).headers()["retry-after"] == "3"


def test_clients_are_asked_to_repeat_only_what_may_succeed() -> None:
    final = {400, 401, 402, 403, 404, 405, 413, 415, 422, 426}
    for kind in every_error():
        error = kind("No.")
        says_no = error.headers().get("x-should-retry") == "false"
        assert says_no == (error.status in final or isinstance(error, errors.OperatorCancelError))


def test_no_client_repeats_what_waiting_for_seconds_cannot_cure() -> None:
    """opencode repeats a 429, and any error with these words in its code, whatever other headers
    say."""
    for kind in (errors.RequestOverLimitError, errors.QuotaError):
        assert kind.kind.status < 429
        assert "rate_limit" not in f"{kind.kind.code} {kind.kind.type}"


def test_a_copy_to_raise_is_the_same_error_without_its_traceback() -> None:
    for kind in every_error():
        error = kind("No.", param="n", retry_after=3)
        try:
            raise error
        except QuireError:
            copied = error.to_raise()
        assert type(copied) is kind
        assert (copied.args, vars(copied)) == (error.args, vars(error))
        assert copied.__traceback__ is None
