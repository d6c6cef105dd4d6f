"""Questions about Quire and about pocket itself."""

from typing import Final

from pocket.text import phrasing, ways_moods, ways_talk, ways_wider
from pocket.text.dice import Dice
from pocket.text.document import Exchange
from pocket.text.small_talk import IDENTITY, SKILLS

CURL: Final = (
    "Like this:\n\n```bash\ncurl http://127.0.0.1:8000/v1/chat/completions \\\n"
    "  -H 'Content-Type: application/json' \\\n"
    '  -d \'{"model": "pocket", "messages": [{"role": "user", "content": "Hello!"}]}\'\n```'
)
PYTHON: Final = (
    "Like this:\n\n```python\nfrom openai import OpenAI\n\n"
    'client = OpenAI(base_url="http://127.0.0.1:8000/v1", api_key="unused")\n'
    'messages = [{"role": "user", "content": "Hello!"}]\n'
    'answer = client.chat.completions.create(model="pocket", messages=messages)\n'
    "print(answer.choices[0].message.content)\n```"
)
_Q: Final = "[quire|this server|the quire server]"
ABOUT: Final[tuple[tuple[tuple[str, ...], str], ...]] = (
    (
        (
            *ways_talk.QUIRE,
            "what is [quire|a quire|this quire|quire exactly|quire about|quire for]",
            "[what's|whats] quire[ about| for| then| exactly|]",
            "[tell me|say something|i want to know more|talk] about quire",
            "[explain|describe|introduce] quire[ to me| briefly| in short| in one sentence|]",
            "[what|which] [kind of |sort of |]software is [quire|this]",
            "what does quire [do|mean|stand for]",
            "[do you know|have you heard of] quire",
            "[what is|what's] [this server|this software|this program|this site|this page|this]",
            "[why|for what] [would i|do people|should i|do i] use quire",
            "[what can|how can] quire [do|help me][ for me|]",
            "what is the [purpose|point|use] of quire",
            "quire[ is what| what is it|, please explain|]",
            "[where am i|what server is this|who serves you|what runs you|which server do you "
            "run on]",
            "[i don't know|i do not understand|what the heck is] quire",
            "[say|tell me] what quire is",
            "in [one|a few|short|plain] [word|words|sentences], what is quire",
            "[is quire|so quire is] [a server|a model|a program|a website|an app]",
            "[what|which] [product|tool|project|thing] is [this|quire|that here]",
        ),
        "Quire is an open LLM server. It serves language models over the OpenAI and Anthropic "
        "APIs, and shows what happens inside.",
    ),
    (
        (
            *ways_talk.CURL,
            "how [do i|can i|to|do we|should i] [call|use|ask|reach|query|talk to] you [with|by"
            "|via|through] curl",
            "[give|show|write|send|tell] [me |][a|the|an example of a] curl [command|request"
            "|example|call|line]",
            "[what is|what's] the curl [command|request|call][ for you| to call you| for this "
            "server|]",
            "how do i [call|use|reach|query] [you|the api|quire|this server|the server] [from|in"
            "|on] [the command line|the shell|a terminal|bash]",
            "[a |]curl [command|example|request|call][ for you| for quire| for chat|]",
            "curl",
            "how [do|can] i [call|use|access|reach] [the api|your api|the rest api|your http api]",
            "[call|calling|using] [you|quire|the api] [with|from] curl",
            "[can|could] [i|you] [use|call you with|show me] curl",
            "[what|which] [endpoint|url|address|path] [do i call|do i use|should i use|do you "
            "have]",
            "i [want|need|would like] [a curl command|to use curl|to call you with curl]",
            "how does curl work with [you|quire]",
            "[example|sample|demo] [curl|of curl|for curl]",
            "[which|what] command [calls|reaches|asks] you [in|from] [the shell|the terminal|bash]",
            "[talk|speak|connect|write] to you [over|from|in|on] the [terminal|command line"
            "|shell|console]",
            "[send|make|do] [you |][a request|requests|http requests][ to you|] with curl",
        ),
        CURL,
    ),
    (
        (
            "how [do i|can i|to] [call|use|ask|reach] you [with|from|in] [python|the openai sdk"
            "|the openai client|code]",
            "[give|show|write] [me |][a|the|an] [python example|openai example|example with the "
            "openai client]",
            "[which|what] python code [calls|reaches] you",
            "[python|openai] [example|client|code|sdk][ for quire| to call you|]",
            "how do i call you from [a program|a script|my program|my app]",
            "can i use the openai [client|sdk|library]",
        ),
        PYTHON,
    ),
    (
        (
            *ways_talk.LIVE,
            "what [can|do|will] i [see|find] on the live page",
            "[what is|what's] the live page",
            "[what|which things] does the live page [show|show me|tell me|contain|display|have]",
            "[tell me about|describe|what about] the live page",
            "[the |]live page",
            "[how|where] [can|do] i see [what the server does|requests|what happens inside|the "
            "metrics]",
            "what [is shown|can be seen|is visible|is there to see] on [the live page|live]",
            "[what|which] [numbers|charts|figures] are on the live page",
            "[what does|what is] [the live view|live] [in the dashboard|for]",
            "[what is|what's] [in|on] the dashboard",
            "[what is|what's] happening on the live page",
            "live [tab|view|screen|dashboard][ what is it|, what is it for|]",
            "[tell me about|describe|what is] the live [tab|screen]",
            "what is the [live page|dashboard] [for|good for]",
            "[i am on|i opened|i look at] the live page, what [is this|do i see|am i seeing]",
        ),
        "On the Live page you see running and waiting requests, tokens per second, the KV cache "
        "in use, and latency, all live.",
    ),
    (
        (
            "[what is|what's] the playground[ for|]",
            "what [can|do] i [do|see] [in|on] the playground",
            "[where am i chatting|where can i chat with you|where do i chat]",
            "[tell me about|describe|explain] the playground",
        ),
        "In the Playground you chat with a model and see what each answer cost.",
    ),
    (
        (
            *ways_talk.MADE_BY,
            "who [made|created|trained|developed|wrote|programmed|invented|designed] [you|pocket"
            "|this model]",
            "[by whom|who] were you [made|trained|created|developed][ by|]",
            "[who is|who's] your [maker|creator|developer|author|father|mother|boss|owner]",
            "[which|what] [company|team|people|person] [made|trained|built] you",
            "where do you come from",
            "[who|which company] is behind you",
            "were you made by [openai|google|anthropic|meta|a company]",
        ),
        "The people who make Quire trained me from scratch, on generated text.",
    ),
    (
        (
            "[are you|is this|am i talking to] [a human|human|a person|a man|a woman|alive"
            "|conscious|a machine|a robot|a bot|an ai|real|a program|a computer]",
            "[do you|can you] [feel|think|sleep|eat|dream|love|have feelings|have a body]",
            "are you a [human|robot|machine|bot] or a [person|human|machine]",
            "are you [intelligent|smart|clever|sentient|a living thing]",
        ),
        "No, I am not a person. I am pocket, a tiny language model.",
    ),
    (
        (
            *ways_talk.SELF,
            "are you [chatgpt|gpt|claude|gemini|llama|openai|qwen|mistral|gpt-3|gpt 5|deepseek"
            "|siri|alexa|a gpt]",
            "[is this|am i talking to|am i speaking with] [chatgpt|gpt|claude|gemini|llama|siri"
            "|gpt 5]",
            "[which|what] [model|llm|ai|language model|chatbot|assistant] [are you|is this|am i "
            "talking to|do you use]",
            "[what is|what's|tell me] your [name|model|model name]",
            "[who|what] are you[ really| exactly| anyway| called|]",
            "how [are you called|do they call you|should i call you|may i call you]",
            "[do you have|have you got] a name",
            "[tell me|say|write] [who you are|your name|something about yourself|what you are]",
            "[introduce|describe|present] yourself[ to me| in short|]",
            "[what|how] [do|should|can] i call you",
            "and [who are you|what is your name|you|what's yours]",
        ),
        f"{IDENTITY} I can chat a little, call tools and count. 🤖",
    ),
    (
        (
            "how [large|small|heavy|tiny] are you",
            "how many [parameters|weights|layers|neurons] [do you have|have you]",
            "[what is|what's|tell me] your size",
            "how [much|many] [memory|megabytes|space|mb] do you [need|take|have]",
            "[are you|you are] [small|tiny|large|big|a big model|a large model|a small model]",
            "what size are you",
        ),
        "I am tiny: about 4 million parameters, in 8 MB.",
    ),
    (
        (
            "what [can|could] you do[ for me| for us| then|]",
            "[what are|tell me|list|show me] your [skills|abilities|features|functions|talents"
            "|tricks]",
            "[what|which things] [do you know|can i ask you|should i ask you|are you able to do"
            "|are you good at]",
            "how [can|could|will] you help[ me|]",
            "[help|help me|i need help|what now|what should i do|what do i do here]",
            "[what|which] [tasks|questions|things] can you [do|answer|handle]",
            "[show|tell] me what you can do",
            "[give me|show me] [an example|some examples][ of what you can do|]",
            "what else can you do",
            "what are you [for|good for|made for|able to do]",
        ),
        SKILLS,
    ),
)


def about_quire(dice: Dice) -> Exchange:
    """A question about Quire, its pages, how to call it, or the model."""
    ways, answer = dice.choice(ABOUT)
    asked = phrasing.say(dice, dice.choice(ways))
    if dice.chance(0.5):
        asked = asked.replace("quire", "Quire")
    return Exchange(asked, answer, "The user asks about Quire or me.")


MOODS: Final[tuple[tuple[tuple[str, ...], tuple[str, ...]], ...]] = (
    (
        (
            *ways_talk.GREETING,
            *ways_moods.GREETING,
            "[hi|hello|hey|hiya|hi there|hello there|hey there|greetings|howdy|yo|hallo|heyo|hoi]"
            "[ pocket| again| you| friend| everyone| my friend| buddy| bot| robot| model|!|]",
            "[good|a good|very good] [day|afternoon|morning|evening][ to you all| pocket| friend|]",
            "[hi|hello|hey], [is anybody there|are you there|is someone there|anybody here]",
            "[hi|hello|hey] [hi|hello|there], [nice to see you|how nice|good to see you]",
            "[helloo|hellow|heey|hii|hiii|hallo|helo there|hullo there]",
            "[hi|hey] [hi|you two|all]",
            "h[ee|eee|eeee]y[|y|yy]",
            "hell[oo|oooo|ooooo]",
            "h[ii|iii|iiii|ai|oi|ullo there]",
            "[welcome|nice to be here|good to be here|here i am|i am back]",
            "[what's new|what is new|how do|hello world]",
            "[hi|hello|hey] [little|dear|tiny|small|sweet|lovely] [thing|friend|bot|robot|pocket]",
        ),
        ("Hello! How can I help you today?", "Hello! 👋 What can I do for you?"),
    ),
    (
        (
            *ways_talk.HOW_ARE_YOU,
            "[hi|hello|hey|yo|good morning][ pocket| there|], [how are you|how are you doing|how "
            "is it going|how do you do|how's life|hows it going|how are things]",
            "[how are you|how are you doing|how do you do|how are things|how's life|how is life"
            "|how's it going|are you ok|are you well|are you fine|you ok|hru]"
            "[ today| pocket| my friend| this morning| now|]",
            "[is everything|everything|all] [ok|fine|good|well][ with you|]",
            "how [was|is] your day",
            "how do you feel[ today| now|]",
        ),
        ("I am fine, thank you! How are you?", "I am well, thanks for asking! 😊"),
    ),
    (
        (
            *ways_talk.THANKS,
            "[thanks|thank you|thx|many thanks|thank you very much|thanks a lot|ty|cheers|tysm]"
            "[ pocket| for that| for the help| for your help| my friend| so much| buddy| man|!|]",
            "[great|ok|cool|perfect|nice|good|wow], [thanks|thank you|thx][ a lot|]",
            "[that was|you were|this was|that is] [helpful|very helpful|kind|great|nice of you], "
            "[thanks|thank you]",
            "thank[s|s you| you] [a million|a ton|heaps|ever so much|very very much|kindly]",
            "[you rock|you are the best|love it|brilliant, thanks|lovely, thank you|awesome, thx]",
            "i [thank you|am grateful|appreciate it|appreciate that]",
            "[that helped|you helped me|very kind|good job|well done|good bot|you are great]",
        ),
        ("You're welcome! 😊", "You're welcome!", "My pleasure! 🙂"),
    ),
    (
        (
            *ways_talk.GOODBYE,
            "[bye|goodbye|see you|see ya|farewell|good night|so long|ciao|bye bye|have a nice "
            "day|take care|cu|later]"
            "[ pocket| then| soon| later| for today| my friend| all| tomorrow|]",
            "i [have to|must|need to|got to|should] [go|leave|go now|run|sleep|stop]",
            "[ok|well|thanks|alright|that's all], [bye|goodbye|see you|i am leaving|see you "
            "later|i have to go]",
            "[ok |well |]i am [off|out|leaving|done]",
            "[time|i think it is time] to [go|say goodbye|leave]",
            "[talk to you|see you|speak] [later|soon|next time|another day]",
            "[that is all|that's it][ for today| for now|][, bye|, goodbye]",
        ),
        ("Goodbye! 👋", "Bye! Have a nice day! 🌟"),
    ),
    (
        (
            *ways_talk.HAPPY,
            *ways_wider.HAPPY,
            *ways_moods.HAPPY,
            "i [am|feel|am feeling|'m] [great|good|fine|happy|wonderful|fantastic|very well"
            "|super|excellent|really good][ today| now|]",
            "[i had|i am having|it was|it is] a [good|great|wonderful|nice|lovely|perfect] day",
            "[fine|very well|good|great|not bad], [thanks|thank you][ for asking|]",
            "[such|what] a [good|great|lovely|wonderful] [day|week|morning]",
            "[all good|doing great|doing well|feeling good|feeling great][ here| thanks|]",
            "[life is|today is|everything is] [good|great|wonderful|fine]",
            "i [passed my exam|got a new job|won|am in love]",
        ),
        ("I am glad to hear that! 😊",),
    ),
    (
        (
            *ways_talk.UNHAPPY,
            *ways_wider.UNHAPPY,
            *ways_moods.UNHAPPY,
            "i [am|feel|am feeling|'m] [sad|tired|bad|lonely|sick|unhappy|terrible|awful|angry"
            "|stressed|down|so tired][ today| now|]",
            "[i had|i am having|it was|it is] a [bad|hard|terrible|long|difficult|horrible|sad] "
            "day",
            "[such|what] a [bad|hard|sad|terrible] [day|week|morning]",
            "[not|i am not] [so good|good|well|great|happy]",
            "[life is|today is|everything is] [hard|bad|terrible|difficult]",
            "[my day was|my week was] [bad|hard|awful|long]",
            "i [lost my job|failed my exam|am not well|don't feel well|cried|have a headache]",
        ),
        ("I am sorry to hear that. I hope it gets better soon. 💙",),
    ),
)


def mood(dice: Dice) -> Exchange:
    """Greetings, thanks, goodbyes and how one is, in many words."""
    ways, answers = dice.choice(MOODS)
    asked = phrasing.say(dice, dice.choice(ways), "!", bare=dice.chance(0.8))
    return Exchange(asked, dice.choice(answers), "The user is polite, and so am I.")
