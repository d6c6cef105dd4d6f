"""What `helm test` runs in a pod: `smoke.py TEST URL SECONDS`. Only Python's own library.

Keys are in files of Secrets. Exit status 1, and one sentence on stderr, if the test fails.
"""

from __future__ import annotations

import json
import sys
import tomllib
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

SECRETS = Path("/etc/quire/secrets")
PROMPT = {"messages": [{"role": "user", "content": "Say hello."}], "max_tokens": 8}


def api_key(folder: Path) -> str:
    """Return the first key that clients may use; empty: none is mounted."""
    for path in folder.glob("keys.*"):
        text = path.read_text()
        if path.suffix == ".txt":
            return first_of(text)
        read = json.loads if path.suffix == ".json" else tomllib.loads
        keys = [entry["key"] for entry in read(text)["keys"] if "key" in entry]
        if not keys:
            raise ValueError(
                "no entry of the keys file has its key: name one in tests.existingSecret"
            )
        return str(keys[0])
    return ""


def admin_key(folder: Path) -> str:
    path = folder / "admin"
    return first_of(path.read_text()) if path.exists() else ""


def first_of(text: str) -> str:
    """Return the first of the keys that a text has, separated by commas or lines; empty: none."""
    keys = [key.strip() for line in text.splitlines() for key in line.split(",")]
    return without_name(next(filter(None, keys), ""))


def without_name(written: str) -> str:
    """Return the key of ALIAS=KEY or SCOPE:ALIAS=KEY."""
    name, mark, key = written.partition("=")
    return key if mark and key and not key.startswith("=") else name + mark + key


def ask(url: str, key: str, seconds: float, body: dict[str, Any] | None = None) -> Any:
    headers = {"content-type": "application/json"}
    if key:
        if not (key.isascii() and key.isprintable()):  # an error of the library would show it
            raise ValueError("a key in the Secret has a character that no header may have")
        headers["authorization"] = f"Bearer {key}"
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, headers)  # noqa: S310  of the chart
    return urllib.request.urlopen(request, timeout=seconds)  # noqa: S310


def models(url: str, folder: Path, seconds: float) -> str:
    with ask(f"{url}/v1/models", api_key(folder), seconds) as answer:
        names = [model["id"] for model in json.load(answer)["data"]]
    if not names:
        raise ValueError("the server lists no model")
    return f"it serves {', '.join(names)}"


def completion(url: str, folder: Path, seconds: float) -> str:
    with ask(f"{url}/v1/chat/completions", api_key(folder), seconds, PROMPT) as answer:
        found = json.load(answer)
    tokens = found["usage"]["completion_tokens"]
    if tokens < 1 or not found["choices"]:
        raise ValueError("the answer has no token")
    return f"it answered with {tokens} tokens"


def stream(url: str, folder: Path, seconds: float) -> str:
    body = {**PROMPT, "stream": True}
    with ask(f"{url}/v1/chat/completions", api_key(folder), seconds, body) as answer:
        kind = answer.headers.get("content-type", "")
        lines = [line.strip() for line in answer]
    if not kind.startswith("text/event-stream"):
        raise ValueError(f"the answer is {kind or 'of no type'}, not a stream")
    events = [line for line in lines if line.startswith(b"data: ")]
    if not events or events[-1] != b"data: [DONE]":
        raise ValueError("the stream was cut: it does not end with [DONE]")
    return f"it sent {len(events) - 1} events"


def metrics(url: str, folder: Path, seconds: float) -> str:
    with ask(f"{url}/metrics", admin_key(folder), seconds) as answer:
        lines = answer.read().decode().splitlines()
    ready = [line for line in lines if line.startswith("quire_engine_ready")]
    if not ready:
        raise ValueError("/metrics has no quire_engine_ready")
    return ready[0]


def dashboard(url: str, folder: Path, seconds: float) -> str:
    with ask(f"{url}/_stcore/health", "", seconds) as answer:
        return f"it says {answer.read().decode().strip()}"


TESTS = {test.__name__: test for test in (models, completion, stream, metrics, dashboard)}


def main(name: str, url: str, seconds: str, folder: Path = SECRETS) -> int:
    try:
        print(f"{name}: {TESTS[name](url, folder, float(seconds))}")
    except urllib.error.HTTPError as error:
        text = error.read(1000).decode(errors="replace")
        print(f"{name}: {url} answered {error.code}: {text}", file=sys.stderr)
        return 1
    except (OSError, ValueError, KeyError) as error:
        print(f"{name}: {url}: {error!r}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
