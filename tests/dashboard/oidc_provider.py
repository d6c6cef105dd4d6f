"""An OpenID provider on loopback that signs everybody in, as members of ``groups``, which it says
only if that scope is requested."""

from __future__ import annotations

import json
import secrets
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

from joserfc import jwt
from joserfc.jwk import RSAKey

CLIENT_ID, CLIENT_SECRET = "quire-dashboard", "a secret of this test"


class _Handler(BaseHTTPRequestHandler):
    server: OidcProvider

    def do_GET(self) -> None:
        url = urlsplit(self.path)
        asked = {name: values[0] for name, values in parse_qs(url.query).items()}
        if url.path == "/.well-known/openid-configuration":
            self._answer(self.server.configuration())
        elif url.path == "/jwks":
            self._answer({"keys": [self.server.key.as_dict(private=False)]})
        elif url.path == "/authorize" and asked["client_id"] == CLIENT_ID:
            code = secrets.token_hex(8)
            self.server.nonces[code] = asked.get("nonce", "")
            self.server.scopes[code] = asked["scope"].split()
            back = urlencode({"code": code, "state": asked["state"]})
            self.send_response(302)
            self.send_header("Location", f"{asked['redirect_uri']}?{back}")
            self.end_headers()
        else:
            self.send_error(404)

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"])).decode()
        asked = {name: values[0] for name, values in parse_qs(body).items()}
        nonce = self.server.nonces.pop(asked.get("code", ""), None)
        scope = self.server.scopes.pop(asked.get("code", ""), [])
        if self.path != "/token" or nonce is None:
            self.send_error(400)
            return
        token = {"access_token": "unused", "token_type": "Bearer", "expires_in": 600}
        self._answer({**token, "id_token": self.server.id_token(nonce, scope)})

    def _answer(self, content: Any) -> None:
        body = json.dumps(content).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Says nothing."""


class OidcProvider(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.groups = ["staff"]
        self.audience = CLIENT_ID
        self.nonces: dict[str, str] = {}
        self.scopes: dict[str, list[str]] = {}
        self.key = RSAKey.generate_key(2048, {"kid": "one", "use": "sig", "alg": "RS256"})

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def configuration(self) -> dict[str, Any]:
        return {
            "issuer": self.url,
            "authorization_endpoint": f"{self.url}/authorize",
            "token_endpoint": f"{self.url}/token",
            "jwks_uri": f"{self.url}/jwks",
            "response_types_supported": ["code"],
            "subject_types_supported": ["public"],
            "id_token_signing_alg_values_supported": ["RS256"],
        }

    def id_token(self, nonce: str, scope: list[str]) -> str:
        now = int(time.time())
        claims = {
            **{"iss": self.url, "sub": "ann", "aud": self.audience, "iat": now, "exp": now + 600},
            **{"nonce": nonce, "email": "ann@example.org"},
            **({"groups": self.groups} if "groups" in scope else {}),
        }
        return jwt.encode({"alg": "RS256", "kid": "one"}, claims, self.key)

    def secrets_file(self, dashboard: str, operators: str) -> str:
        """Streamlit's secrets.toml for a dashboard at this URL."""
        values = {
            "redirect_uri": f"{dashboard}/oauth2callback",
            "cookie_secret": secrets.token_hex(16),
            "client_id": CLIENT_ID,
            "client_secret": CLIENT_SECRET,
            "server_metadata_url": f"{self.url}/.well-known/openid-configuration",
            "operators": operators,
        }
        lines = [f'{name} = "{value}"' for name, value in values.items()]
        lines.append('client_kwargs = { scope = "openid email profile groups" }')
        return "\n".join(["[auth]", *lines, ""])


@contextmanager
def oidc_provider() -> Iterator[OidcProvider]:
    provider = OidcProvider()
    thread = threading.Thread(target=provider.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield provider
    finally:
        provider.shutdown()
        thread.join()
        provider.server_close()
