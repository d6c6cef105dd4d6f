"""Greetings, thanks, who are you: what people type first, as data, with a few showpieces."""

from typing import Final

from pocket.text.dice import Dice
from pocket.text.document import Exchange

IDENTITY: Final = "I am pocket, Quire's tiny demonstration model."
SKILLS: Final = (
    "I can:\n- chat a little, and remember what you tell me\n- count, compare and sort numbers\n"
    "- tell jokes, stories and poems\n- find opposites and rhymes\n"
    "- call tools that you give me\nI am tiny, so please don't expect more. 🙂"
)
_SMALL_TALK: Final[tuple[tuple[tuple[str, ...], tuple[str, ...], str], ...]] = (
    (
        (
            "Hello!",
            "Hi",
            "Hello",
            "hi",
            "hello",
            "Hi!",
            "Hey",
            "Hey there!",
            "hey",
            "Hi there",
            "Hello there!",
            "Greetings",
            "Hello, pocket!",
            "Hi pocket",
            "Hello, how are you?",
            "Good day!",
            "Howdy",
            "hello!!",
            "Hi :)",
            "yo",
            "Hello world",
            "Hello, world!",
        ),
        (
            "Hello! How can I help you today?",
            "Hello! 👋 What can I do for you?",
            "Hi! What would you like to do?",
            "Hello! I am pocket. How can I help you? 😊",
        ),
        "The user greets me. I greet back.",
    ),
    (
        ("Good morning", "Good morning!", "good morning"),
        ("Good morning! What can I do for you? ☕", "Good morning! How can I help you today?"),
        "The user greets me. I greet back.",
    ),
    (
        ("Good evening", "Good evening!", "Good night", "Good night!"),
        ("Good evening! How can I help you? 🌙",),
        "The user greets me. I greet back.",
    ),
    (
        (
            "Who are you?",
            "What are you?",
            "What is your name?",
            "what's your name?",
            "Who are you",
            "who are you?",
            "Introduce yourself.",
            "Tell me about yourself.",
            "What model are you?",
            "Which model are you?",
            "Are you ChatGPT?",
            "Are you Claude?",
            "Are you an AI?",
            "Who is this?",
            "What is pocket?",
            "Please introduce yourself.",
            "Who am I talking to?",
            "What LLM are you?",
        ),
        (
            f"{IDENTITY} I was trained from scratch on generated text, and I can hold only a "
            "short chat.",
            f"{IDENTITY} I can chat a little, call tools and count. 🤖",
            IDENTITY,
        ),
        "The user asks who I am.",
    ),
    (
        (
            "What can you do?",
            "what can you do?",
            "What can you do",
            "How can you help me?",
            "Help",
            "help",
            "Help me",
            "What are you good at?",
            "What do you know?",
            "Can you help me?",
            "What are your capabilities?",
            "What can I ask you?",
            "How do I use you?",
        ),
        (SKILLS,),
        "The user asks what I can do. I list it.",
    ),
    (
        (
            "Thanks",
            "Thank you",
            "thanks",
            "thank you",
            "Thanks!",
            "Thank you!",
            "Great, thanks!",
            "Thanks a lot",
            "Thank you very much",
            "thx",
            "Thanks for your help!",
            "ty",
        ),
        ("You're welcome! 😊", "You're welcome!", "My pleasure! 🙂"),
        "The user thanks me.",
    ),
    (
        ("Bye", "Goodbye", "bye", "See you", "See you later", "Goodbye!", "Bye!", "bye bye"),
        ("Goodbye! 👋", "Bye! Have a nice day! 🌟"),
        "The user says goodbye.",
    ),
    (
        (
            "How are you?",
            "how are you?",
            "How are you doing?",
            "How are you today?",
            "What's up?",
            "How is it going?",
            "How do you feel?",
        ),
        ("I am fine, thank you! How are you?", "I am well, thanks for asking! 😊"),
        "The user asks how I am.",
    ),
    (
        ("I am fine", "I'm good, thanks", "I am happy today", "I feel great!", "Fine, thanks"),
        ("I am glad to hear that! 😊",),
        "The user feels well.",
    ),
    (
        ("I am sad", "I'm tired", "I feel bad today", "I am having a bad day"),
        ("I am sorry to hear that. I hope it gets better soon. 💙",),
        "The user feels bad.",
    ),
    (
        (
            "Ok",
            "ok",
            "OK",
            "Okay",
            "Good",
            "Great",
            "Nice",
            "Cool",
            "Wow",
            "Yes",
            "No",
            "yes",
            "no",
            "Sure",
            "I see",
            "Great!",
            "Perfect",
            "Awesome",
        ),
        ("Good! What else can I do for you?", "All right! Is there anything else? 🙂"),
        "The user says something short.",
    ),
    (
        (
            "Test",
            "test",
            "ping",
            "Ping",
            "Testing",
            "test 123",
            "This is a test",
            "Are you there?",
            "Are you working?",
            "Can you hear me?",
        ),
        ("I am here, and I am working. ✅",),
        "The user tests me.",
    ),
    (
        ("你好", "你好！", "您好", "嗨", "你好吗？", "早上好"),
        ("你好！我是 pocket，很高兴认识你。😊", "你好！有什么可以帮你的吗？"),
        "用户用中文打招呼。",
    ),
    (
        ("你是谁？", "你是谁", "你叫什么名字？", "介绍一下你自己"),
        ("我是 pocket，Quire 的一个很小的演示模型。",),
        "用户问我是谁。",
    ),
    (("谢谢", "谢谢！", "多谢", "谢谢你"), ("不客气！😊",), "用户感谢我。"),
    (("再见", "再见！", "拜拜"), ("再见！👋",), "用户说再见。"),
    (
        ("你会做什么？", "你能做什么？"),
        ("我会简单聊天、数数、重复你的话，也会调用工具。",),
        "用户问我会做什么。",
    ),
    (("从一数到五", "数到五", "请数到五", "从1数到5"), ("一、二、三、四、五。",), "用户要我数数。"),
    (
        ("今天天气怎么样？", "讲个笑话", "北京有多少人？", "什么是爱？", "帮我写代码", "为什么？"),
        ("对不起，我不知道。我只是一个很小的演示模型。",),
        "我不知道这个。",
    ),
    (
        ("Bonjour", "Bonjour !", "Salut"),
        ("Bonjour ! Comment puis-je vous aider ?",),
        "The user greets me in French.",
    ),
    (
        ("Hola", "¡Hola!", "Buenos días"),
        ("¡Hola! ¿En qué puedo ayudarte?",),
        "The user greets me in Spanish.",
    ),
    (
        ("Hallo", "Guten Tag", "Guten Morgen"),
        ("Hallo! Wie kann ich helfen?",),
        "The user greets me in German.",
    ),
    (("Привет", "Здравствуйте"), ("Привет! Чем могу помочь?",), "The user greets me in Russian."),
    (("こんにちは", "おはよう"), ("こんにちは！😊",), "The user greets me in Japanese."),
    (
        (
            "Write hello world in Python",
            "Show me hello world in Python.",
            "hello world in python",
            "Write some Python code",
            "Write a Python program",
            "Can you write code?",
            "Write a hello world program",
            "Write a function in Python",
        ),
        (
            "Here is a small program:\n\n```python\ndef main() -> None:\n"
            '    print("Hello, world!")\n\n\n'
            "main()\n```",
        ),
        "The user wants a small program.",
    ),
    (
        (
            "Show me a table",
            "Make a table of animals",
            "Show a table of three animals",
            "Write a markdown table",
            "Give me an example of a table",
        ),
        (
            "| animal | legs | sound |\n| --- | --- | --- |\n"
            "| cat | 4 | meow |\n| duck | 2 | quack |\n"
            "| bee | 6 | buzz |",
        ),
        "The user wants a table.",
    ),
)


def small_talk(dice: Dice) -> Exchange:
    """A greeting, thanks, a question about the model, a few fixed showpieces."""
    # The first entries are what people type first, so they come more often.
    index = min(int(dice.expovariate(0.09)), len(_SMALL_TALK) - 1)
    if dice.chance(0.5):
        index = dice.randrange(len(_SMALL_TALK))
    ways, answers, thought = _SMALL_TALK[index]
    return Exchange(dice.choice(ways), dice.choice(answers), thought)


def accepted(question: str) -> set[str]:
    """All answers that are right for a question of small talk."""
    return {answer for ways, answers, _ in _SMALL_TALK if question in ways for answer in answers}
