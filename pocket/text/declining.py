"""Polite refusals in words that fit the question, and never the same words twice running."""

import re
from typing import Final

from pocket.text import phrasing, unknown, values, ways_unknown, ways_wider, words
from pocket.text.dice import Dice
from pocket.text.document import Exchange

_BY_KIND: Final[tuple[tuple[str, tuple[str, ...]], ...]] = (
    (
        r"capital",
        (
            "Sorry, I don't know that capital. I know only a few.",
            "I'm afraid that capital is not among the few I know.",
        ),
    ),
    (
        r"^(translate|how do you say)",
        ("Sorry, I can't translate that.", "I'm afraid my languages end here."),
    ),
    (
        r"^(write|draft|compose|generate|plan|create|design|build|make|continue|rewrite)",
        (
            "Sorry, I can't write that. I am too small for it.",
            "I'm afraid writing that is beyond me.",
        ),
    ),
    (
        r"^(fix|debug|solve|prove|do|run|help|can you|could you)",
        (
            "Sorry, I can't do that. I am only a tiny model.",
            "I'm afraid I am not able to do that.",
        ),
    ),
    (
        r"^(recommend|should|which|give me (advice|tips)|is it|rate|suggest|advise)",
        (
            "Sorry, I can't give you good advice on that.",
            "I'm afraid I am too small to judge that.",
        ),
    ),
    (r"^(who|whose)", ("Sorry, I don't know who.", "I'm afraid I don't know them.")),
    (r"^(why)", ("Sorry, I don't know why.", "I'm afraid the reason is beyond me.")),
    (r"^(when|what year)", ("Sorry, I don't know when.", "I'm afraid I don't know the date.")),
    (r"^(where)", ("Sorry, I don't know where.", "I'm afraid I don't know the place.")),
    (
        r"^(how (many|much|far|old|tall|big|long|high|fast|deep))",
        ("Sorry, I don't know that number.", "I'm afraid I don't know how much that is."),
    ),
    (
        r"^(how)",
        ("Sorry, I don't know how that is done.", "I'm afraid I can't tell you how."),
    ),
    (
        r"^(explain|describe|compare|summari|tell me (more |)about|what are the|discuss|teach)",
        (
            "Sorry, explaining that is beyond me. I am a tiny model.",
            "I'm afraid that is too much for a model of my size.",
        ),
    ),
)

TOPICS: Final = (
    *ways_unknown.TOPICS,
    *("photosynthesis", "inflation", "bitcoin", "gravity", "evolution", "vaccines", "Napoleon"),
    *("black holes", "DNA", "the stock market", "climate change", "the French revolution", "jazz"),
    *("Einstein", "the Roman empire", "relativity", "the moon landing", "vitamin C", "volcanoes"),
    *("machine learning", "Kubernetes", "SQL", "recursion", "the Olympics", "Beethoven", "Plato"),
    *("diabetes", "mortgages", "tax law", "sourdough", "yoga", "the world cup", "Picasso", "opera"),
    *("the internet", "electricity", "whales", "the pyramids", "penicillin", "chess openings"),
    *("marathon training", "depression", "headaches", "insurance", "Java", "Linux", "my laptop"),
    *("the European Union", "war", "religion", "politics", "love letters", "the universe", "stars"),
    *("cancer", "a flat tyre", "my printer", "back pain", "an old bike", "solar panels", "rent"),
    *("world hunger", "steam engines", "the periodic table", "neurons", "earthquakes", "the GDP"),
)
"""Things the world knows and the model does not."""

MORE: Final = (
    *ways_unknown.ASKED,
    *ways_wider.DECLINED,
    "[who|what|when|why|how|where] [is|was|did|does|do|are] {w}[ {e}|]",
    "[explain|teach me|describe|summarize|discuss] {w}[ in simple words| in detail| to a child|]",
    "[tell me|what do you know] about {w}",
    "[what|who] [caused|started|ended|invented|discovered|changed|explains] {w}",
    "[i need|give me|do you have] [help|advice|tips|information|facts] [with|on|about] {w}",
    "[how|why] [does|do|did|can] {w} [work|happen|end|begin|matter|get worse|help|change]",
    "[how do i|how can i|how to|can you] [fix|learn|understand|avoid|start|treat|improve|buy] {w}",
    "[is|are] {w} [good|bad|dangerous|important|true|real|expensive|worth it]",
    "[write|draft|make] [me |][an essay|a report|a text|a speech|a summary] [on|about] {w}",
    "[what|which] [book|film|course|tool] [about|on|for] {w} [is good|should i take|is best]",
    "how [many|much|long|old|big|far|tall|deep] [is|are|was|were] {w}",
    "[who|which person] is the [best|greatest|most famous] [expert|person|name] in {w}",
    "[what|which] is the [capital|president|king|population|currency|size] of {c}",
    "[my|a friend's] [teacher|boss|mother|friend] [wants|needs|asks about] {w}[, help me|]",
    "[continue|finish|rewrite|correct|shorten] [this|my] [text|sentence|story]: {e} {e} {e}",
    "who [invented|discovered|wrote|painted|founded|built|won|composed|directed] the {n}",
    "who [was|is] the [first|last|best|next|richest|{d}th] {n} of {c}",
    "who [will|would|should|could] [win|be|become|have] the {n}",
    "what is [the history|the theory|the origin|the cause|the price|the population|the weight] "
    "of {e}",
    "what is [{e} theory|a {e} {n}|{a} {n}|quantum {n}|dark {n}|the {n} of {e}]",
    "what['s| is] the [best|cheapest|nearest|newest|fastest] {n} [in {c}|near me|for me|here]",
    "what [should|can|must|could] i [take|eat|wear|read|buy|do|say|cook] [for|against|about"
    "|with] [a|my] {n}",
    "what [does|do] the [word|phrase|name] {e} mean",
    "[explain|describe|summarize|discuss|teach me] [the {n}|{e}|{n} {n}|how {n}s work][ simply| "
    "in detail| briefly| to a child|]",
    "[how do i|how can i|how to|how do you|how should i] {v} [a|my|the] [{a} |]{n}[ in {c}|]",
    "how [tall|big|far|old|heavy|high|long|deep|fast] is [the {n}|{p}|{c}|the {e} {n}]",
    "how many [people|{n}s|cars|{a} {n}s] [live in {c}|are there in {c}|are in the world|exist]",
    "how much [money|does the {n} cost|is a {n}|should i pay for a {n}]",
    "[write|draft|make|create|plan|design] [me |]a [{n} plan|speech|letter|report|{n} {n}"
    "|website|cv|contract][ for {p}| about {e}|]",
    "[can you|could you|please|will you] [fix|repair|{v}|buy|clean|check|book] my {n}",
    "[debug|fix|review|improve|correct] [this|my code|my text|the {n}]: {e} {e}",
    "[do|finish|check|grade] my [homework|taxes|essay|{n}]",
    "[give|tell] me [advice|tips|your opinion|some hints] [about|on|for] [my |]{n}[s|]",
    "[should|could] i {v} [my|the|a] {n}",
    "why [is|was|are] the {n} [so |]{a}",
    "why [do|does|did] [{n}s|{p}|the {n}] {v}",
    "when [did|will|was] [the {n}|{p}] [{v}|end|begin|happen|born]",
    "where [is|was|can i find|do i get] [the|a] {n}",
    "translate [{e} {e}|the {n}|'the {a} {n}'|this] [to|into] [Latin|Swahili|Finnish|Klingon"
    "|Greek|Hindi|{e}]",
    "[tell me|what do you know|talk] about [the history of {c}|{n} {n}|{p}|the {n}|the {e} war]",
    "what [happened|will happen] [in {y}|to {p}|to the {n}|in {c}]",
    "[recommend|suggest] [me |]a [good |]{n} [for {p}|in {c}|about {e}|]",
    "what['s| is] [the plot|the end|the meaning|the moral|a summary] of [{e}|the {n}|the {a} {n}]",
    "solve [this|the equation|{y} x = {d}|for x]",
    "[what|which] [{n}|{n} {n}] [is|was] [better|best|the {a}st|right]",
    "i [think|believe|heard] [that |]the {n} is {a}",
    "[my|the] {n} [does not work|is broken|is {a}|hurts]",
)


_SMALL: Final = words.split("""
the a an of in on for to with by from at and or but if so then that this it he she we they you i my
your his our is are was will would could should must can do does did have has had not no very too
much many some any all about over under after before when where what which who how why up out""")


def salad(dice: Dice) -> str:
    """Words of a language in no order that means anything here."""
    count = dice.randint(3, 9)
    return " ".join(
        dice.choice(_SMALL) if dice.chance(0.5) else values.word(dice) for _ in range(count)
    )


def _kinds(question: str) -> tuple[str, ...]:
    """The refusals that fit a question, the special ones first."""
    low = re.sub(r"^(please|hey|hello|hi|ok|so|and|well|pocket|now)[,!]? ", "", question.lower())
    fitting = next((texts for form, texts in _BY_KIND if re.search(form, low)), ())
    return fitting or unknown.REFUSALS


def declined(dice: Dice, told: tuple[str, ...] = ()) -> Exchange:
    """Something the model cannot do, refused in words not used before."""
    if dice.chance(0.75):
        pattern = phrasing.expand(dice, dice.choice(MORE))
        while "{w}" in pattern:
            pattern = pattern.replace("{w}", dice.choice(TOPICS), 1)
        pattern = pattern.replace("{g}", dice.choice(ways_unknown.LANGUAGES))
        question = phrasing.say(dice, unknown.fill(dice, pattern))
    elif dice.chance(0.25):
        return Exchange(phrasing.say(dice, salad(dice)), _fresh(unknown.REFUSALS, told), _UNKNOWN)
    else:
        question = unknown.refusal(dice).user
    return Exchange(question, _fresh(_kinds(question), told), _UNKNOWN)


_UNKNOWN: Final = "I don't know this, so I say so."


def _fresh(fitting: tuple[str, ...], told: tuple[str, ...]) -> str:
    """The first text that is neither of the last two told, which there always is."""
    return next(text for text in (*fitting, *unknown.REFUSALS) if text not in told[-2:])


def refusals_on(dice: Dice) -> list[Exchange]:
    """Refusals in a row, each in other words."""
    told: tuple[str, ...] = ()
    out = []
    if dice.chance(0.5):
        out.append(unknown.refusal(dice))
        told = (out[-1].answer,)
    for _ in range(dice.choice((1, 2, 2)) if out else dice.choice((2, 2, 3))):
        out.append(declined(dice, told))
        told = (*told, out[-1].answer)
    return out
