"""As much of kubectl as docs/kubernetes.md asks a new user to type: namespaces and Secrets."""

from __future__ import annotations

import argparse
import base64
import json
import os
import sys
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import yaml


def post(path: str, body: dict[str, Any]) -> None:
    config = yaml.safe_load(Path(os.environ["KUBECONFIG"]).read_text())
    server = config["clusters"][0]["cluster"]["server"]
    request = urllib.request.Request(
        server + path, json.dumps(body).encode(), {"content-type": "application/json"}
    )
    try:
        urllib.request.urlopen(request, timeout=30).close()
    except urllib.error.HTTPError as error:
        sys.exit(f"Error from server: {json.loads(error.read())['message']}")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--namespace", default="default")
    verbs = parser.add_subparsers(required=True).add_parser("create").add_subparsers(required=True)
    namespace = verbs.add_parser("namespace")
    namespace.add_argument("name")
    generic = verbs.add_parser("secret").add_subparsers(required=True).add_parser("generic")
    generic.add_argument("name")
    generic.add_argument("--from-literal", action="append", required=True)
    options = parser.parse_args()
    about = {"apiVersion": "v1", "metadata": {"name": options.name}}
    if not hasattr(options, "from_literal"):
        post("/api/v1/namespaces", {**about, "kind": "Namespace"})
        return
    pairs = (literal.partition("=") for literal in options.from_literal)
    data = {name: base64.b64encode(value.encode()).decode() for name, _, value in pairs}
    secret = {**about, "kind": "Secret", "type": "Opaque", "data": data}
    post(f"/api/v1/namespaces/{options.namespace}/secrets", secret)


if __name__ == "__main__":
    main()
