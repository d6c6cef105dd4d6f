"""Every step is found by its name and makes what it says it makes."""

from __future__ import annotations

import dataclasses

import msgspec
import pytest

from service.checkpoint.checkpoint import load_checkpoint
from service.errors import InvalidRequestError, QuireError
from service.preparation.sending import packed
from service.preparation.steps import STEPS, perform
from service.preparation.work import Model
from service.proto.quire.v1 import quire_pb2 as pb
from tests.service.exponential_tokenizer import ENDLESS_TEXT, write_exponential_tokenizer
from tests.service.preparation.bodies import CASES, RESPONSES, USER, Case, case, grpc
from tests.service.preparation.prepared import model, prepared, work_of


@pytest.fixture(scope="module")
def exponential(tmp_path_factory: pytest.TempPathFactory) -> Model:
    directory = write_exponential_tokenizer(tmp_path_factory.mktemp("model"))
    return dataclasses.replace(model(), checkpoint=load_checkpoint(directory))


@pytest.mark.parametrize("name", STEPS)
def test_a_step_bears_the_name_it_goes_by(name: str) -> None:
    assert STEPS[name].name == name


@pytest.mark.parametrize("one", CASES, ids=[one.name for one in CASES])
def test_a_step_makes_what_its_type_says(one: Case) -> None:
    try:
        made = prepared(one.step, one.body, **one.fields)
    except QuireError:
        return
    read = msgspec.msgpack.decode(packed(made).result, type=STEPS[one.step].result)
    assert type(read) is type(made)
    assert read.noted == made.noted


_TURNS = [{"role": "user", "content": ENDLESS_TEXT}]
_PROTO_TURN = pb.Message(role="user", content=ENDLESS_TEXT)
_PROTO_INPUT = pb.EmbedInput(text=ENDLESS_TEXT)
_UNTOKENIZABLE = (
    (case("", "chat", {"messages": _TURNS}), "messages"),
    (case("bad words", "chat", {"messages": USER, "bad_words": [ENDLESS_TEXT]}), "bad_words"),
    (case("", "completion", {"prompt": ENDLESS_TEXT}), "prompt"),
    (case("", "messages", {"model": "pocket", "max_tokens": 9, "messages": _TURNS}), "messages"),
    (case("", "count_tokens", {"model": "pocket", "messages": _TURNS}), "messages"),
    (case("", "responses", {"input": ENDLESS_TEXT}, **RESPONSES), "input"),
    (case("", "tokenize", {"prompt": ENDLESS_TEXT}), "prompt"),
    (case("", "embeddings", {"input": ["b", ENDLESS_TEXT]}), "input[1]"),
    (case("", "rerank", {"query": "b", "documents": [ENDLESS_TEXT]}), "documents[0]"),
    (case("", "score", {"text_1": "b", "text_2": ENDLESS_TEXT}), "text_2"),
    (grpc("", "grpc_chat", pb.ChatRequest(messages=[_PROTO_TURN])), "messages"),
    (grpc("", "grpc_completion", pb.GenerateRequest(text=ENDLESS_TEXT)), "prompt"),
    (grpc("", "grpc_embeddings", pb.EmbedRequest(input=[_PROTO_INPUT])), "input[0]"),
)


@pytest.mark.parametrize(
    ("one", "param"), _UNTOKENIZABLE, ids=[one.name for one, _ in _UNTOKENIZABLE]
)
def test_a_text_on_which_the_tokenizer_gives_up_is_refused_by_its_field(
    one: Case, param: str, exponential: Model
) -> None:
    work = dataclasses.replace(work_of(one.step, one.body, **one.fields), model=exponential)
    with pytest.raises(InvalidRequestError, match="tokenizer gives up on") as refused:
        perform(work)
    assert refused.value.param == param


def test_a_form_is_made_of_what_another_step_asked_for() -> None:
    asked = prepared("completion", {"prompt": "Hi", "guided_choice": ["a", "b"]}).asked
    form = perform(work_of("form", asked=asked))
    assert form.constraint is not None  # type: ignore[attr-defined]  # a form's
