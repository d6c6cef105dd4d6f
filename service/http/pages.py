"""``/``, ``/docs`` and ``/openapi.json``: what this server is and how to use it."""

from __future__ import annotations

import html
import json
import string
from pathlib import Path
from typing import Any

import msgspec
from litestar import Response

from service.errors import InvalidRequestError
from service.http.call import HttpCall
from service.http.serves import serves

_PAGES = Path(__file__).resolve().parent.parent / "pages"
_HTML = "text/html"


class Landing(msgspec.Struct, frozen=True):
    """The JSON form of ``/``."""

    name: str
    model: str
    status: str
    api: str  # OpenAI clients' base URL
    anthropic: str  # Anthropic clients' base URL
    docs: str
    openapi: str
    models: str
    health: str
    metrics: str | msgspec.UnsetType = msgspec.UNSET  # with keys it is not on this port


def wants_html(accept: str) -> bool:
    """True if a caller prefers HTML over JSON: browsers accept text/html, programs do not."""
    return "text/html" in accept.lower()


def _base_url(request: HttpCall) -> str:
    """Return the URL by which the caller reached us. Raises InvalidRequestError."""
    try:
        return str(request.base_url).rstrip("/")
    except ValueError as error:
        raise InvalidRequestError("The Host header is not valid.") from error


@serves("GET /")
async def landing(request: HttpCall) -> Response[bytes]:
    services = request.services
    base = _base_url(request)
    model, status = services.limits.names[0], services.health()
    needs_key = services.settings.needs_key
    if wants_html(request.headers.get("accept", "")):
        page = _front_page(base, model, status, needs_key=needs_key)
        return Response(content=page.encode(), media_type=_HTML)
    body = Landing(
        name="quire",
        model=model,
        status=status,
        api=f"{base}/v1",
        anthropic=base,
        docs=f"{base}/docs",
        openapi=f"{base}/openapi.json",
        models=f"{base}/v1/models",
        health=f"{base}/health",
        metrics=msgspec.UNSET if needs_key else f"{base}/metrics",
    )
    return Response(content=msgspec.json.encode(body), media_type="application/json")


def _front_page(base: str, model: str, status: str, *, needs_key: bool) -> str:
    page = string.Template((_PAGES / "index.html").read_text(encoding="utf-8"))
    base = html.escape(base)
    if needs_key:
        parts = {
            "key": html.escape('os.environ["QUIRE_API_KEY"]'),
            "key_import": "import os\n\n",
            "key_line": html.escape(' \\\n  -H "Authorization: Bearer $QUIRE_API_KEY"'),
            "metrics_item": "",
            "metrics_line": "",
        }
    else:
        parts = {
            "key": html.escape('"unused"'),  # the vendors' clients do not start without one
            "key_import": "",
            "key_line": "",
            "metrics_item": '  <li><a href="metrics">Metrics</a> for Prometheus</li>\n',
            "metrics_line": f"\ncurl {base}/metrics",
        }
    return page.substitute(
        parts,
        base=base,
        model=html.escape(model),
        status=html.escape(status),
        model_json=html.escape(json.dumps(model)),
    )


@serves("GET /docs", sync_to_thread=False)
def docs() -> Response[bytes]:
    """The page is self-contained: it renders /openapi.json."""
    return Response(content=(_PAGES / "docs.html").read_bytes(), media_type=_HTML)


@serves("GET /openapi.json", sync_to_thread=False)
def openapi(request: HttpCall) -> Response[bytes]:
    document: dict[str, Any] = request.app.state.openapi
    return Response(content=msgspec.json.encode(document), media_type="application/json")
