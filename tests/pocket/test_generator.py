"""The generator: the same text for the same seed, and a held-out side that training never meets."""

import re
from itertools import islice

from pocket import render
from pocket.text import arithmetic, copying, facts, meeting, mix, quantities, schemas, values
from pocket.text.dice import Dice, is_held
from pocket.text.frames import frames
from pocket.text.told import typed_name


def texts(seed: str, count: int, held: bool = False) -> list[str]:
    source = mix.stream(Dice(seed, held), lambda: False, mix.SHARES)
    return [render.text(document) for document in islice(source, count)]


def test_a_seed_gives_the_same_text_again():
    assert texts("a", 200) == texts("a", 200)


def test_another_seed_gives_other_text():
    assert texts("a", 20) != texts("b", 20)


def test_made_up_words_stay_on_their_side():
    for held in (False, True):
        dice = Dice("words", held)
        assert {is_held(values.fresh_word(dice)) for _ in range(500)} == {held}


def test_operand_pairs_of_training_and_gates_are_disjoint():
    def pairs(held: bool) -> set[tuple[str, frozenset[int]]]:
        dice, out = Dice("sums", held), set()
        for _ in range(3000):
            operator = dice.choice("+-")
            a, b = map(int, re.findall(r"\d+", arithmetic.problem(dice, operator).answer)[:2])
            out.add((operator, frozenset((a, b))))
        return out

    assert not pairs(False) & pairs(True)


def test_function_names_and_spelled_words_of_training_and_gates_are_disjoint():
    def names(held: bool) -> set[str]:
        dice = Dice("names", held)
        return {schemas.unseen(dice).name for _ in range(2000)}

    def spelled(held: bool) -> set[str]:
        dice = Dice("spelling", held)
        return {copying.spelled_word(dice) for _ in range(2000)}

    assert not names(False) & names(True)
    assert not spelled(False) & spelled(True)


def test_a_written_sum_is_right():
    dice = Dice("sums")
    for _ in range(500):
        exchange = arithmetic.problem(dice)
        left, right = exchange.answer.split(" = ")
        a, operator, b = left.split()
        value = {"+": int(a) + int(b), "-": int(a) - int(b), "*": int(a) * int(b)}[operator]
        assert value == int(right)
        assert exchange.thought.endswith(f" {value}.")


def test_a_question_has_one_fact():
    asked = [way for ways, _ in facts.TABLE for way in ways]
    assert len(asked) == len(set(asked))


def test_every_task_ends_with_the_assistant():
    for document in islice(mix.stream(Dice("tasks"), lambda: False, mix.SHARES), 500):
        assert document.plain or document.turns[-1].role == "assistant"


def test_calls_name_a_tool_that_is_there_and_parameters_it_has():
    for document in islice(mix.stream(Dice("calls"), lambda: False, mix.SHARES), 800):
        offered = {tool["function"]["name"]: tool["function"] for tool in document.tools}
        for call in (call for turn in document.turns for call in turn.calls):
            properties = offered[call.name]["parameters"]["properties"]
            assert list(call.arguments) == [key for key in properties if key in call.arguments]


def test_frames_fill_their_named_parts_and_join_long_lines():
    text = """
        @go to {a}
        from {a}   to {b}
    """
    assert frames(text, go="run|walk") == ("[run|walk] to {a}", "from {a} to {b}")


def test_a_word_for_how_one_feels_is_never_a_name():
    dice = Dice("names")
    names = {typed_name(dice).lower() for _ in range(4000)}
    assert not names & {"happy", "tired", "lonely", "angry", "afraid", "lucky", "hungry"}


def test_asking_whose_name_it_is_gets_the_name_and_no_greeting():
    dice = Dice("whose")
    for _ in range(3000):
        exchange = meeting.who_am_i(dice, "Ada")
        if "belongs to me" in exchange.user.lower():
            assert exchange.answer == "Your name is Ada."


def test_numbers_are_put_in_the_order_that_was_asked_for():
    dice = Dice("order")
    for _ in range(3000):
        exchange = quantities.sorting(dice)
        numbers = [int(number) for number in exchange.answer.split(", ")]
        down = re.search(r"\b(descending|biggest first|high to low)\b", exchange.user.lower())
        up = re.search(r"\b(ascending|smallest first|low to high)\b", exchange.user.lower())
        assert sorted(map(int, re.findall(r"\d+", exchange.user))) == sorted(numbers)
        if down or up:
            assert numbers == sorted(numbers, reverse=bool(down)), exchange.user
