"""A request as code to take along: a shell command, Python, JavaScript."""

from __future__ import annotations

import json
import pprint
import shlex
from collections.abc import Callable

from dashboard.client import Request

Writer = Callable[[str, Request, bool], str]


def as_curl(url: str, request: Request, with_key: bool) -> str:
    """A shell command; the key itself never appears in it, only ``$QUIRE_API_KEY``."""
    body = json.dumps(request.body(), ensure_ascii=False, indent=2)
    lines = [
        f"curl -N {shlex.quote(url + request.api.path)}",
        "-H 'Content-Type: application/json'",
        *(['-H "Authorization: Bearer $QUIRE_API_KEY"'] if with_key else []),
        f"-d {shlex.quote(body)}",
    ]
    return " \\\n  ".join(lines)


def as_python(url: str, request: Request, with_key: bool) -> str:
    """Needs httpx. Prints the answer's lines as they come."""
    body = pprint.pformat(request.body(), indent=1, width=92, sort_dicts=False)
    head = "import os\n\nimport httpx\n" if with_key else "import httpx\n"
    headers = "headers = {}\n"
    if with_key:
        headers = 'headers = {"Authorization": f"Bearer {os.environ[\'QUIRE_API_KEY\']}"}\n'
    return (
        f"{head}\nbody = {body}\n{headers}"
        f"with httpx.stream(\n"
        f'    "POST", {url + request.api.path!r}, json=body, headers=headers, timeout=None\n'
        ") as response:\n"
        "    for line in response.iter_lines():\n"
        "        print(line)\n"
    )


def as_javascript(url: str, request: Request, with_key: bool) -> str:
    """A module for Node (18 or later). Prints the answer as it comes."""
    body = json.dumps(request.body(), ensure_ascii=False, indent=2)
    key = "\n    Authorization: `Bearer ${process.env.QUIRE_API_KEY}`," if with_key else ""
    return (
        f"const body = {body};\n"
        f"const response = await fetch({json.dumps(url + request.api.path)}, {{\n"
        '  method: "POST",\n'
        f'  headers: {{\n    "Content-Type": "application/json",{key}\n  }},\n'
        "  body: JSON.stringify(body),\n"
        "});\n"
        "const decoder = new TextDecoder();\n"
        "for await (const bytes of response.body) {\n"
        "  process.stdout.write(decoder.decode(bytes, { stream: true }));\n"
        "}\n"
    )


LANGUAGES: dict[str, tuple[str, Writer]] = {
    "curl": ("bash", as_curl),
    "Python": ("python", as_python),
    "JavaScript": ("javascript", as_javascript),
}
"""What the page offers, with the name that the syntax highlighter knows."""
