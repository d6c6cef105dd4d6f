"""Limits on size and names: modules, classes and functions stay short, and a public name has one
meaning in the server."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from tests.parsing import parsed

ROOT = Path(__file__).resolve().parents[1]
ROOMS = ("engine", "service", "dashboard", "observability", "client", "pocket", "bench")
# These run together, so their names are read side by side. The others are separate programs.
SERVER = ("engine/", "service/", "observability/")

MAX_MODULE_LINES = 450
MAX_CLASS_LINES = 300
MAX_FUNCTION_LINES = 60

_KERNEL = "a Triton kernel has an argument a line, and its parts would pass a dozen to each other"
# What may be longer, and why.
LONG = {
    "engine/gpu/kernels/decode_attention.py::_attend_share": _KERNEL,
    "engine/gpu/kernels/experts.py::_grouped": _KERNEL,
    "engine/gpu/kernels/few_bit_dots.py::_few_bit_dots": _KERNEL,
    "engine/gpu/kernels/few_bit_product.py::_few_bit_product": _KERNEL,
    "engine/gpu/kernels/few_bit_vectors.py::_few_bit_vectors": _KERNEL,
    "engine/gpu/kernels/ragged_attention.py::_attend_ragged": _KERNEL,
    "engine/gpu/kernels/ragged_attention.py::_merge_parts": _KERNEL,
    "engine/gpu/kernels/skinny.py::_skinny": _KERNEL,
    "engine/gpu/kernels/tiles.py::attend_tiles": _KERNEL,
}
# Public names that several modules of the server define, and why.
SHARED = {
    "main": "the entry of each program",
    "logger": "a module's own",
    "PAGE": "the page of the documentation that a generator writes",
    "page": "its text",
    "serve": "the loop of a child process; the way of any API's request",
    "parameter_shapes": "one for each model family, and the loader's that chooses among them",
    "Choice": "the engine's sampled tokens; an API's choice",
    "Failed": "to the engine's connections; of a preparation",
    "Finished": "the engine's record of a sequence; the output's last event",
    "PromptLogprobs": "the engine's, in token ids; on the wire, in text",
    "Reply": "of a simulated model's script; of a preparation process",
    "Sampled": "of a sampler; of a step, which may also pool",
    "Task": "of an engine's sequence; of a worker thread; what an API's request comes down to",
    "Telemetry": "the protocol, and its implementation",
    "TokenId": "the engine's bounds; the wire's",
    "TokenLimit": "of an output; of a text to embed",
    "Tokens": "a vocabulary as grammars see it; a simulation's tokenizer",
    "TopLogprob": "the engine's, in token ids; on the wire, in text",
    "Verdict": "on a sampled token; on a grammar that was tried",
    "Vocabulary": "a rank's part of the logits; the tokenizer's texts",
}


def modules() -> Iterator[tuple[str, str]]:
    """Yield the path and text of each module except generated code."""
    for room in ROOMS:
        for path in sorted((ROOT / room).rglob("*.py")):
            if "proto" not in path.parts and "migrations" not in path.parts:
                yield path.relative_to(ROOT).as_posix(), path.read_text()


def lines(node: ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    assert node.end_lineno is not None
    return node.end_lineno - node.lineno + 1


def too_long() -> Iterator[str]:
    for path, text in modules():
        if text.count("\n") > MAX_MODULE_LINES:
            yield path
        for node in ast.walk(parsed(text)):
            if isinstance(node, ast.ClassDef) and lines(node) > MAX_CLASS_LINES:
                yield f"{path}::{node.name}"
            functions = ast.FunctionDef | ast.AsyncFunctionDef
            if isinstance(node, functions) and lines(node) > MAX_FUNCTION_LINES:
                yield f"{path}::{node.name}"


def test_modules_classes_and_functions_stay_short() -> None:
    assert sorted(too_long()) == sorted(LONG)


def public_names(tree: ast.Module) -> Iterator[str]:
    for node in tree.body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.name
        elif isinstance(node, ast.Assign):
            yield from (target.id for target in node.targets if isinstance(target, ast.Name))
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            yield node.target.id


def test_a_public_name_has_one_meaning() -> None:
    places: dict[str, set[str]] = defaultdict(set)
    for path, text in modules():
        if path.startswith(SERVER):
            for name in public_names(parsed(text)):
                if not name.startswith("_"):
                    places[name].add(path)
    repeated = {name for name, paths in places.items() if len(paths) > 1}
    assert repeated == SHARED.keys()
