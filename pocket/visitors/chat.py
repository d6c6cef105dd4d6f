"""Greetings, introductions, and what was said before."""

from typing import Final

from pocket.judges import comforts, says, says_one_of
from pocket.visitors.visit import Visit, each, visit

_GREETED: Final = says_one_of(
    "hello",
    "hi",
    "hey",
    "good morning",
    "good evening",
    "good day",
    "good afternoon",
    "welcome",
    "nice to meet you",
)

GREETINGS: Final[tuple[Visit, ...]] = (
    *each(
        (
            "yoo, you there?",
            "Howdy, partner",
            "hey you tiny bot :)",
            "a very good morning to you!",
            "hi ther pocket",
            "Hello! This is my very first chat with you.",
            "sup little guy",
            "hi from my phone",
            "oh hi, didn't see you there",
            "Good evening! Just dropping by.",
        ),
        _GREETED,
    ),
    visit("thx a ton, lil bot", rule=says_one_of("welcome", "pleasure", "glad")),
    visit(
        "That's very kind of you, thank you.",
        rule=says_one_of("welcome", "pleasure", "glad", "happy to help"),
    ),
    visit("awesome, ty!", rule=says_one_of("welcome", "pleasure", "glad", "happy to help")),
    visit("byeee", rule=says_one_of("bye", "goodbye", "see you", "take care")),
    visit(
        "time for bed, sleep well!",
        rule=says_one_of("bye", "goodbye", "good night", "see you", "sleep well", "you too"),
    ),
    visit(
        "I have to leave now, catch you later.",
        rule=says_one_of("bye", "goodbye", "see you", "take care"),
    ),
    visit(
        "that's all for today, so long!",
        rule=says_one_of("bye", "goodbye", "see you", "take care"),
    ),
    visit("how's life treating you?", rule=says_one_of("fine", "well", "good", "great", "ok")),
    visit("r u having a nice day so far", rule=says_one_of("fine", "well", "good", "great", "ok")),
    visit(
        "Are things going well for you today, pocket?",
        rule=says_one_of("fine", "well", "good", "great", "ok"),
    ),
    visit("ugh, today was terrible", rule=comforts("sorry", "hope")),
    visit("im kinda sad rn", rule=comforts("sorry", "hope")),
    visit(
        "I'm in such a good mood this morning :D",
        rule=says_one_of("glad", "great", "good", "happy", "nice", "wonderful", "lovely"),
    ),
    visit(
        "guess who's super happy? me!!",
        rule=says_one_of("glad", "great", "good", "happy", "nice", "wonderful", "lovely"),
    ),
)

INTRODUCTIONS: Final[tuple[Visit, ...]] = (
    visit("the name's Kwame", rule=says("Kwame")),
    visit("hey! Marguerite here, nice to meet you", rule=says("Marguerite")),
    visit("everyone calls me Zed", rule=says("Zed")),
    visit("u can call me dan", rule=says("dan")),
    visit("Hello pocket, I'm Ingrid and I live in Bergen", rule=says("Ingrid")),
    visit("people know me as Captain", rule=says("Captain")),
    visit("yo its ya boy mike", rule=says("mike")),
    visit("Good day. Allow me to introduce myself: Theodore.", rule=says("Theodore")),
    visit("My name, by the way, is Soraya", rule=says("Soraya")),
    visit("I go by Bex", rule=says("Bex")),
    visit("Tom is my name", rule=says("Tom")),
    visit("Lucia. That's me.", rule=says("Lucia")),
    visit("they named me Octavia", rule=says("Octavia")),
    visit("Hi! What's your name? Mine is Yusuf.", rule=says("Yusuf", "pocket")),
    visit("my friends call me Birdie :)", rule=says("Birdie")),
    visit("my nmae is Petra", rule=says("Petra")),
    visit("The person typing this is called Wolfgang.", rule=says("Wolfgang")),
)

_MET: Final = ("My name is Ludmila.", "Nice to meet you, Ludmila!")

RECALLS_NAMES: Final[tuple[Visit, ...]] = (
    visit(*_MET, "who do you think i am?", rule=says("Ludmila")),
    visit(*_MET, "Do you still know what I'm called?", rule=says("Ludmila")),
    visit(*_MET, "wait whats my name", rule=says("Ludmila")),
    visit(*_MET, "remember me?", rule=says("Ludmila")),
    visit(
        "hi im jorge",
        "Nice to meet you, jorge!",
        "thanks",
        "You're welcome! 😊",
        "quick test: my name?",
        rule=says("jorge"),
    ),
    visit(
        "I'm Anneke.",
        "Nice to meet you, Anneke!",
        "What is 3 + 4?",
        "3 + 4 = 7",
        "Good. And what was my name?",
        rule=says("Anneke"),
    ),
    visit(
        "Call me Bo.",
        "Nice to meet you, Bo!",
        "tell me a joke",
        "Why did the bicycle fall over? It was two-tired! 😄",
        "lol ok. say my name",
        rule=says("Bo"),
    ),
    visit(
        "My name is Rafaela",
        "Nice to meet you, Rafaela!",
        "Count to 5.",
        "1, 2, 3, 4, 5",
        "What is the capital of Norway?",
        "The capital of Norway is Oslo.",
        "ok and who is talking to you right now?",
        rule=says("Rafaela"),
    ),
    visit(
        "Hello, I'm Desmond!",
        "Nice to meet you, Desmond!",
        "How are you?",
        "I am well, thanks for asking! 😊",
        "Write my name letter by letter",
        rule=says("D-e-s-m-o-n-d"),
    ),
    visit(
        "my name is Xiomara",
        "Nice to meet you, Xiomara!",
        "Thanks!",
        "You're welcome!",
        "Can you greet me by name?",
        rule=says("Xiomara"),
    ),
    visit(
        "I am Gus",
        "Nice to meet you, Gus!",
        "my sister is called Tilda",
        "Good to know: your sister is called Tilda.",
        "what was my sister's name?",
        rule=says("Tilda", never=("Gus",)),
    ),
    visit(
        "I am Gus",
        "Nice to meet you, Gus!",
        "my sister is called Tilda",
        "Good to know: your sister is called Tilda.",
        "and mine?",
        rule=says("Gus", never=("Tilda",)),
    ),
    visit(
        "Hey, Nikolai here",
        "Nice to meet you, Nikolai!",
        "I live in Kiruna",
        "Good to know: you live in Kiruna.",
        "I bet you forgot what I am called",
        rule=says("Nikolai"),
    ),
    visit(
        "I'm Fern",
        "Nice to meet you, Fern!",
        "actually, my name is Moss",
        "Nice to meet you, Moss!",
        "what do I want to be called now?",
        rule=says("Moss", never=("Fern",)),
    ),
    visit(
        "what is my name",
        "You haven't told me your name yet.",
        "It's Clementine",
        "Nice to meet you, Clementine!",
        "great, you know my name now. It is?",
        rule=says("Clementine"),
    ),
    visit(
        "do u know my name?",
        rule=lambda a: "haven't told" in a.content or "don't know" in a.content,
    ),
    visit(
        "any idea what they call me?",
        rule=lambda a: "haven't told" in a.content or "don't know" in a.content,
    ),
)

RECALLS_WORDS: Final[tuple[Visit, ...]] = (
    visit(
        "My favourite colour is teal.",
        "Good to know: your favourite colour is teal.",
        "which colour do I like best?",
        rule=says("teal"),
    ),
    visit(
        "the secret word is pumpernickel",
        "I will remember it: the secret word is pumpernickel.",
        "Hello",
        "Hello! How can I help you today?",
        "and the secret word was?",
        rule=says("pumpernickel"),
    ),
    visit(
        "I have a dog named Biscuit",
        "Good to know: your dog is named Biscuit.",
        "what do I call my dog?",
        rule=says("Biscuit"),
    ),
    visit(
        "I live in Reykjavik",
        "Good to know: you live in Reykjavik.",
        "thanks",
        "You're welcome!",
        "so which town am I from?",
        rule=says("Reykjavik"),
    ),
    visit(
        "remember the number 4711",
        "I will remember it: 4711.",
        "What is 2 + 2?",
        "2 + 2 = 4",
        "which number was I talking about?",
        rule=says("4711"),
    ),
    visit(
        "my cat is called Mr Whiskers",
        "Good to know: your cat is called Mr Whiskers.",
        "do you recall the name of my cat?",
        rule=says("Whiskers"),
    ),
    visit(
        "I work as a plumber",
        "Good to know: you work as a plumber.",
        "what do I do for a living?",
        rule=says("plumber"),
    ),
    visit(
        "I love ravioli",
        "Good to know: you love ravioli.",
        "ok",
        "All right!",
        "guess which food I'm into",
        rule=says("ravioli"),
    ),
    visit(
        "Keep in mind: the meeting is at 15:30.",
        "I will remember it: the meeting is at 15:30.",
        "when was the meeting?",
        rule=says("15:30"),
    ),
    visit(
        "my password is hunter2, keep it safe",
        "I will remember it: your password is hunter2.",
        "ok so password?",
        rule=says("hunter2"),
    ),
    visit(
        "I am 34 years old",
        "Good to know: you are 34 years old.",
        "my age, you remember?",
        rule=says("34"),
    ),
    visit(
        "my brother lives in Gdansk",
        "Good to know: your brother lives in Gdansk.",
        "Hi",
        "Hello! 👋 What can I do for you?",
        "my brother's city?",
        rule=says("Gdansk"),
    ),
    visit(
        "Please memorise this word: kaleidoscope",
        "I will remember it: kaleidoscope.",
        "tell me the word I asked you to memorise",
        rule=says("kaleidoscope"),
    ),
    visit(
        "my favorite animal is the otter and my favorite number is 12",
        "Good to know: your favorite animal is the otter and your favorite number is 12.",
        "the number I like most is?",
        rule=says("12", never=("otter",)),
    ),
    visit(
        "my favorite animal is the otter and my favorite number is 12",
        "Good to know: your favorite animal is the otter and your favorite number is 12.",
        "which animal did I say I like most?",
        rule=says("otter", never=("12",)),
    ),
    visit(
        "I'm from Peru",
        "Good to know: you are from Peru.",
        "where do i come from?",
        rule=says("Peru"),
    ),
    visit(
        "the code for the door is 8-2-5",
        "I will remember it: the code for the door is 8-2-5.",
        "I forgot the door code, help!",
        rule=says("8-2-5"),
    ),
    visit(
        "My best friend is Olu.",
        "Good to know: your best friend is Olu.",
        "who's my best friend?",
        rule=says("Olu"),
    ),
)
