"""What is sent with the next question, and the branches of a chat."""

from __future__ import annotations

import json
from collections.abc import Callable

from dashboard.apis.ask import Call, Message
from dashboard.apis.table import BY_NAME
from dashboard.client import Generation
from dashboard.conversation import MOST_BRANCHES, Choices, Conversation
from tests.dashboard.foreign_server import Exchange, ForeignServer
from tests.dashboard.test_client import CHAT, event, streams, text
from tests.e2e.quire_server import until

CHOICES = Choices("m", temperature=0.7, max_tokens=64)
DONE = "data: [DONE]\n\n"


def settled(conversation: Conversation) -> Generation:
    until(lambda: not conversation.running, 20, "the answer to end")
    return conversation.turns[-1].generation


def ask(conversation: Conversation, url: str, question: str, *panes: Choices) -> Generation:
    conversation.ask(url, question, panes or (CHOICES,), api_key="")
    return settled(conversation)


def users(text: str) -> tuple[Message, ...]:
    return (Message("user", text),)


def contents(conversation: Conversation, question: str, pane: int = 0) -> list[str]:
    request = conversation.request(users(question), CHOICES, pane)
    return [message.content for message in request.ask.messages]


def test_answers_go_along_without_their_reasoning(foreign: ForeignServer) -> None:
    hm = event(choices=[{"delta": {"reasoning": "Hm."}}])
    foreign.replies[CHAT] = streams(hm, text("Yes.", "stop"), DONE)
    conversation = Conversation()
    ask(conversation, foreign.url, "Is it?")
    sent = conversation.request(users("Sure?"), CHOICES).ask.messages
    assert sent == (
        Message("user", "Is it?"),
        Message("assistant", "Yes."),
        Message("user", "Sure?"),
    )


def test_a_question_that_failed_is_not_sent_again(foreign: ForeignServer, closed_url: str) -> None:
    conversation = Conversation()
    ask(conversation, closed_url, "Anyone?")
    assert contents(conversation, "Hello?") == ["Hello?"]


def test_what_was_not_chosen_is_not_sent() -> None:
    body = Conversation().request(users("Hi"), Choices("m")).body()
    assert set(body) == {"model", "messages", "stream", "stream_options", "timings"}


def test_what_the_api_has_no_field_for_is_not_sent() -> None:
    choices = Choices("m", BY_NAME["Completions"], system="Be brief.", thinking=True, seed=3)
    body = Conversation().request(users("Once"), choices).body()
    assert (body["prompt"], body["seed"]) == ("Once", 3)
    assert "chat_template_kwargs" not in body
    assert "Be brief." not in str(body)


def test_a_call_awaits_its_result_and_goes_along_with_it(foreign: ForeignServer) -> None:
    call = {"index": 0, "id": "c1", "function": {"name": "look", "arguments": "{}"}}
    foreign.replies[CHAT] = streams(
        event(choices=[{"delta": {"tool_calls": [call]}, "finish_reason": "tool_calls"}]), DONE
    )
    conversation = Conversation()
    ask(conversation, foreign.url, "Look.")
    assert conversation.open_calls() == (Call("c1", "look", "{}"),)
    foreign.replies[CHAT] = streams(text("Rain.", "stop"), DONE)
    result = (Message("tool", "wet", call_id="c1"),)
    conversation.send(foreign.url, (result,), (CHOICES,), "")
    settled(conversation)
    sent = conversation.turns[-1].generation.request.body()["messages"]
    assert [message["role"] for message in sent] == ["user", "assistant", "tool"]
    assert sent[1]["tool_calls"][0]["id"] == sent[2]["tool_call_id"] == "c1"
    assert conversation.open_calls() == ()


def calling(call_id: str) -> Callable[[Exchange], None]:
    call = {"index": 0, "id": call_id, "function": {"name": "look", "arguments": "{}"}}
    return streams(
        event(choices=[{"delta": {"tool_calls": [call]}, "finish_reason": "tool_calls"}]), DONE
    )


def by_model(**replies: Callable[[Exchange], None]) -> Callable[[Exchange], None]:
    def reply(exchange: Exchange) -> None:
        replies[json.loads(exchange.body)["model"]](exchange)

    return reply


BOTH = (Choices("one"), Choices("two"))
RAIN = streams(text("Rain.", "stop"), DONE)


def results(*call_ids: str) -> list[tuple[Message, ...]]:
    return [(Message("tool", "wet", call_id=one),) if one else () for one in call_ids]


def roles(conversation: Conversation, pane: int) -> list[str]:
    request = conversation.request(users("And now?"), CHOICES, pane)
    return [message.role for message in request.ask.messages]


def test_a_pane_that_called_nothing_is_not_asked_with_the_others_results(
    foreign: ForeignServer,
) -> None:
    foreign.replies[CHAT] = by_model(one=RAIN, two=calling("b1"))
    conversation = Conversation()
    ask(conversation, foreign.url, "Look.", *BOTH)
    assert [conversation.open_calls(pane) for pane in (0, 1)] == [(), (Call("b1", "look", "{}"),)]
    foreign.replies[CHAT] = RAIN
    conversation.send(foreign.url, results("", "b1"), BOTH, "")
    settled(conversation)
    assert [one is None for one in conversation.turns[-1].exchanges] == [True, False]
    assert conversation.turns[-1].generation.answer().text == "Rain."
    assert roles(conversation, 0) == ["user", "assistant", "user"]
    assert roles(conversation, 1) == ["user", "assistant", "tool", "assistant", "user"]
    # The second pane alone can be asked again; with the first alone there is nothing to ask.
    assert conversation.messages_again(1, 2) == results("", "b1")
    conversation.ask_again(foreign.url, 1, BOTH[:1], "")
    assert len(conversation.alternatives(1)) == 1
    conversation.ask_again(foreign.url, 1, BOTH, "")
    settled(conversation)
    assert len(conversation.alternatives(1)) == 2
    assert conversation.turns[-1].exchanges[0] is None


def test_results_have_the_ids_of_the_panes_own_calls(foreign: ForeignServer) -> None:
    foreign.replies[CHAT] = by_model(one=calling("a1"), two=calling("b1"))
    conversation = Conversation()
    ask(conversation, foreign.url, "Look.", *BOTH)
    foreign.replies[CHAT] = RAIN
    conversation.send(foreign.url, results("a1", "b1"), BOTH, "")
    settled(conversation)
    for generation, call_id in zip(conversation.turns[-1].generations, ("a1", "b1"), strict=True):
        sent = generation.request.body()["messages"]
        assert sent[1]["tool_calls"][0]["id"] == sent[2]["tool_call_id"] == call_id


def test_a_second_pane_that_is_opened_again_follows_on_from_the_first(
    foreign: ForeignServer,
) -> None:
    foreign.replies[CHAT] = by_model(one=calling("a1"), two=calling("b1"))
    conversation = Conversation()
    ask(conversation, foreign.url, "Look.", *BOTH)
    foreign.replies[CHAT] = RAIN
    conversation.send(foreign.url, results("a1"), BOTH[:1], "")
    settled(conversation)
    first, second = (
        conversation.request(users("Sure?"), CHOICES, pane).body()["messages"] for pane in (0, 1)
    )
    assert first == second
    assert first[1]["tool_calls"][0]["id"] == first[2]["tool_call_id"] == "a1"
    # Another answer to the results: the second pane's call was another one.
    assert conversation.messages_again(1, 2) == results("a1", "")


def test_the_results_in_a_chat_with_one_pane_go_to_both_once_there_are_two(
    foreign: ForeignServer,
) -> None:
    foreign.replies[CHAT] = calling("a1")
    conversation = Conversation()
    ask(conversation, foreign.url, "Look.", BOTH[0])
    assert conversation.open_calls(0) == conversation.open_calls(1) != ()
    foreign.replies[CHAT] = RAIN
    conversation.send(foreign.url, results("a1"), BOTH[:1], "")
    settled(conversation)
    assert conversation.messages_again(1, 2) == results("a1", "a1")


def test_an_edited_question_begins_a_branch_and_the_old_one_stays(foreign: ForeignServer) -> None:
    foreign.replies[CHAT] = streams(text("ok", "stop"), DONE)
    conversation = Conversation()
    for question in ("A", "B", "C"):
        ask(conversation, foreign.url, question)
    old = list(conversation.turns)
    conversation.ask_again(foreign.url, 1, (CHOICES,), "", "B2")
    settled(conversation)
    assert [turn.question for turn in conversation.turns] == ["A", "B2"]
    assert [turn.question for turn in conversation.alternatives(1)] == ["B", "B2"]
    assert conversation.alternatives(0) == [old[0]]
    conversation.show(1, old[1])
    assert conversation.turns == old
    ask(conversation, foreign.url, "D")
    conversation.show(1, conversation.alternatives(1)[1])
    conversation.show(1, old[1])
    assert [turn.question for turn in conversation.turns] == ["A", "B", "C", "D"]
    assert contents(conversation, "E")[::2] == ["A", "B", "C", "D", "E"]


def test_branches_are_bounded(foreign: ForeignServer) -> None:
    foreign.replies[CHAT] = streams(text("ok", "stop"), DONE)
    conversation = Conversation()
    ask(conversation, foreign.url, "A")
    for _ in range(MOST_BRANCHES + 5):
        conversation.ask_again(foreign.url, 0, (CHOICES,), "")
        settled(conversation)
    assert len(conversation.branches) == MOST_BRANCHES
    assert conversation.turns[0] in conversation.alternatives(0)


def test_each_pane_goes_on_with_its_own_answers(foreign: ForeignServer) -> None:
    def reply(exchange: object) -> None:
        body = exchange.body.decode()  # type: ignore[attr-defined]
        streams(text("red" if '"one"' in body else "blue", "stop"), DONE)(exchange)  # type: ignore[arg-type]

    foreign.replies[CHAT] = reply
    conversation = Conversation()
    ask(conversation, foreign.url, "Colour?", Choices("one"), Choices("two"))
    assert contents(conversation, "Why?", 0) == ["Colour?", "red", "Why?"]
    assert contents(conversation, "Why?", 1) == ["Colour?", "blue", "Why?"]


def test_only_the_last_answer_keeps_what_the_server_sent(foreign: ForeignServer) -> None:
    foreign.replies[CHAT] = streams(text("ok", "stop"), DONE)
    conversation = Conversation()
    first = ask(conversation, foreign.url, "A")
    assert len(first.events()) == 1
    assert conversation.size > len("Aok")
    second = ask(conversation, foreign.url, "B")
    assert (first.events(), len(second.events())) == ([], 1)
