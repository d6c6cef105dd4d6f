"""The hand-written gates: out of the generator's reach, each answerable, and judged exactly."""

import re
from collections.abc import Iterator
from functools import cache
from itertools import islice

from pocket.answer import Answer
from pocket.text import (
    about_quire,
    calendar,
    declining,
    facts,
    humour,
    longer_requests,
    meeting,
    mix,
    phrasing,
    quantities,
    rhymes,
    spoken_tools,
    spoken_values,
    themes,
    told,
    ways_moods,
    ways_talk,
    ways_unknown,
    wordplay,
    words,
)
from pocket.text.dice import Dice
from pocket.visitors import ROWS
from tests.pocket.recognising import accepting, plain

_NUMBER = "(?:\\d+|and|or|" + "|".join(quantities.WORDS) + ")"
_NUMBERS = f"{_NUMBER}(?: {_NUMBER})*"
_UNIT = "|".join(name for large, small, _ in quantities.UNITS for name in (*large, *small))
_DATE = "|".join((*facts.DAYS, *facts.MONTHS)).lower()
_COLOUR = "red|blue|yellow|white|black|green|grey|pink|purple|orange|brown"
_THING = "|".join(f"{t}|{t.split(' ', 1)[-1]}" for t in wordplay.THINGS).lower()
_WORD = "|".join({*wordplay.PAIRS, *wordplay.PAIRS.values()})
_RHYMING = "|".join({word for family in rhymes.FAMILIES for word in family})
_MINE = "|".join({thing for kind in told.TOLD for thing in kind.things if thing}).lower()
_ANY = "|".join(map(re.escape, (*words.ALL_WORDS, *declining.TOPICS))).lower()
_THEME = "|".join(name for names in themes.THEMES for name in names)


def patterns() -> Iterator[tuple[str, dict[str, str]]]:
    """Every pattern of the generator, with what its slots may hold."""
    numbers = {"n": _NUMBER, "u": _UNIT, "v": _UNIT, "s": _NUMBER, "o": "\\w+",
               "a": _NUMBER, "b": _NUMBER, "l": _NUMBERS}  # fmt: skip
    dates = {"x": _DATE, "y": _DATE, "k": "day|month", "w": "week|year", "r": "before|after",
             "o": "last|\\d*(?:st|nd|rd|th)|" + "|".join(calendar._ORDINALS), "n": "\\d+",
             "a": "(?:7 |12 )?(?:days|months)(?: (?:of the|in a) (?:week|year))?"}  # fmt: skip
    colours = {"a": _COLOUR, "b": _COLOUR, "t": _THING}
    for module, slots in ((quantities, numbers), (calendar, dates), (humour, {})):
        for name, value in vars(module).items():
            if name.isupper() and isinstance(value, tuple) and isinstance(value[0], str):
                yield from ((pattern, slots) for pattern in value if name not in ("WORDS", "JOKES"))
    for pattern in (*wordplay.MIXING, *wordplay.COLOUR):
        yield pattern, colours
    for pattern in (*wordplay.EITHER, *wordplay.IS_IT):
        yield pattern, {"x": _COLOUR, "y": _COLOUR, "t": _THING}
    yield from ((pattern, dict.fromkeys("xpq", _WORD)) for pattern in wordplay.OPPOSITE)
    listed = f"(?:{_RHYMING}|or| )+"
    for pattern in (*rhymes.RHYME, *rhymes.WHICH_RHYMES):
        yield pattern, {"x": _RHYMING, "l": listed}
    yield from ((pattern, {"x": "\\w+", "y": "\\w+"}) for pattern in rhymes.DO_RHYME)
    names = {"x": "\\S+(?: \\S+)?"}
    for pattern in (*meeting.INTRODUCING, *meeting.CORRECTING, *meeting.WHO_AM_I):
        yield pattern, names
    yield from ((pattern, {}) for pattern in (*meeting.SPELL_ME, *ways_talk.MINE))
    for kind in told.TOLD:
        # Statements hold any words; only questions name a thing that a test can list.
        yield from ((pattern, {"t": _MINE}) for pattern in kind.asking)
    for ways, _ in (*about_quire.ABOUT, *about_quire.MOODS):
        yield from ((pattern, {}) for pattern in ways)
    asked = dict.fromkeys(("n", "v", "a", "e", "w"), _ANY)
    asked |= {"d": "\\d+", "p": "\\w+(?: \\w+)?", "c": "\\w+", "y": "\\d+",
              "g": "|".join(ways_unknown.LANGUAGES).lower()}  # fmt: skip
    yield from ((pattern, asked) for pattern in declining.MORE)
    yield from ((pattern, {"n": _NUMBER, "t": _THEME}) for pattern in themes.LIST)


def tool_patterns() -> Iterator[tuple[str, dict[str, str]]]:
    """The patterns of requests for tools."""
    dice = Dice("slots")
    for tool in spoken_tools.TOOLS:
        _, makers = tool.draw(dice)
        made = [maker(dice) for maker in makers]
        slots = {
            letter: "on|off" if isinstance(value, bool) else "\\d+" if isinstance(value, int)
            else "\\d{4}" if re.fullmatch("\\d\\d:\\d\\d", str(value))
            else "\\d+ *[a-z]+" if isinstance(maker, spoken_values.Measure) else r"\S+(?: \S+){0,2}"
            for letter, value, maker in zip("abcd", made, makers, strict=False)
        }  # fmt: skip
        yield from ((p, slots) for p in tool.asking if len(re.findall("[a-z]{2,}", p)) > 3)


def test_the_generator_has_no_pattern_for_a_visitors_question():
    chats = accepted()
    requests = [(accepting(pattern, slots), pattern) for pattern, slots in tool_patterns()]
    found = [
        f"{row}: {visit.said[-1]!r} is {pattern!r}"
        for row, visits in ROWS.items()
        for visit in visits
        for expression, pattern in (requests if visit.tools else chats)
        if expression.fullmatch(plain(visit.said[-1]))
    ]
    assert not found, "\n".join(found)


def test_the_generator_never_says_what_a_visitor_says():
    asked = {plain(visit.said[-1]) for visits in ROWS.values() for visit in visits}
    source = mix.stream(Dice("visitors"), lambda: False, mix.SHARES)
    said = {
        plain(turn.content)
        for document in islice(source, 6000)
        for turn in document.turns
        if turn.role == "user"
    }
    assert asked & said == set()


@cache
def accepted() -> tuple[tuple[re.Pattern[str], str], ...]:
    """What recognises each pattern of chats. Compiling them takes seconds."""
    return tuple((accepting(pattern, slots), pattern) for pattern, slots in patterns())


def test_what_the_generator_says_is_recognised_as_its_own():
    dice = Dice("recognised")
    recognised = [expression for expression, _ in accepted()]
    families = (meeting.meeting, quantities.comparing, quantities.sorting, quantities.stepping,
                quantities.converting, calendar.calendar, humour.joke, humour.haiku, humour.poem,
                wordplay.colours, wordplay.opposite, rhymes.rhyme, rhymes.rhyming, themes.theme,
                about_quire.about_quire, about_quire.mood)  # fmt: skip
    asked = [plain(family(dice).user) for family in families for _ in range(45)]
    known = sum(any(expression.fullmatch(text) for expression in recognised) for text in asked)
    assert known > 0.6 * len(asked)  # the rest is mistyped, or has words put in or left out


def test_there_are_enough_visitors_in_every_row():
    assert sum(len(visits) for visits in ROWS.values()) >= 300
    assert all(len(visits) >= 14 for visits in ROWS.values())


def test_no_question_stands_twice():
    asked = [visit.said for visits in ROWS.values() for visit in visits]
    assert len(asked) == len(set(asked))


def test_silence_and_one_refusal_for_all_fail_the_rows():
    refusal = Answer("Sorry, I don't know that. I am only a tiny demonstration model.")
    for row, visits in ROWS.items():
        assert not any(visit.rule(Answer()) for visit in visits), row
        passed = sum(visit.rule(refusal) for visit in visits)
        assert passed < len(visits) / 8 or row == "declines", row
    assert not all(visit.rule(refusal) for visit in ROWS["declines"])


def test_declining_texts_are_refusals_and_jokes_and_haiku_keep_their_form():
    from pocket.judges import haiku, jokes, refuses

    dice = Dice("forms")
    for _ in range(300):
        assert refuses(declining.declined(dice).answer)
        assert haiku(Answer(humour.haiku(dice).answer))
        assert jokes()(Answer(humour.joke(dice).answer))


def test_refusals_in_a_row_differ():
    dice = Dice("row")
    for _ in range(100):
        said = [exchange.answer for exchange in declining.refusals_on(dice)]
        assert len(said) == len(set(said))


def test_no_joke_comes_twice_in_a_row_of_jokes():
    dice = Dice("jokes")
    for _ in range(100):
        told = [exchange.answer for exchange in humour.jokes_on(dice)]
        assert len(told) == len(set(told))


def test_a_refusal_differs_from_the_two_before_it():
    dice = Dice("deaf")
    for _ in range(200):
        told = (declining.declined(dice).answer, declining.declined(dice).answer)
        assert declining.declined(dice, told).answer not in told


def test_sums_of_the_new_families_are_right():
    dice = Dice("right")
    for _ in range(500):
        asked, answer = (lambda e: (e.user, e.answer))(quantities.sorting(dice))
        found = sorted(map(int, re.findall(r"\d+", asked)))
        assert sorted(map(int, re.findall(r"\d+", answer))) == found


def test_numbers_to_sort_differ_and_come_in_many_kinds():
    dice = Dice("kinds")
    drawn = [quantities.numbers_to_sort(dice, dice.randint(2, 7)) for _ in range(500)]
    assert all(len(numbers) == len(set(numbers)) for numbers in drawn)
    falling = sum(numbers == sorted(numbers, reverse=True) for numbers in drawn)
    lengths = sum(len({len(str(number)) for number in numbers}) > 2 for numbers in drawn)
    assert falling > 0.2 * len(drawn)
    assert lengths > 0.1 * len(drawn)


def test_what_a_text_is_about_is_often_a_word_of_it():
    dice = Dice("about")
    makers = [spoken_values.topic, spoken_values.quoted]
    made = [spoken_values.draw_values(dice, makers) for _ in range(300)]
    within = sum(str(topic).lower() in str(text).lower() for topic, text in made)
    assert 0.25 * len(made) < within < 0.6 * len(made)
    assert all(str(topic).strip() for topic, _ in made)


def test_the_unit_of_an_amount_fits_its_name():
    fitting = {"weight": "g|kg", "distance": "km|m", "duration": "hours|minutes", "size": "cm|m|l"}
    dice = Dice("units")
    drawn = [
        item
        for tool in longer_requests.TOOLS
        for _ in range(60)
        for item in spoken_tools.spoken(dice, tool)[2].arguments.items()
        if item[0] in fitting
    ]
    assert {key for key, _ in drawn} == set(fitting)
    assert all(re.fullmatch(rf"\d+ ?(?:{fitting[key]})", str(value)) for key, value in drawn)


def test_a_greeting_is_not_good_news():
    dice = Dice("greeting")
    *_, pattern = ways_moods.HAPPY
    said = [phrasing.expand(dice, pattern) for _ in range(2000)]
    assert any("lovely morning" in text for text in said)
    assert not any("good" in text for text in said)


def test_a_typo_may_stand_before_punctuation():
    dice = Dice("typos")
    typed = {phrasing.careless(dice, "sort: {l}, please!") for _ in range(200)}
    assert {"srot: {l}, please!", "sort: {l}, plesae!"} <= typed
    assert all(" {l}, " in text and ": " in text and text[-1] == "!" for text in typed)
