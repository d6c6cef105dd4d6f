"""What is sent with the next question."""

from __future__ import annotations

from dashboard.client import Generation
from dashboard.conversation import Choices, Conversation
from tests.dashboard.foreign_server import ForeignServer
from tests.dashboard.test_client import CHAT, event, streams, text
from tests.e2e.quire_server import until

CHOICES = Choices("m", "", 0.7, 0.95, 64, seed=None, thinking=None)


def ask(conversation: Conversation, url: str, question: str) -> Generation:
    conversation.ask(url, question, CHOICES, api_key="")
    generation = conversation.turns[-1].generation
    until(lambda: not generation.running, 20, "the answer to end")
    return generation


def test_answers_go_along_without_their_reasoning(foreign: ForeignServer) -> None:
    hm = event(choices=[{"delta": {"reasoning": "Hm."}}])
    foreign.replies[CHAT] = streams(hm, text("Yes.", "stop"), "data: [DONE]\n\n")
    conversation = Conversation()
    ask(conversation, foreign.url, "Is it?")
    sent = conversation.request("Sure?", CHOICES).messages
    assert sent == (("user", "Is it?"), ("assistant", "Yes."), ("user", "Sure?"))


def test_a_question_that_failed_is_not_asked_again(foreign: ForeignServer, closed_url: str) -> None:
    conversation = Conversation()
    ask(conversation, closed_url, "Anyone?")
    assert conversation.request("Hello?", CHOICES).messages == (("user", "Hello?"),)


def test_a_system_prompt_of_spaces_is_none() -> None:
    choices = Choices("m", "  ", 0.7, 0.95, 64, seed=None, thinking=None)
    assert Conversation().request("Hi", choices).messages == (("user", "Hi"),)


def test_what_was_not_chosen_is_not_sent() -> None:
    body = Conversation().request("Hi", CHOICES).body()
    assert "seed" not in body
    assert "chat_template_kwargs" not in body
