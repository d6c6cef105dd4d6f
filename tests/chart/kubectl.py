"""As much of kubectl as the pages of docs/ ask a new user to type: namespaces and Secrets."""

from __future__ import annotations

import argparse
import base64
import json
import os
import re
import sys
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import yaml


def ask(method: str, path: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
    config = yaml.safe_load(Path(os.environ["KUBECONFIG"]).read_text())
    server = config["clusters"][0]["cluster"]["server"]
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(
        server + path, data, {"content-type": "application/json"}, method=method
    )
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            found: dict[str, Any] = json.load(answer)
    except urllib.error.HTTPError as error:
        sys.exit(f"Error from server: {json.loads(error.read())['message']}")
    return found


def secrets_path(namespace: str) -> str:
    return f"/api/v1/namespaces/{namespace}/secrets"


def create_namespace(options: argparse.Namespace) -> None:
    metadata = {"name": options.name}
    ask(
        "POST",
        "/api/v1/namespaces",
        {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata},
    )


def create_secret(options: argparse.Namespace) -> None:
    pairs = (literal.partition("=") for literal in options.from_literal)
    data = {name: base64.b64encode(value.encode()).decode() for name, _, value in pairs}
    metadata = {"name": options.name, "namespace": options.namespace}
    about = {"apiVersion": "v1", "kind": "Secret", "type": "Opaque"}
    secret = {**about, "metadata": metadata, "data": data}
    if options.dry_run:
        print(yaml.safe_dump(secret))
    else:
        ask("POST", secrets_path(options.namespace), secret)


def apply(options: argparse.Namespace) -> None:
    """Of one Secret, which is there already."""
    secret = yaml.safe_load(sys.stdin)
    metadata = secret["metadata"]
    ask("PUT", f"{secrets_path(metadata['namespace'])}/{metadata['name']}", secret)


def get_secret(options: argparse.Namespace) -> None:
    wanted = re.fullmatch(r"jsonpath=\{\.data\.([-a-z]+)\}", options.output)
    assert wanted is not None
    found = ask("GET", f"{secrets_path(options.namespace)}/{options.name}")
    print(found["data"][wanted[1]], end="")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--namespace", default="default")
    verbs = parser.add_subparsers(required=True)
    made = verbs.add_parser("create").add_subparsers(required=True)
    namespace = made.add_parser("namespace")
    namespace.set_defaults(does=create_namespace)
    generic = made.add_parser("secret").add_subparsers(required=True).add_parser("generic")
    generic.set_defaults(does=create_secret)
    generic.add_argument("--from-literal", action="append", required=True)
    generic.add_argument("--dry-run", choices=["client"])
    generic.add_argument("--output", choices=["yaml"])
    applied = verbs.add_parser("apply")
    applied.set_defaults(does=apply)
    applied.add_argument("--filename", choices=["-"], required=True)
    shown = verbs.add_parser("get").add_subparsers(required=True).add_parser("secret")
    shown.set_defaults(does=get_secret)
    shown.add_argument("--output", required=True)
    for named in (namespace, generic, shown):
        named.add_argument("name")
    options = parser.parse_args()
    options.does(options)


if __name__ == "__main__":
    main()
