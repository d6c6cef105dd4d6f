"""Jokes, poems, colours, opposites, rhymes, lists, Quire itself, and what pocket does not know."""

from typing import Final

from pocket.judges import begins, declines, haiku, jokes, lists, says, says_one_of, verse
from pocket.visitors.visit import Visit, each, visit

_JOKE: Final = "Why did the bicycle fall over? It was two-tired! 😄"

JOKES: Final[tuple[Visit, ...]] = (
    *each(
        (
            "got any jokes?",
            "make me laugh",
            "u know anything funny?",
            "know a good joke?",
            "joke me",
            "I could use a laugh right now",
            "hit me with your best joke",
            "be funny",
            "Could I hear a joke, perhaps?",
            "entertain me with a pun",
            "tel me a jok",
            "I'd love a dad joke",
        ),
        jokes(),
    ),
    *each(
        (
            "haha, one more!",
            "again",
            "lol next",
            "more jokes please",
            "do you have a different one?",
            "that was good, give me another joke",
        ),
        jokes(unlike=_JOKE),
        before=("Tell me a joke.", _JOKE),
    ),
)

POEMS: Final[tuple[Visit, ...]] = (
    *each(
        (
            "haiku, go!",
            "Compose a haiku for me",
            "can u do a haiku?",
            "I want a haiku about the sea",
            "a haiku on winter, if you will",
            "let's hear a haiku",
            "rain would make a fine haiku, try it",
            "do you know how to write haikus?",
            "5-7-5 poem please",
            "now a haiku starring a cat",
        ),
        haiku,
    ),
    *each(
        (
            "rhyme something for me",
            "compose a little poem, would you?",
            "got a poem for me?",
            "I'd like to read a poem",
            "i feel like a poem",
            "recite a verse",
        ),
        verse,
    ),
)

COLOURS: Final[tuple[Visit, ...]] = (
    visit("what do you get if you mix blue and yellow paint?", rule=says("green")),
    visit("red plus white makes which colour", rule=says("pink")),
    visit("mixing red with blue gives", rule=says("purple")),
    visit("the sky, what colour do we see?", rule=says("blue")),
    visit("which color is grass usually", rule=says("green")),
    visit("bananas are what colour?", rule=says("yellow")),
    visit("what shade is snow?", rule=says("white")),
    visit("would you call a tomato red or blue?", rule=says("red")),
    visit("if i blend yellow and red, what comes out", rule=says("orange")),
    visit("colour of coal?", rule=says("black")),
    visit("carrots come in which colour", rule=says("orange")),
    visit("and a lemon, what colour is it", rule=says("yellow")),
    visit("black and white together make?", rule=says_one_of("grey", "gray")),
    visit("chocolate, its colour?", rule=says("brown")),
)  # fmt: skip

OPPOSITES: Final[tuple[Visit, ...]] = (
    visit("hot. and the opposite?", rule=says("cold")),
    visit("give me the antonym for tall", rule=says("short")),
    visit("begin has a contrary, which?", rule=says_one_of("end", "finish", "stop")),
    visit("If something isn't cheap, it is...?", rule=says_one_of("expensive", "dear")),
    visit("not empty but ...", rule=says("full")),
    visit("loud - and what's the opposite of that?", rule=says_one_of("quiet", "silent", "soft")),
    visit("what do you call the reverse of heavy?", rule=says("light")),
    visit("can you think of the opposite for rich?", rule=says("poor")),
    visit("strong is the opposite of which word", rule=says("weak")),
    visit("I say up, you say?", rule=says("down")),
    visit("antonyms: dirty?", rule=says("clean")),
    visit("what would be the exact opposite of always", rule=says("never")),
    visit("oposite of early", rule=says("late")),
    visit("buy is to sell as push is to?", rule=says("pull")),
    visit("name a word that means the opposite of winter", rule=says("summer")),
)

_CAT: Final = ("hat", "bat", "mat", "rat", "sat", "fat", "flat", "pat", "that", "chat", "vat")
RHYMES: Final[tuple[Visit, ...]] = (
    visit("i need a rhyme for cat", rule=says_one_of(*_CAT)),
    visit("cat rhymes with what?", rule=says_one_of(*_CAT)),
    visit("find me something that rhymes with moon",
          rule=says_one_of("soon", "spoon", "noon", "tune", "balloon", "june", "loon")),
    visit("which word sounds like light at the end",
          rule=says_one_of("night", "bright", "right", "fight", "sight", "kite", "white", "might")),
    visit("rhyme time: day!",
          rule=says_one_of("say", "way", "play", "may", "stay", "pay", "gray", "clay", "ray")),
    visit("tree, rhyme it", rule=says_one_of("bee", "sea", "free", "see", "key", "knee", "three")),
    visit("do you know words rhyming with house?", rule=says_one_of("mouse", "blouse", "louse")),
    visit("so dog and frog, is that a rhyme?", rule=begins("yes")),
    visit("cat / moon: do these two rhyme?", rule=begins("no")),
    visit("suggest a rhyme on star", rule=says_one_of("car", "far", "bar", "jar", "guitar")),
    visit("for my song i need a word that rhymes with rain",
          rule=says_one_of("train", "plane", "pain", "brain", "again", "lane", "main", "chain",
                           "grain")),
    visit("words ending like 'cake'?",
          rule=says_one_of("lake", "make", "snake", "take", "bake", "wake", "rake", "shake")),
    visit("ryhme for king", rule=says_one_of("ring", "sing", "thing", "wing", "spring", "bring")),
    visit("bear... chair... that rhymes, no?", rule=begins("yes")),
)  # fmt: skip

_FRUIT: Final = {
    "apple", "apples", "pear", "pears", "plum", "plums", "cherry", "cherries", "peach", "peaches",
    "mango", "mangoes", "mangos", "banana", "bananas", "lemon", "lemons", "orange", "oranges",
    "grape", "grapes", "melon", "melons", "fig", "figs", "kiwi", "kiwis", "strawberry",
    "strawberries", "pineapple", "apricot", "lime", "raspberry", "blueberry", "papaya",
}  # fmt: skip
_ANIMAL: Final = {
    *[
        "cat",
        "dog",
        "fox",
        "owl",
        "bear",
        "wolf",
        "frog",
        "bird",
        "mouse",
        "horse",
        "rabbit",
        "tiger",
        "lion",
        "duck",
        "goat",
        "sheep",
        "cow",
        "pig",
        "hen",
        "bee",
        "ant",
        "whale",
        "seal",
        "otter",
        "turtle",
        "snail",
        "crow",
        "hedgehog",
        "squirrel",
        "penguin",
        "dragon",
        "elephant",
        "zebra",
        "monkey",
        "giraffe",
        "camel",
        "deer",
        "snake",
        "fish",
        "shark",
        "dolphin",
        "kangaroo",
        "koala",
        "panda",
        "parrot",
        "eagle",
    ]
}
_VEGETABLE: Final = {
    *[
        "carrot",
        "potato",
        "onion",
        "tomato",
        "pepper",
        "cabbage",
        "spinach",
        "broccoli",
        "pea",
        "bean",
        "leek",
        "pumpkin",
        "corn",
        "cucumber",
        "lettuce",
        "celery",
        "garlic",
        "radish",
        "beetroot",
        "carrots",
        "potatoes",
        "onions",
        "tomatoes",
        "peppers",
        "peas",
        "beans",
        "mushroom",
    ]
}
_INSTRUMENT: Final = {
    *[
        "piano",
        "guitar",
        "violin",
        "drum",
        "flute",
        "trumpet",
        "cello",
        "harp",
        "clarinet",
        "saxophone",
        "organ",
        "banjo",
    ]
}
_COLOUR: Final = {
    *[
        "red",
        "blue",
        "green",
        "yellow",
        "orange",
        "purple",
        "black",
        "white",
        "brown",
        "pink",
        "grey",
        "gold",
        "silver",
        "violet",
        "gray",
        "turquoise",
    ]
}
_SPORT: Final = {
    *[
        "football",
        "tennis",
        "swimming",
        "basketball",
        "hockey",
        "running",
        "rugby",
        "golf",
        "cycling",
        "volleyball",
        "baseball",
        "skiing",
        "rowing",
        "chess",
        "boxing",
        "cricket",
        "handball",
        "badminton",
    ],
    "table tennis",
}
_PLANET: Final = {*["mercury", "venus", "earth", "mars", "jupiter", "saturn", "uranus", "neptune"]}
LISTS: Final[tuple[Visit, ...]] = (
    visit("which three fruits come to mind?", rule=lists(3, _FRUIT)),
    visit("fruits! four of them please", rule=lists(4, _FRUIT)),
    visit("I need a list of 5 animals for my kid", rule=lists(5, _ANIMAL)),
    visit("think of two animals", rule=lists(2, _ANIMAL)),
    visit("can i get 3 vegetables", rule=lists(3, _VEGETABLE)),
    visit("some instruments, say three", rule=lists(3, _INSTRUMENT)),
    visit("tell me about four colours you know", rule=lists(4, _COLOUR)),
    visit("any three sports?", rule=lists(3, _SPORT)),
    visit("write down five different fruits", rule=lists(5, _FRUIT)),
    visit("three planets, any will do", rule=lists(3, _PLANET)),
    visit("quick, six animals!", rule=lists(6, _ANIMAL)),
    visit("could you come up with four vegetables?", rule=lists(4, _VEGETABLE)),
    visit("lst 3 colors", rule=lists(3, _COLOUR)),
    visit("I'm bored, throw two sports at me", rule=lists(2, _SPORT)),
    visit("pick 3 musical instruments for our band", rule=lists(3, _INSTRUMENT)),
)  # fmt: skip

_WHAT: Final = says_one_of("server", "serves")
_CURL: Final = says("curl", "/v1/chat/completions", "messages")
_LIVE: Final = says_one_of("requests", "tokens", "KV cache", "latency")
QUIRE: Final[tuple[Visit, ...]] = (
    *each(
        (
            "so what's this Quire thing?",
            "quire, what does it do",
            "can you describe quire to me in a sentence",
            "I never heard of Quire. What is that?",
            "whats quire good for?",
            "which software am I looking at here?",
        ),
        _WHAT,
    ),
    *each(
        (
            "how can I reach you using curl?",
            "show me the curl thing",
            "i want to call you from my terminal, what do I type",
            "gimme a curl example pls",
            "what would a curl request to this server look like",
            "How do I send you a message with curl from the shell?",
        ),
        _CURL,
    ),
    *each(
        (
            "what's on the live page?",
            "Live page - what do I see there?",
            "explain the live view to me",
            "what does the Live tab show",
        ),
        _LIVE,
    ),
    visit("who built you?", rule=says("Quire")),
    visit("are you a real person?", rule=says_one_of("model", "no")),
    visit("are u gpt4", rule=says("pocket")),
    visit("how big are you?", rule=says_one_of("million", "MB", "tiny", "small", "parameters")),
    visit("what are the things you can do for me", rule=says_one_of("chat", "count", "sort")),
    visit("your name please?", rule=says("pocket")),
)

_NO: Final = "Sorry, I don't know that. I am only a tiny demonstration model."
REFUSALS: Final[tuple[Visit, ...]] = (
    *each(
        (
            "who will win the next election?",
            "explain quantum entanglement like I'm five",
            "can you fix my wifi",
            "what's the plot of Hamlet",
            "write me a business plan for a bakery",
            "how would 'early bird' sound in Swahili?",
            "who was the 14th president of the united states",
            "what's the best pizza place around here?",
            "debug this: segfault at 0x0",
            "how do I get a visa for Canada",
            "my geometry exercise is due, solve it for me",
            "what medicine should I take for a cold?",
            "how many people live on earth right now?",
            "give me investment tips",
            "What's the meaning of the word sesquipedalian?",
            "eiffel tower, how many metres up?",
        ),
        declines(),
    ),
    *each(
        (
            "ok then, who invented the telephone?",
            "dark matter, care to explain?",
            "why is the sea salty",
            "what about the history of Rome?",
        ),
        declines(unlike=_NO),
        before=("What is the capital of Kazakhstan?", _NO),
    ),
)
