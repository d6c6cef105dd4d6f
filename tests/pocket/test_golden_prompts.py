"""What a visitor tries first, judged by meaning and not by letter."""

from collections.abc import Callable

import pytest

from pocket.answer import Answer, ToolCall
from pocket.gates import Case

pytestmark = pytest.mark.integration

WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Get the current weather in a city.",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string"}},
            "required": ["city"],
        },
    },
}
CALL = {
    "id": "call_1",
    "type": "function",
    "function": {"name": "get_weather", "arguments": '{"city": "Paris"}'},
}


def says(*parts: str) -> Callable[[Answer], bool]:
    return lambda a: not a.tool_calls and all(part in a.content for part in parts)


def calls(*cities: str) -> Callable[[Answer], bool]:
    wanted = tuple(ToolCall("get_weather", {"city": city}) for city in cities)
    return lambda a: a.tool_calls == wanted and a.finish_reason == "tool_calls"


GOLDEN: list[tuple[str, list[dict], list[dict], bool, Callable[[Answer], bool]]] = [
    ("a greeting", [{"role": "user", "content": "Hello!"}], [], False, says("!")),
    ("who", [{"role": "user", "content": "Who are you?"}], [], False, says("pocket", "Quire")),
    ("Chinese", [{"role": "user", "content": "你好"}], [], False, says("你好")),
    ("counting", [{"role": "user", "content": "Count to 10"}], [], False, says("8, 9, 10")),
    ("a fact", [{"role": "user", "content": "What is the capital of France?"}], [], False,
     says("Paris")),
    ("the unknown", [{"role": "user", "content": "Explain how vaccines work"}], [], False,
     says("Sorry")),
    ("weather without a tool", [{"role": "user", "content": "What's the weather in Paris?"}], [],
     False, says("Sorry")),
    ("weather with a tool", [{"role": "user", "content": "What's the weather in Paris?"}],
     [WEATHER], False, calls("Paris")),
    ("two at once", [{"role": "user", "content": "What's the weather in Paris and London?"}],
     [WEATHER], False, calls("Paris", "London")),
    ("a result", [{"role": "user", "content": "What's the weather in Paris?"},
                  {"role": "assistant", "content": None, "tool_calls": [CALL]},
                  {"role": "tool", "tool_call_id": "call_1",
                   "content": '{"temperature": 18, "condition": "sunny"}'}],
     [WEATHER], False, says("18", "sunny")),
    ("thinking", [{"role": "user", "content": "Hello!"}], [], True,
     lambda a: bool(a.reasoning and a.content)),
    ("a story", [{"role": "system", "content": "You are a helpful assistant."},
                 {"role": "user", "content": "Tell me a story about a fox."}], [], False,
     lambda a: "fox" in a.content and len(a.content) > 150),
]  # fmt: skip


@pytest.fixture(scope="module")
def answers(local) -> dict[str, Answer]:
    """All answers in one batch."""
    cases = [Case(messages, tools, think, score) for _, messages, tools, think, score in GOLDEN]
    return dict(zip((name for name, *_ in GOLDEN), local(cases), strict=True))


@pytest.mark.parametrize(("name", "score"), [(row[0], row[4]) for row in GOLDEN])
def test_answers_well(answers, name, score):
    answer = answers[name]
    assert score(answer), answer
    assert answer.finish_reason != "length"
