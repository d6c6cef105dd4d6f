"""How errors are reported over gRPC."""

from __future__ import annotations

from pathlib import Path

import grpc
import pytest

from service import errors
from service.errors import InvalidRequestError, ModelNotFoundError, OverloadedError, QuireError
from service.grpc.status import STATUS_CODES, status_of


def every_error() -> list[type[QuireError]]:
    found, queue = [], [QuireError]
    while queue:
        children = queue.pop().__subclasses__()
        found += children
        queue += children
    return found


@pytest.mark.parametrize("error", every_error(), ids=lambda error: error.__name__)
def test_every_error_has_a_code_of_its_own_choosing(error: type[QuireError]) -> None:
    assert error.kind.status in STATUS_CODES
    code = status_of(error("x")).code
    assert code not in (grpc.StatusCode.OK, grpc.StatusCode.UNKNOWN)


def test_the_page_has_the_status_of_every_error() -> None:
    page = (Path(__file__).parents[3] / "docs" / "grpc.md").read_text()
    rows = {line.split("`")[1] for line in page.splitlines() if line.startswith("| `")}
    assert {status_of(error("x")).code.name for error in every_error()} <= rows


def test_only_what_may_succeed_later_is_unavailable() -> None:
    """Clients retry UNAVAILABLE by themselves."""
    unavailable = {
        e for e in every_error() if status_of(e("x")).code is grpc.StatusCode.UNAVAILABLE
    }
    assert unavailable == {e for e in every_error() if e.kind.status == 503}
    assert errors.LoadingError in unavailable


def test_only_a_smaller_request_helps_against_an_invalid_argument() -> None:
    code = grpc.StatusCode
    assert status_of(errors.RequestOverLimitError("x")).code is code.INVALID_ARGUMENT
    for error in (errors.TokenLimitError, errors.RequestLimitError, errors.QuotaError):
        assert status_of(error("x")).code is code.RESOURCE_EXHAUSTED


def test_code_field_reason_and_wait_are_metadata() -> None:
    found = status_of(ModelNotFoundError("No 'x' here.", param="model"))
    assert found.code is grpc.StatusCode.NOT_FOUND
    assert found.number == 5
    assert found.message == "No 'x' here."
    assert dict(found.trailing) == {
        "x-quire-reason": "refused:not_found",
        "quire-error-code": "model_not_found",
        "quire-error-param": "model",
    }
    busy = dict(status_of(OverloadedError("busy", retry_after=3)).trailing)
    assert busy["retry-after"] == "3"


def test_a_clients_text_is_cut_to_what_metadata_can_hold() -> None:
    found = status_of(InvalidRequestError("ключ 🚀 " * 5000, param="ключ\r\n[0]." * 1000))
    assert len(found.message.encode()) <= 1024
    assert found.message.startswith("ключ 🚀 ")
    param = dict(found.trailing)["quire-error-param"]
    assert param.isascii()
    assert param.isprintable()
    assert len(param) <= 256 * 6
    assert "[0]." in param
