"""The generator: the same text for the same seed, and a held-out side that training never meets."""

import re
from itertools import islice

from pocket import render
from pocket.text import arithmetic, copying, facts, mix, schemas, values, words
from pocket.text.dice import Dice, is_held


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


def test_rare_words_stay_on_their_side_and_are_mostly_no_words():
    for held in (False, True):
        dice = Dice("rare", held)
        made = [values.rare(dice) for _ in range(400)]
        assert {is_held(word) for word in made} == {held}
        assert sum(word in words.ALL_WORDS for word in made) < 0.2 * len(made)
        assert all(word.isascii() and word.isalpha() and word.islower() for word in made)


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
