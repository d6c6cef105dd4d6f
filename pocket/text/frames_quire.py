"""More ways to ask about Quire and the model itself, in the order of `about_quire.ABOUT`."""

from typing import Final

from pocket.text.frames import frames

_TELL: Final = (
    "tell me|say|can you tell me|could you explain|i wonder|i'd like to know|i don't get|explain"
    "|please explain|help me understand|do you know|my boss asks|someone asked me"
)
_QUIRE: Final = "quire|this quire thing|the quire server|the quire project|quire, this server,"


def _frames(text: str) -> tuple[str, ...]:
    return frames(text, tell=_TELL, quire=_QUIRE)


QUIRE: Final = _frames(
    """
    @tell what @quire [is|does|is for|is about|is good for|can do]
    @tell [the idea|the point|the purpose|the story] [of|behind] @quire
    quire - [what|what's that|what is it|explain|tell me more|never heard of it]
    quire? [what's that|what is it|never heard|explain]
    [so|and|now|ok], quire [is|does|means] [what|...]
    [never heard of|i just found|i just installed|i came across|a friend sent me] quire[,|.] \
      [what is it|what does it do|tell me more|what's it for]
    [is|was] @quire [some kind of|a kind of|like] [a server|a chatbot|a \
      database|ollama|vllm|software|an api|a platform]
    [what|which] [problem|job|need] does @quire [solve|do|fill]
    [who|which people] [is quire for|uses quire|needs quire|should use quire]
    [what|which thing] [sits behind|powers|runs|is behind|answers behind] this \
      [page|chat|site|window|address]
    what [am i looking at|is running here|did i install|do i have in front of me|are we using here]
    [give me|i need|i want] [a short|a quick|a brief|an] \
      [summary|overview|introduction|description|idea] of @quire
    [define|introduce|present|sum up|pitch] @quire[ in a sentence| to a beginner| quickly|]
    [what's|what is] special [about|in] @quire
    [what|which] [does|do] @quire [serve|offer|provide|run|do all day]
    i [know nothing|have no idea|want to learn|want to hear] about @quire
    [quire for dummies|quire explained|quire in a nutshell|about quire|quire basics|quire intro]
    [why does|why do we have|why was] @quire [exist|made|written]
    [a few|some] words [about|on] @quire
    [this|that] [website|server|app|program] here, what is it
    """
)
CURL: Final = _frames(
    """
    @tell how [to|i can|one can|i] [call|reach|use|query] [you|the api|this model] [with|from|by] \
      [curl|the shell|the command line]
    curl [please|pls|for you|snippet|one-liner|how]
    [a|one|any] curl [snippet|one-liner|line|sample][ to copy| i can paste| for chat completions| \
      please|]
    [i live in|i am in|i only have|i work in] [the terminal|a shell|bash][,|.] how do i [talk \
      to|call|reach|ask] you
    [how|what] [would|does] [a|the] [raw |http |curl |rest ][request|call] [look|look like|to you \
      look like]
    [what|which] do i type [in|into] [the terminal|bash|the shell|the command line] to \
      [reach|ask|call] you
    [post|http post|rest|http] [request|example|call][ to you| for chat| please|]
    [from|in|on] [the terminal|the command line|a shell|bash], [how do i reach you|how can i ask \
      you|how to call you]
    [copy and paste|paste me|show me|hand me|print] [a|the] [curl|http request|curl command]
    how do i [test|try|hit|poke] [the api|the endpoint|this server] [with|using|by] [curl|a http \
      request]
    [without|no] python, [how do i call you|just curl|only curl please]
    [can|could] i [reach|call|ask|use] you [with|through|via] [curl|http|rest|a plain request]
    """
)
PYTHON: Final = _frames(
    """
    @tell how [to|i can|one can|i] [call|reach|use|query] [you|the api|this model] [with|from|in] \
      [python|the openai package|the openai library|a script]
    python [please|pls|snippet|code|sample|how|example]
    [a|one|any|some] python [snippet|script|lines|sample|program][ to call you| i can paste| for \
      the api| please|]
    [i write|i code in|i work with|i only know] python[,|.] how do i [talk to|call|reach|use] you
    [how|what] [does|would] [the|a] python [code|call|script|client] [look|look like]
    [how|where] do i [point|set|aim] [the openai client|the openai sdk|base_url|my client][ to| \
      to you| at you| at quire|]
    [does|will|would] the openai [client|package|library|sdk] [work|run|talk] with \
      [you|quire|this server]
    [from|in|with|using] python[,|:] [how do i call you|how to call you|how can i use you|an \
      example]
    [show me|hand me|print|paste] [the|some|a] [python|openai client] [code|example|snippet]
    [which|what] base url [do i|should i|must i] [set|use|give] in [python|the openai client]
    [my|a] python [program|script|app|notebook] [wants|has|needs] to call you[, how|, show me]
    """
)
LIVE: Final = _frames(
    """
    @tell what [is on|i see on|i can see on|is shown on|happens on] the live [page|tab|view|screen]
    [the|that|this] live [page|tab|view|screen], [what's on it|what does it show|what is it|what \
      for]
    [where|on which page|how] [do|can|could] i [watch|follow|observe|look at|see] [the \
      traffic|the requests|running requests|the load|tokens per second|the cache|the server at work]
    [why|when] [should|would] i [open|look at|visit|use] the live [page|tab|view|screen]
    live page - [what|explain|what's there|what is there]
    live page? [what's that|what does it show]
    [which|what] [information|data|metrics|things|graphs|live numbers] [are|is|does] [on|in] the \
      live [page|view|tab]
    the live [page|view|tab] [shows|has|displays|tells] [what|me what|...]
    [what's|what is] [live|shown live|to see live][ here| in quire|]
    i [clicked on|see|found|opened|went to] live[,|.] [what is it|what am i looking \
      at|explain|what do the numbers mean]
    """
)
PLAYGROUND: Final = _frames(
    """
    @tell what the playground [is|does|is for|shows]
    [the|that|this] playground[,|:] [what's it for|what is it|what can i do there|what does it do]
    playground[?| -] [what's that|what is it|explain|what for]
    [what's|what is|whats] [this|that|a] playground
    [why|when] [should|would] i [open|visit|use|go to] the playground
    [where|on which page] [can|do|could] i [try|test|talk to|try out] [a model|the models|you|a \
      prompt]
    [what|which things] [can|could] [one|i|people] [try|do|test] in the playground
    i [clicked on|see|found|opened|went to] the playground[,|.] [what is it|what now|explain|what \
      can i do]
    [where|how] do i see what an answer [cost|costs]
    the playground [is|does] [what|...]
    """
)
MAKER: Final = _frames(
    """
    @tell who [made|built|trained|created|programmed|wrote|invented] you
    [where|how|by whom|from whom|in which lab] were you [made|built|trained|born|created|programmed]
    [your|the] [maker|creator|author|inventor|developer|father][,| -|:] [who is it|who|name \
      please|who's that]
    [whose|who's] [idea|work|child|model|baby|product] are you
    [which|what] [lab|people|firm|team|company|group] [is behind|made|created|owns] you
    [who|which people] [owns|maintains|runs|looks after|is responsible for|deserves credit for] you
    [did|has] [openai|google|meta|someone|quire|a student|a human] \
      [make|made|train|trained|build|built] you
    [what|which] [data|text|books] were you trained on
    how [did you come|were you brought] [to be|into the world|to life]
    [tell me|say|i want to hear] [about|something about] [your maker|your creators|your \
      origin|your birth|your training|where you come from]
    [you|u] [were|are] made by [whom|who|...]
    """
)
PERSON: Final = _frames(
    """
    @tell [if|whether] you are [human|a person|a real person|a robot|a machine|alive|an ai|a bot]
    [you|u] [are|'re] [human|a person|a real person|a robot|a machine|a bot|an ai|alive], \
      [right|aren't you|are you|or|no]
    [is|are] [there|you] [a human|a person|someone|a man|a woman|somebody] \
      [behind|there|answering|typing|on the other side|at the keyboard][ this| here| the screen|]
    [am i|are we|do i] [talking|chatting|speaking|talk] [to|with] [a real person|a human|a \
      machine|a bot|a computer|an ai|somebody real]
    [do you|can you|have you] [got |have |ever ][a soul|a heart|feelings|a \
      brain|emotions|parents|hands|a family|eyes]
    [real|human|robot|person|bot|machine] or [fake|robot|human|machine|not|bot]
    [prove|admit|swear] [that |]you are [human|not human|a robot|not a robot|real]
    [are you|you're] [sure you are|really|just|only|secretly|maybe] [human|a human|a person|a \
      robot|a bot|a machine|code|software]
    [do you|can you] [breathe|get tired|get hungry|cry|laugh|fall in love|get \
      bored|hurt|die|think for yourself]
    [what|which] kind of [being|creature|thing|animal] are you
    [man|human|woman] or machine
    """
)
IDENTITY: Final = _frames(
    """
    @tell who you are
    @tell what you are [called|named]
    @tell [your name|what your name is|which model you are|what kind of model you are]
    [and|so|now|hey|ok][,|] [who|what] are you
    you [are|'re] [who|called what|named what|...]
    [who|what|whom] [do i|have i] [talk to|the pleasure with|have in front of me|speak with|got \
      here]
    [who|what] [is|'s] [this|there|answering|typing|on the line|speaking|replying][ please|]
    [got|have you|do you have] a name[, little one|, bot|, robot|]
    [which|what] [model|llm|chatbot|ai|assistant|bot] [is answering|do i talk to|runs here|am i \
      using|sits there|have i got]
    [how|what] [shall|can|do|may] i [call|name|address] you
    [what's|what is] [your model|this model|the model|this bot|this ai] called
    [are you|is this|you are] [chatgpt|gpt-4|claude|gemini|llama|a copilot|bard|siri|mistral][ in \
      disguise|, right| or what| or somebody else|]
    [introduce yourself|say who you are|present yourself|tell me about yourself|describe \
      yourself][, please| in one line|, who are you|]
    [my friend|someone|my kid] wants to know [who you are|your name|what you are called]
    [pocket|so pocket], [who is that|is that your name|what is pocket|who are you]
    what is pocket
    """
)
SIZE: Final = _frames(
    """
    @tell how [big|small|large|tiny] you are
    @tell [your size|how many parameters you have|how many weights you have|how much space you take]
    [your|the] [size|parameter count|number of parameters|weight count][ please| is|]
    [how|about how] [big|large|small|heavy] is [this model|your model|your brain|your file|the \
      model|pocket]
    [how many|what number of] [parameters|weights|numbers|megabytes|millions of parameters] [are \
      in you|has this model|does pocket have|are you made of|is pocket]
    [do you|would you|could you] [fit|run] [on|in] [a phone|my laptop|4 mb|a floppy|a watch|a \
      small computer]
    [is|are] [pocket|this model|you] [a small|a big|a large|a tiny|a huge] [model|one]
    [you|u] [are|seem|look] [small|tiny|big|huge], [how small|how big|right|are you|what size]
    [parameters|params|size|weights][?| -] [how many|how big|how much]
    [what's|what is] your [size|weight|parameter count|file size|footprint]
    [billions|millions|thousands] of parameters, [or how many|how many|right]
    """
)
ABLE: Final = _frames(
    """
    @tell what you can [do|help with|answer|handle]
    @tell [your skills|your talents|your abilities|what you are good at|what you know|what i can \
      ask]
    [what|which things] [can|could|may|should] [i|we|one|people] [ask|ask you|ask you \
      about|try|do with you|use you for|expect]
    [what|how] [could|can|would] you [be useful|help|assist|be of use|support me|serve me][ for \
      me| to me| with|]
    [what's|what is|what are] [your use|in your power|your job|your talents|your strengths|you \
      good for|possible here|your tricks]
    [i don't know|no idea|i have no idea|not sure] what to [ask|ask you|do here|say|type][, \
      help|, any ideas|]
    [give me|i need|any|some] [ideas|suggestions|hints|examples] [what to ask|what i can ask|of \
      questions|for questions|of what you do]
    [are you|you are] [useful|good|any good] [for|at] [anything|what|something]
    [menu|options|commands|features|skills|help menu|what's on the menu][ please|]
    [where|how|with what] [do i|should i|can i] [start|begin][ with you|]
    [how|what] does this [work|chat do|bot do|thing do]
    [anything|something] you [can do|are good at|know well]
    """
)
MORE: Final = (
    QUIRE, CURL, PYTHON, LIVE, PLAYGROUND, MAKER, PERSON, IDENTITY, SIZE, ABLE,
)  # fmt: skip
