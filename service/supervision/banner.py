"""What ``quire serve`` prints for the person who started it."""

from __future__ import annotations

from engine.addresses import address_text
from service.supervision.listener import ADMIN_PORT_DISTANCE, ServerAddress
from service.version import VERSION


def banner(
    address: ServerAddress,
    *,
    model: str,
    path: str,
    needs_key: bool,
    making_keys: str = "",
    note: str = "",
    grpc_port: int | None = None,
    admin: ServerAddress | None = None,
) -> str:
    """Return the text: where the server listens and what to try, while ``model`` loads from
    ``path``. ``making_keys``: how to make a client's key, a line or more; empty if ``quire keys``
    cannot."""
    url = address.url
    key = " -H 'Authorization: Bearer '$QUIRE_API_KEY" if needs_key else ""
    lines = [
        f"Quire {VERSION} on {url}" + ("" if address.host == address.local_host else " and others"),
        *([note] if note else []),
        "",
        f"  OpenAI base URL  {url}/v1",
        f"  Anthropic's      {url}",
        f"  API docs         {url}/docs",
        # With keys, metrics are not public.
        *([] if needs_key else [f"  metrics          {url}/metrics"]),
        *([f"  admin API        {admin.url}/admin/v1"] if admin else []),
        *(
            [f"  gRPC             {address_text(address.local_host, grpc_port)}"]
            if grpc_port
            else []
        ),
        f"  dashboard        {_admin_variable(address, admin)}quire dashboard --url {url}",
        f"  terminal chat    quire chat --base-url {url}",
        "",
        *(f"  {line}" for line in making_keys.splitlines()),
        f"  curl {url}/v1/models{key}",
        f"  curl -N {url}/v1/chat/completions{key} -H 'Content-Type: application/json' \\",
        f'    -d \'{{"model": "{model}", "stream": true,'
        ' "messages": [{"role": "user", "content": "Hello!"}]}\'',
        "",
        f"loading {model} from {path}",
    ]
    return "\n".join(lines)


def _admin_variable(address: ServerAddress, admin: ServerAddress | None) -> str:
    """Return what the dashboard needs to find an admin API that is not where it is usually."""
    usual = address.local_host, address.port + ADMIN_PORT_DISTANCE
    if admin is None or (admin.local_host, admin.port) == usual:
        return ""
    return f"QUIRE_DASHBOARD_ADMIN_URL={admin.url} "


def ready_line(model: str, seconds: float) -> str:
    return f"ready in {seconds:.1f} s: model {model}"
