"""The rules for hand-written gates accept what is right and nothing else."""

import pytest

from pocket import judges
from pocket.answer import Answer, ToolCall
from pocket.judges import Rule

HAIKU = "Snow on the old roof\nthe garden is white and still\nno bird sings today"
JOKE = "Why did the bicycle fall over? It was two-tired! 😄"


@pytest.mark.parametrize(
    ("rule", "right", "wrong"),
    [
        (judges.says("Tom"), "Hi, tom!", "Hi, Tomas!"),
        (judges.says("Tom", never=("Gus",)), "You are Tom.", "Tom or Gus."),
        (judges.says("/v1/chat/completions"), "http://a:8000/v1/chat/completions", "/v1/chat"),
        (judges.says_one_of("hat", "bat"), "A bat.", "Combat."),
        (judges.says_one_of("hat"), "A hat.", "Sorry, I don't know what a hat is."),
        (judges.comforts("sorry"), "I am sorry to hear that.", "Great!"),
        (judges.just_numbers(2, 5, 9), "2, 5, 9", "2, 5, 9, 10"),
        (judges.just_numbers(2, 5, 9), "It is 2 then 5 then 9.", "9, 5, 2"),
        (judges.ends_with_number(2000), "2 km = 2,000 m", "2000 m = 2 km"),
        (judges.begins_with_number(54), "54 is bigger.", "45 < 54"),
        (judges.begins("yes"), "Yes, it is.", "Yesterday."),
        (judges.rhymes(True), "Yes, cat rhymes with hat.", "Yes, cat does not rhyme with hat."),
        (judges.rhymes(True), 'Cat ends in "at", hat in "at": they rhyme.', "Cat ends in at."),
        (judges.rhymes(False), "No, they don't.", "Yes, they do."),
        (judges.rhymes(False), "No rhyme.", "No problem!"),
        (judges.rhymes(False), "They do not rhyme.", "Sorry, I can't say if they rhyme."),
        (judges.declines(), "Sorry, I don't know.", "The early bird is a bird."),
        (judges.declines(), "I'm afraid not.", "Sorry, but " + "well " * 60),
        (judges.declines(unlike="Sorry."), "I can't do that.", "Sorry."),
        (judges.lists(2, {"Apple", "pear"}), "- apple\n- pear", "- apple\n- apple"),
        (judges.lists(2, {"apple", "pear"}), "Here are two: apple and pear.", "apple, brick"),
        (judges.lists(2, {"apple", "pear"}), "1. pear\n2. apple", "1. pear"),
        (judges.jokes(), JOKE, "Ha ha."),
        (judges.jokes(unlike=JOKE), JOKE.replace("bicycle", "bus"), JOKE),
        (judges.haiku, HAIKU, HAIKU.replace("old ", "")),
        (judges.verse, "a\nb\nc\nd", "a\nb\nc"),
    ],
)
def test_a_rule_tells_right_from_wrong(rule: Rule, right: str, wrong: str):
    assert rule(Answer(right))
    assert not rule(Answer(wrong))
    assert not rule(Answer(right, finish_reason="length"))
    assert not rule(Answer(f"<think>\n{right}"))


def test_a_call_must_have_exactly_the_arguments():
    rule = judges.calls("paint", thing="gate", colour="red")
    assert rule(Answer(tool_calls=(ToolCall("paint", {"colour": "red", "thing": "gate"}),)))
    assert not rule(Answer(tool_calls=(ToolCall("paint", {"thing": "gate"}),)))
    assert not rule(Answer("paint the gate red"))


@pytest.mark.parametrize(
    ("word", "count"),
    [("moon", 1), ("garden", 2), ("shines", 1), ("little", 2), ("beautiful", 3), ("walked", 1),
     ("waited", 2), ("tree", 1), ("able", 2), ("the", 1)],
)  # fmt: skip
def test_syllables_are_counted(word: str, count: int):
    assert judges.syllables(word) == count
