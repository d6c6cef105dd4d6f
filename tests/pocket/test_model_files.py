"""The shipped files: whole, small, loadable, and the very model that was trained."""

import json

import pytest
import torch
from safetensors.torch import load_file

from pocket import MODEL_DIR
from pocket.answer import parse
from pocket.export import MANIFEST, digest
from pocket.gates import SIZE_LIMIT, gates
from pocket.model import Pocket, PocketShape


@pytest.fixture(scope="module")
def manifest() -> dict:
    return json.loads((MODEL_DIR / MANIFEST).read_text())


def test_every_file_is_the_one_the_manifest_names(manifest):
    there = {path.name: digest(path) for path in MODEL_DIR.iterdir() if path.name != MANIFEST}
    assert there == manifest["files"]


def test_the_directory_is_small():
    assert sum(path.stat().st_size for path in MODEL_DIR.iterdir()) <= SIZE_LIMIT


def test_no_blocking_gate_was_short(manifest):
    blocking = {gate.name for gate in gates(samples=1) if gate.blocking}
    short = {name for name, row in manifest["gates"].items() if row["score"] < row["must"]}
    assert set(manifest["gates"]) >= blocking
    assert not short & blocking


def test_transformers_computes_what_the_trainer_computes(local):
    model = Pocket(PocketShape())
    weights = load_file(MODEL_DIR / "model.safetensors")
    model.load_state_dict({name: value.float() for name, value in weights.items()})
    tokens = torch.randint(20, 1280, (2, 90), generator=torch.Generator().manual_seed(0))
    with torch.inference_mode():
        theirs, ours = local.model(tokens).logits, model(tokens)
    torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-4)


def test_training_computes_only_the_positions_it_needs():
    model = Pocket(PocketShape(layers=2))
    model.initialise(0)
    tokens = torch.randint(0, 1280, (3, 20), generator=torch.Generator().manual_seed(0))
    keep = torch.tensor([0, 7, 59])
    with torch.inference_mode():
        torch.testing.assert_close(model(tokens, keep), model(tokens).flatten(0, 1)[keep])


def test_generation_stops_at_the_end_of_a_turn(tokenizer):
    settings = json.loads((MODEL_DIR / "generation_config.json").read_text())
    stops = tokenizer.convert_tokens_to_ids(["<|im_end|>", "<|endoftext|>"])
    assert settings["eos_token_id"] == stops


TWO_CALLS = (
    "<think>\nI need 2 calls: a, b.\n</think>\n\n"
    '<tool_call>\n{"name": "a", "arguments": {"x": 1}}\n</tool_call>\n'
    '<tool_call>\n{"name": "b", "arguments": {"y": "q\\n"}}\n</tool_call><|im_end|>'
)


def test_the_response_template_reads_thoughts_and_calls(tokenizer):
    prompt = "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n"
    message = tokenizer.parse_response(TWO_CALLS, prefix=prompt)
    assert message["reasoning_content"] == "I need 2 calls: a, b."
    assert [call["function"] for call in message["tool_calls"]] == [
        {"name": "a", "arguments": {"x": 1}},
        {"name": "b", "arguments": {"y": "q\n"}},
    ]
    said = tokenizer.parse_response("Ok. 👋<|im_end|>", prefix=prompt + "<think>\n\n</think>\n\n")
    assert said == {"role": "assistant", "content": "Ok. 👋"}


def test_the_response_template_and_our_own_parser_agree(tokenizer):
    answer = parse(TWO_CALLS)
    message = tokenizer.parse_response(TWO_CALLS, prefix="<|im_start|>assistant\n")
    assert answer.reasoning == message["reasoning_content"]
    assert [(call.name, call.arguments) for call in answer.tool_calls] == [
        (call["function"]["name"], call["function"]["arguments"]) for call in message["tool_calls"]
    ]
    assert answer.finish_reason == "tool_calls"
