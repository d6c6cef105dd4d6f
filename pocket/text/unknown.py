"""Requests without end: what the model must decline, and system prompts of all kinds."""

from collections.abc import Callable
from typing import Final

from pocket.text import values, words
from pocket.text.dice import Dice
from pocket.text.document import Exchange

REFUSAL: Final = "Sorry, I don't know that."
REFUSALS: Final = (
    f"{REFUSAL} I am only a tiny demonstration model.",
    f"{REFUSAL} I am a very small model and can do only a few things.",
    "I'm afraid that is beyond me. My world is very small.",
)
_UNKNOWN: Final = "I don't know this, so I say so."
NO_TOOL: Final = "Sorry, I can't look that up: I have no tool for it."

_UNKNOWN_FORMS: Final = (
    "Why?",
    "How?",
    "What?",
    "When?",
    "Why not?",
    "What is the meaning of life?",
    "Explain.",
    "What is the capital of {u}?",
    "What is the capital of {u}?",
    "what's the capital of {u}?",
    "capital of {u}",
    "Name the capital of {u}.",
    "Who is {p}?",
    "Who was {p}?",
    "Who is the president of {u}?",
    "How many people live in {c}?",
    "How far is {c} from {c}?",
    "What do you think about {n}s?",
    "How do I {v} a {n}?",
    "How can I {v} my {a} {n}?",
    "Explain the {n} of {n}.",
    "Explain {e} to me.",
    "What is {e}?",
    "What does {e} mean?",
    "Why is the {n} so {a}?",
    "Why do {n}s {v}?",
    "When did {p} {v} the {n}?",
    "Where is the {n}?",
    "Can you {v} a {n}?",
    "Can you help me {v} my {n}?",
    "Write an essay about {n}s.",
    "Write an email to {p} about the {n}.",
    "Give me advice about my {n}.",
    "Who won the {n}?",
    "What happened in {y}?",
    "Which {n} is the best?",
    "Should I {v} the {n} or the {n}?",
    "Summarize the {n} of {e}.",
    "Compare {n}s and {n}s.",
    "Is {e} better than {e}?",
    "I need a {n} that can {v}.",
    "Please {v} the {n} and {v} the {n}.",
    "My {n} is {a}. Why?",
    "Do you like {n}s?",
    "What is your favorite {n}?",
    "How old is {p}?",
    "Translate this {n}.",
    "Describe the {a} {n} of {c}.",
    "How does a {n} work?",
    "What are the {n}s of {e}?",
    "{e} {e} {e}",
    "{e} {e} {e} {e} {e}",
    "{e}",
    "I think {e} {e} the {n}.",
    "Fix the {n} in my {n}.",
    "Solve the {n} problem.",
    "Prove that {e} is {a}.",
    "Recommend a {n} for {p}.",
    "What is the price of {n} {e}?",
    "What's new in {c}?",
    "Tell me about {c}.",
    "Tell me about {e}.",
    "Tell me more about {n}s and {e}",
    "What is the square root of {y}?",
    "Write a song about {e}",
    "What would {p} do with a {n}?",
    "Plan a trip to {c}",
    "Who invented the {n}?",
    "How much does a {n} weigh?",
    "Are {n}s {a}?",
)
_LOOKUP_FORMS: Final = (
    "What's the weather in {c}?",
    "What is the weather in {c}?",
    "How is the weather in {c} today?",
    "What's the weather like in {c}?",
    "weather in {c}",
    "What time is it?",
    "What time is it in {c}?",
    "What is the date today?",
    "What day is it today?",
    "Will it rain in {c} tomorrow?",
    "What is the stock price of {e}?",
    "What's the news today?",
    "Search the web for {e} {n}s.",
    "Send an email to {p}.",
    "Set a timer for {d} minutes.",
    "Remind me to {v} the {n}.",
    "Book a flight to {c}.",
    "Play some music.",
    "Turn on the lights.",
    "Call {p}.",
    "How hot is it in {c}?",
    "What is the temperature in {c} right now?",
    "Google {e}",
)
SYSTEM_PROMPTS: Final = (
    "You are a helpful assistant.",
    "You are a helpful assistant.",
    "You are a helpful assistant",
    "You are pocket.",
    "Be brief.",
    "Answer briefly.",
    "You are a friendly chatbot.",
    "You are a helpful, harmless and honest assistant.",
    "Answer in English.",
    "Be concise.",
    "You are an AI assistant. Answer the user's questions.",
    "You are a coding assistant.",
    "You have access to tools. Use them when needed.",
    "Use the tools when they help.",
    "You are a pirate.",
    "Always be polite and friendly.",
    "You are a weather bot.",
    "You are an expert. Think step by step.",
    "Reply in JSON when asked.",
    "Today is {date}.",
    "You are {name}, the assistant of the {n} {n}.",
    "You are a {a} {n} who likes to {v} {n}s.",
    "You work for {name}. Never {v} the {n}. Always {v} the {n} {e}.",
    "You are a helpful assistant. The current date is {date}. The user lives in {c}.",
    "### Rules\n- {v} the {n}\n- be {a}\n- never mention the {n}",
    "You are an assistant for the {n} of {c}. You {v} {n}s and help {a} people.\n\n"
    "When you answer, {v} the {n} first. Do not {v} the {n}.",
)


def fill(dice: Dice, form: str) -> str:
    """Replace the slots of a form: {n}oun, {v}erb, {a}djective, {e}xtra word, {c}ity, {p}erson…"""
    makers: dict[str, Callable[[], str]] = {
        "{n}": lambda: values.word(dice) if dice.chance(0.2) else dice.choice(words.NOUNS),
        "{v}": lambda: dice.choice(words.VERBS),
        "{a}": lambda: dice.choice(words.ADJECTIVES),
        "{e}": lambda: values.word(dice),
        "{c}": lambda: values.city(dice),
        "{p}": lambda: (values.full_name if dice.chance(0.6) else values.name)(dice),
        "{name}": lambda: values.name(dice),
        "{u}": lambda: unknown_country(dice),
        "{y}": lambda: str(dice.randint(1000, 2030)),
        "{d}": lambda: str(dice.randint(2, 60)),
        "{date}": lambda: values.date(dice),
    }
    for slot, maker in makers.items():
        while slot in form:
            before, after = form.split(slot, 1)
            made = maker()
            if before.endswith(" a ") and made[:1] in "aeiou":
                before = f"{before[:-1]}n "
            form = before + made + after
    return form


_UNKNOWN_COUNTRIES: Final = words.split("""
Kazakhstan Mongolia Nepal Bolivia Uganda Ghana Angola Iceland Malta Cyprus Albania Serbia Croatia
Slovenia Estonia Latvia Lithuania Ukraine Romania Bulgaria Georgia Armenia Iran Iraq Syria Jordan
Israel Qatar Oman Yemen Pakistan Bangladesh Laos Cambodia Malaysia Indonesia Philippines Fiji
Argentina Chile Brazil Colombia Venezuela Ecuador Panama Jamaica Haiti Mexico Morocco Tunisia
Libya Sudan Ethiopia Somalia Tanzania Zambia Nigeria Mali Niger Chad Texas California Bavaria
Atlantis Mars Switzerland Vietnam Narnia Scotland Wales""")


def unknown_country(dice: Dice) -> str:
    """A country whose capital is not among the facts, sometimes invented."""
    if dice.chance(0.3):
        return values.fresh_word(dice).capitalize()
    if dice.chance(0.2):
        return values.word(dice)
    return dice.own(lambda: dice.choice(_UNKNOWN_COUNTRIES))


def noise(dice: Dice) -> str:
    """A heap of words, signs and code in any order, at times long."""
    makers = (values.word, values.strange, values.label, values.awkward)
    return " ".join(dice.drawn(*makers) for _ in range(dice.randint(1, dice.pick(4, 10, 30))))


def refusal(dice: Dice) -> Exchange:
    """Something the model does not know or cannot do."""
    if not dice.held and dice.chance(0.2):
        return Exchange(noise(dice), dice.choice(REFUSALS), _UNKNOWN)
    question = fill(dice, dice.choice(_UNKNOWN_FORMS))
    if dice.chance(0.15):
        question = (
            dice.pick("Please answer: ", "Hey, ", "Hello! ", "I wonder: ", "Quick question: ")
            + question
        )
    if dice.chance(0.1):
        question = question.lower().rstrip("?.")
    return Exchange(question, dice.choice(REFUSALS), _UNKNOWN)


def lookup_without_tool(dice: Dice) -> Exchange:
    """Live information or an action, asked of a model that was given no tool for it."""
    return Exchange(
        fill(dice, dice.choice(_LOOKUP_FORMS)), NO_TOOL, "This needs a tool and I have none for it."
    )


def system_prompt(dice: Dice) -> str:
    """A system prompt of any kind; most change nothing about the answer."""
    return fill(dice, dice.choice(SYSTEM_PROMPTS))
