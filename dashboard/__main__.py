"""``python -m dashboard``: starts the page under Streamlit, with settings fit for a server."""

from __future__ import annotations

import argparse
import contextlib
import os
import socket
import sys
from collections.abc import Mapping
from pathlib import Path

from dashboard.oidc import lifetime
from dashboard.prices import prices
from dashboard.settings import DEFAULT_URL, SERVERS_VARIABLE, named_url, watched
from dashboard.trace_link import trace_url

_EVERY_ADDRESS = "::"
_EVERY_IPV4_ADDRESS = "0.0.0.0"  # noqa: S104  only where every address is meant
_MOST_PORT = 65_535


def command(host: str, port: int) -> list[str]:
    """Return the Streamlit command line. Its theme is in .streamlit/config.toml next to app.py."""
    flags = {
        # By itself it listens on all, of IPv4 alone where there is no IPv6.
        **({} if host == _EVERY_ADDRESS else {"server.address": host}),
        "server.port": str(port),
        "server.headless": "true",
        "server.fileWatcherType": "none",
        "server.runOnSave": "false",
        "browser.gatherUsageStats": "false",
        "client.toolbarMode": "minimal",
        "client.showErrorDetails": "none",
    }
    app = Path(__file__).with_name("asgi.py")
    options = [part for name, value in flags.items() for part in (f"--{name}", value)]
    return [sys.executable, "-P", "-m", "streamlit", "run", str(app), *options]


def _url(text: str) -> str:
    try:
        return named_url(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _port(text: str) -> int:
    with contextlib.suppress(ValueError):
        if 0 <= int(text) <= _MOST_PORT:
            return int(text)
    raise argparse.ArgumentTypeError(f"a port is 0 to {_MOST_PORT}, not {text!r}")


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="quire dashboard", description="A live view of running servers, and a playground."
    )
    parser.add_argument(
        "--url",
        "--base-url",
        action="append",
        type=_url,
        metavar="URL",
        help="a server to watch, or with dns+ in front all servers at the addresses of its host "
        f"name; may be repeated (default: ${SERVERS_VARIABLE} or {DEFAULT_URL})",
    )
    parser.add_argument(
        "--host",
        default="127.0.0.1",
        help="address to listen on (%(default)s); :: means all, of IPv6 and IPv4",
    )
    parser.add_argument("--port", type=_port, default=8501, help="port to listen on (%(default)s)")
    return parser.parse_args(arguments)


def check(environment: Mapping[str, str]) -> None:
    """Exit with a sentence if a variable has a value that no page could use."""
    try:
        watched(environment)
        prices(environment)
        trace_url(environment)
        lifetime(environment)
    except ValueError as error:
        sys.exit(f"quire dashboard: {error}")


def check_address(host: str, port: int) -> None:
    """Exit with a sentence if nothing could listen there; Streamlit would not say why."""
    tried = _EVERY_IPV4_ADDRESS if host == _EVERY_ADDRESS else host
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            tried, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        with socket.socket(family, kind, protocol) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)
    except (OSError, UnicodeError) as error:  # UnicodeError: the host cannot be a name
        reason = (isinstance(error, OSError) and error.strerror) or error
        sys.exit(
            f"quire dashboard: cannot listen on port {port} of {host}: {reason}. Choose another "
            "--port or --host."
        )


def main(arguments: list[str] | None = None) -> None:
    """Becomes Streamlit: this process is replaced, so that signals reach it directly."""
    options = parse(sys.argv[1:] if arguments is None else arguments)
    environment = dict(os.environ)
    if options.url:
        environment[SERVERS_VARIABLE] = " ".join(options.url)
    check(environment)
    check_address(options.host, options.port)
    root = str(Path(__file__).resolve().parent.parent)
    search = [root, *filter(None, [environment.get("PYTHONPATH")])]
    environment["PYTHONPATH"] = os.pathsep.join(search)
    sys.stdout.flush()
    line = command(options.host, options.port)
    os.execve(line[0], line, environment)  # noqa: S606  no shell: our own interpreter


if __name__ == "__main__":
    main()
