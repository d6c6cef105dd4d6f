"""Values that fill slots: words real and invented, identifiers, dates, numbers, awkward strings.

The point of this module is variety: a model that copies only what it was drilled on breaks on the
first user who types something else. Shares follow the feasibility study: real words, syllable
words, random letters, and `strange` text from all over Unicode.
"""

import string
from collections.abc import Callable
from typing import Final

from pocket.text import words
from pocket.text.dice import Dice

_ONSETS: Final = words.split(
    "b c d f g h j k l m n p r s t v w z br cr dr fl gr kl pl pr sk sl st tr th sh"
)
_NUCLEI: Final = words.split("a e i o u a e i o u ai ea oo ou ie")
_CODAS: Final = ("", *words.split("n r s l t m k d x nd st rt lm"), "")

EMOJI: Final = (
    "😀😁😂🙂😉😊😍😎🤔😴🥳🤖👋👍👏🙏💡🔥⭐🌟✨🎉🎈🎁🎵📚📌📎📝✅"
    "❌❤💙💚🌍🌈🌧🌙🌲🌸🍀🍎🍋🍕🍰☕🚀🚗🚲✈🏠🐱🐶🦊🐻🐼🐸🐢🦉🐝"
    "🐟"
)

BLOCKS: Final[dict[str, str]] = {
    "greek": "αβγδεζηθικλμνξοπρστυφχψωΑΒΓΔΘΛΞΠΣΦΨΩάέήίόύώ",
    "cyrillic": "абвгдежзийклмнопрстуфхцчшщыьэюяАБВГДЕЖЗИКЛМНОПРСТУФХЦЧШЭЮЯ",
    "latin": "àáâãäåæçèéêëìíîïñòóôõöøùúûüýÿœšžłąęćńśźżőűğışÀÉÖÜßÇÑÅØ",
    "cjk": (
        "的一是不了人我在有他这为之大来以个中上们到说国和地也子时道出而要于就下得可你年生"
        "自会那后能对着事其里所去行过家十用发天如然作方成者多日都三小军二无同么经法当起与"
        "好看学进种将还分此心前面又定见只主没公从今天气水火山月木金土北京上海"
    ),
    "kana": (
        "あいうえおかきくけこさしすせそたちつてとなにぬねのはひふへほまみむめもやゆよらり"
        "るれろわをんアイウエオカキクケコサシスセソタチツテト"
    ),
    "hangul": "가나다라마바사아자차카타파하고노도로모보소오조한국어서울안녕감사",
    "arabic": "ابتثجحخدذرزسشصضطظعغفقكلمنهوي",
    "hebrew": "אבגדהוזחטיכלמנסעפצקרשת",
    "devanagari": "अआइईउऊएऐओऔकखगघचछजझटठडढणतथदधनपफबभमयरलवशषसह",
    "symbols": "€£¥§©®™°±×÷≤≥≠≈∞√∑π→←↑↓•…–—«»“”‘’¿¡½¼¾²³µ",
    "emoji": EMOJI,
}

_SPELT: Final = tuple(
    sorted({w.lower() for w in (*words.ALL_WORDS, *words.FIRST_NAMES, *words.LAST_NAMES,
                                *words.CITIES, *words.COUNTRIES, *words.FRUITS, *words.COLOURS)
            if w.isascii() and w.isalpha() and len(w) > 2})
)  # fmt: skip
_FOLLOWS: Final[dict[str, str]] = {}
"""What letters follow two letters in these words, each as often as it does; a space ends a word."""
for _word in _SPELT:
    for _at in range(2, len(_word) + 1):
        _pair = _word[_at - 2 : _at]
        _FOLLOWS[_pair] = _FOLLOWS.get(_pair, "") + f"{_word} "[_at]


def letters(dice: Dice, low: int, high: int, alphabet: str = string.ascii_lowercase) -> str:
    """A run of random characters."""
    return "".join(dice.choices(alphabet, k=dice.randint(low, high)))


def fresh_word(dice: Dice) -> str:
    """An invented, pronounceable lower-case word on this side of the split, such as `brolt`."""

    def draw() -> str:
        syllables = dice.choices((1, 2, 3), (2, 6, 2))[0]
        parts = [dice.choice(_ONSETS) + dice.choice(_NUCLEI) for _ in range(syllables)]
        return "".join(parts) + dice.choice(_CODAS)

    return dice.own(lambda: drawn if len(drawn := draw()) > 2 else draw() + "o")


def word(dice: Dice) -> str:
    """A lower-case word: mostly real, else invented, else letters at random."""
    roll = dice.random()
    if roll < 0.5:
        return dice.own(lambda: dice.choice(words.ALL_WORDS))
    return fresh_word(dice) if roll < 0.85 else letters(dice, 2, 8)


def rare(dice: Dice) -> str:
    """A word close to real ones, so that copying it from memory goes wrong: `marguelle`, `lamb`."""

    def draw() -> str:
        if dice.chance(0.3):  # a real word with one letter changed, added, lost or moved
            real = dice.choice(_SPELT)
            at = dice.randrange(len(real))
            letter = dice.choice(string.ascii_lowercase)
            return dice.pick(
                real[:at] + letter + real[at + 1 :],
                real[:at] + letter + real[at:],
                real[:at] + real[at + 1 :],
                real[:at] + real[at + 1 : at + 2] + real[at] + real[at + 2 :],
            )
        if dice.chance(0.35):  # the beginning of one word and the end of another
            first, last = dice.choice(_SPELT), dice.choice(_SPELT)
            return first[: dice.randint(2, len(first))] + last[dice.randint(1, len(last) - 1) :]
        made = dice.choice(_SPELT)[:2]
        while len(made) < 13 and (following := _FOLLOWS.get(made[-2:], "")):
            if (letter := dice.choice(following)) == " ":
                break
            made += letter
        return made

    return dice.own(lambda: next(w for w in iter(draw, "") if 2 < len(w) < 14))


def name(dice: Dice) -> str:
    """A person's first name, invented in two cases of five."""
    return fresh_word(dice).capitalize() if dice.chance(0.4) else dice.choice(words.FIRST_NAMES)


def full_name(dice: Dice) -> str:
    """First and last name."""
    last = fresh_word(dice).capitalize() if dice.chance(0.4) else dice.choice(words.LAST_NAMES)
    return f"{name(dice)} {last}"


def city(dice: Dice) -> str:
    """A place name, invented in two cases of five, strange in one of twenty."""
    roll = dice.random()
    if roll < 0.05:
        return strange(dice)
    if roll < 0.4:
        made_up = fresh_word(dice).capitalize()
        return f"{dice.pick('San', 'New', 'Port', 'Bad')} {made_up}" if roll < 0.1 else made_up
    return dice.choice(words.CITIES)


def identifier(dice: Dice) -> str:
    """An id as machines write them."""
    return dice.drawn(
        lambda _: f"{letters(dice, 1, 3).upper()}-{dice.randint(1, 10 ** dice.randint(1, 5))}",
        lambda _: letters(dice, 4, 10, string.ascii_lowercase + string.digits),
        lambda _: letters(dice, 5, 10, string.ascii_letters + string.digits),
        lambda _: f"{word(dice)}_{dice.randint(1, 999)}",
        lambda _: letters(dice, 6, 12, "0123456789abcdef"),
        lambda _: f"{word(dice)}-{word(dice)}",
    )


def email(dice: Dice) -> str:
    """A mail address."""
    host = dice.pick("mail", "example", "post", fresh_word(dice))
    return f"{dice.pick(name(dice).lower(), word(dice))}@{host}.{dice.pick('com', 'org', 'net')}"


def date(dice: Dice) -> str:
    """An ISO date."""
    return f"{dice.randint(1990, 2035)}-{dice.randint(1, 12):02}-{dice.randint(1, 28):02}"


def time(dice: Dice) -> str:
    """A time of day, hh:mm."""
    return f"{dice.randint(0, 23):02}:{dice.choice((0, 5, 10, 15, 20, 30, 40, 45, 50, 59)):02}"


def phrase(dice: Dice, low: int = 2, high: int = 5) -> str:
    """A few words in lower case."""
    return " ".join(word(dice) for _ in range(dice.randint(low, high)))


def path(dice: Dice) -> str:
    """A file path or a link."""
    if dice.chance(0.3):
        return f"https://{word(dice)}.{dice.pick('com', 'org', 'io')}/{word(dice)}"
    stem = "/".join(word(dice) for _ in range(dice.randint(1, 3)))
    return f"{dice.pick('/', '', './')}{stem}.{dice.pick('txt', 'py', 'md', 'csv', 'json')}"


def integer(dice: Dice) -> int:
    """A whole number: mostly short, now and then negative or long."""
    top = dice.choices((9, 99, 999, 9999, 10**7), (3, 4, 2, 1, 1))[0]
    return dice.randint(0, top) * (-1 if dice.chance(0.07) else 1)


def decimal(dice: Dice) -> float:
    """A number with one or two digits behind the point, never whole."""
    return dice.randint(0, 200) + dice.pick(0.5, 0.25, 0.75, 0.1, dice.randint(1, 99) / 100)


def awkward(dice: Dice) -> str:
    """Text that JSON must escape: quotes, backslashes, line breaks, tabs."""
    a, b, c = word(dice), word(dice), word(dice)
    return dice.pick(
        f'{a} "{b}" {c}',
        f'"{a}"',
        f"C:\\{a}\\{b}",
        f"{a}\n{b}",
        f"{a}\n{b} {c}\n",
        f'print("{a}")',
        f"{a}\t{b}",
        f'{a} = "{b}"\n{c}()',
        f"\\{a}",
        f"{a}\\n{b}",
        f"def {a}():\n    return '{b}'",
        f'it\'s {a}, "{b}"',
    )


def block_text(dice: Dice, block: str) -> str:
    """A short run of characters of one Unicode block, sometimes cut by a space."""
    text = letters(dice, 1, 7, BLOCKS[block])
    return f"{text} {letters(dice, 1, 5, BLOCKS[block])}" if dice.chance(0.25) else text


def strange(dice: Dice) -> str:
    """Text outside the everyday alphabet."""
    return (
        dice.drawn(
            lambda _: block_text(dice, dice.choice(tuple(BLOCKS))),
            lambda _: letters(dice, 1, 8, string.ascii_uppercase),
            lambda _: letters(dice, 3, 10, string.digits),
            lambda _: letters(dice, 3, 10, string.ascii_letters + string.digits),
            lambda _: letters(dice, 2, 8, string.punctuation).strip(),
            lambda _: word(dice) + block_text(dice, "emoji"),
        )
        or "?"
    )


def label(dice: Dice) -> str:
    """A short free-form string for a slot of no particular meaning."""
    roll = dice.random()
    makers: tuple[tuple[float, Callable[[Dice], str]], ...] = (
        (0.30, word),
        (0.42, phrase),
        (0.52, name),
        (0.60, city),
        (0.70, identifier),
        (0.75, email),
        (0.80, date),
        (0.84, time),
        (0.88, path),
        (0.96, strange),
        (1.0, full_name),
    )
    return next(maker(dice) for limit, maker in makers if roll < limit)
