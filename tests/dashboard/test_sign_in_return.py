"""Where a sign-in by OIDC leads; test_operating_in_browser.py has it in a browser."""

from __future__ import annotations

from urllib.parse import quote

import pytest
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route
from starlette.testclient import TestClient

from dashboard import sign_in_return
from dashboard.sign_in_return import (
    CALLBACK,
    COOKIE,
    FAILED,
    LOGIN,
    MOST_CHARACTERS,
    ReturnsAfterSignIn,
    page_address,
)

DASHBOARD = "http://dashboard"
PROVIDER = "https://id.example/authorize"
TOO_LONG = f"/requests?key={'a' * MOST_CHARACTERS}"


@pytest.fixture(autouse=True)
def _pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sign_in_return, "PAGES", {"requests": None, "admin": None})


@pytest.fixture
def visitor() -> TestClient:
    """A browser, and a dashboard whose Streamlit leads to the provider and to its start page.
    ``/auth/login?down`` is one whose provider does not answer; it accepts the code "good"."""

    def to_provider(request: Request) -> Response:
        if "down" in request.query_params:
            return Response("Authentication error", 400)
        return RedirectResponse(PROVIDER, 302)

    def to_start(request: Request) -> Response:
        answer = RedirectResponse("/", 302)
        answer.delete_cookie("_streamlit_user")
        if request.query_params.get("code") == "good":
            answer.set_cookie("_streamlit_user", "signed")
        return answer

    app = Starlette(
        routes=[Route(LOGIN, to_provider), Route(CALLBACK, to_start), Route("/other", to_start)],
        middleware=[Middleware(ReturnsAfterSignIn)],
    )
    return TestClient(app, base_url=DASHBOARD, follow_redirects=False)


def signs_in_from(visitor: TestClient, address: str, **answer: str) -> str:
    """Return where that leads; ``answer``: the provider's, if not the code that is accepted."""
    away = visitor.get(LOGIN, headers={"referer": f"{DASHBOARD}{address}"})
    assert away.headers["location"] == PROVIDER
    return visitor.get(CALLBACK, params=answer or {"code": "good"}).headers["location"]


@pytest.mark.parametrize(
    "address", ["/admin", "/requests?key=alice&since=hour", "/requests?key=%C3%A9%22%3B%0D%0Ax"]
)
def test_a_visitor_comes_back_to_the_page_that_offered_the_sign_in(
    visitor: TestClient, address: str
) -> None:
    assert signs_in_from(visitor, address) == address


@pytest.mark.parametrize(
    "address",
    [
        "/",
        "/home",
        "/elsewhere",
        "/admin/x",
        pytest.param(f"/requests?key={'a' * MOST_CHARACTERS}", id="too long"),
    ],
)
def test_other_addresses_lead_to_the_start_page(visitor: TestClient, address: str) -> None:
    assert signs_in_from(visitor, address) == "/"


def test_an_address_counts_once(visitor: TestClient) -> None:
    signs_in_from(visitor, "/admin")
    assert visitor.get(CALLBACK, params={"code": "good"}).headers["location"] == "/"
    visitor.get(LOGIN, headers={"referer": f"{DASHBOARD}/admin"})
    assert signs_in_from(visitor, "/") == "/"


def test_the_cookie_is_for_the_way_back_alone(visitor: TestClient) -> None:
    answer = visitor.get(LOGIN, headers={"referer": f"{DASHBOARD}/admin"})
    attributes = answer.headers["set-cookie"].lower().split("; ")
    assert {"httponly", "samesite=lax", "max-age=600", f"path={CALLBACK}"} <= set(attributes)
    assert visitor.get("/other").headers["location"] == "/"


@pytest.mark.parametrize(
    "forged",
    ["https://evil.example/", "//evil.example", "/\\evil.example", "/elsewhere", "http://[", "%FF"],
)
def test_a_forged_cookie_leads_nowhere_else(visitor: TestClient, forged: str) -> None:
    cookie = {"cookie": f"{COOKIE}={quote(forged, safe='')}"}
    answer = visitor.get(CALLBACK, params={"code": "good"}, headers=cookie)
    assert answer.headers["location"] == "/"


def test_nothing_of_another_host_or_a_header_is_in_an_address() -> None:
    assert page_address("https://evil.example/admin?a=1#f") == "/admin?a=1"
    assert (
        page_address("/requests?key=a\r\nset-cookie: b=c") == "/requests?key=aset-cookie%3A+b%3Dc"
    )


@pytest.mark.parametrize("answer", ["code", "error"])
def test_the_page_that_offered_a_sign_in_says_that_it_failed(
    visitor: TestClient, answer: str
) -> None:
    assert signs_in_from(visitor, "/", **{answer: "bad"}) == f"/?{FAILED}=yes"
    assert signs_in_from(visitor, "/admin", **{answer: "bad"}) == f"/admin?{FAILED}=yes"
    failed = signs_in_from(visitor, "/requests?key=alice", **{answer: "bad"})
    assert failed == f"/requests?key=alice&{FAILED}=yes"
    assert signs_in_from(visitor, failed) == "/requests?key=alice"


def test_a_provider_that_does_not_answer_leads_back_to_the_page(visitor: TestClient) -> None:
    answer = visitor.get(f"{LOGIN}?down", headers={"referer": f"{DASHBOARD}/admin"})
    assert (answer.status_code, answer.headers["location"]) == (302, f"/admin?{FAILED}=yes")


def test_someone_who_has_signed_out_has_not_failed(visitor: TestClient) -> None:
    assert visitor.get(CALLBACK).headers["location"] == "/"
