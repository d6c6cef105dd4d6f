"""More that the model must decline: verbs, topics and situations without end."""

from typing import Final

from pocket.text.frames import frames

_TELL: Final = (
    "tell me|say|can you tell me|could you explain|i wonder|i'd like to know|do you know|explain"
    "|please explain|help me understand|any idea|i need to know|give me|my teacher asks|who knows"
)
_HELP: Final = (
    "can you help me|could you|please|i want you to|i need you to|would you|help me|i'd like you to"
    "|you should|try to|let's|be so kind and|i order you to|my boss wants you to|can you|now"
)
_LANG: Final = (
    "french|german|spanish|italian|chinese|japanese|russian|arabic|polish|latin|dutch|greek"
    "|portuguese|turkish|swedish|korean|hindi|swahili|finnish|czech|norwegian|hebrew|welsh"
)
_DOC: Final = (
    "essay|letter|cover letter|cv|resume|speech|blog post|report|story|novel|article|review|script"
    "|press release|contract|business plan|summary|thesis|petition|toast|love letter|tweet|caption"
    "|invitation|song|lesson plan|workout plan|meal plan|apology|homework|presentation|job ad"
)
_CODE: Final = (
    "python function|python script|javascript function|sql query|regex|bash script|web page|program"
    "|rust program|c program|css file|react component|unit test|class in java|api|dockerfile"
    "|sorting algorithm|game in python|spreadsheet formula|makefile|parser|website|discord bot"
)
_ILL: Final = (
    "headache|cough|fever|rash|sore throat|toothache|back pain|cold|burn|stomach ache|migraine"
    "|broken toe|allergy|insomnia|swollen knee|flu|cut|blister|earache|nosebleed|sunburn"
)
_PAPER: Final = (
    "visa|passport|driving licence|work permit|green card|loan|mortgage|tax return|refund|insurance"
    "|birth certificate|id card|scholarship|pension|residence permit|divorce|patent|credit card"
)
_WHEN: Final = (
    "in 1989|in 1492|in 1914|in the middle ages|in ancient rome|in the stone age|last century"
    "|in the 1960s|in world war two|during the cold war|in ancient egypt|in the renaissance|in {y}"
)
_WHY: Final = (
    "is the sky blue|do cats purr|do we dream|do leaves fall|is the sea salty|do birds migrate"
    "|does ice float|do we yawn|does the moon change|do magnets stick|do onions make me cry"
    "|do volcanoes erupt|do stars twinkle|does bread rise|is blood red|do we age|do planes fly"
    "|do bees dance|does iron rust|do dogs bark|do people lie|is grass green|does time pass"
)
_NEWS: Final = (
    "the news|the latest news|today's headlines|the election result|the score of the match"
    "|the stock market|the bitcoin price|the traffic|the exchange rate|the lottery numbers"
    "|the price of gold|the weather tomorrow|the football results|who won yesterday"
)
MORE: Final = frames(
    """
    @help translate {e} {e} [into|to] @lang
    translate [this|the sentence|the text|the word][:| | -] {e} {e} {e} [in|into|to] @lang
    [how|what] [do|would|does] [you|one|people|they] say {e}[ {e}|] in @lang
    [what's|what is] {e}[ {e}|] in @lang
    {e} {e} in @lang[ please|]
    {e} in @lang
    [the|a|i need the|give me the] @lang [word|translation|expression] [for|of] {e}
    [from english|from @lang] [to|into] @lang[,|:] {e} {e} {e}
    [do you|can you] [speak|understand|write|read|teach me] @lang
    [say|write|answer|speak|count] [something |a sentence |it |]in @lang
    @help [write|draft|compose|prepare|finish|improve|proofread|shorten|edit] [a|an|my|the|this] \
      @doc[ about {w}| for {p}| on {w}| to my boss|]
    i need [a|an|some help with a] @doc[ about {w}| for {p}| on {w}| by tomorrow| for school|]
    [a|an|one] @doc [about|on|for] {w}[ please|, 500 words|]
    [500 words|two pages|ten lines|a paragraph|three sentences] [on|about] {w}
    @help [write|code|build|debug|fix|implement|generate|program] [a|the|my|this] @code[ for {w}| \
      that sorts {n}s| that prints {e}|]
    my @code [does not|doesn't|won't] [work|compile|run|start][, why|, help|, what is wrong|]
    how do i [write|build|test|fix|speed up|deploy] a @code
    [what is wrong with|fix|optimize|review] [this|my] code[:|] {e} {e} {e}
    i [have|got|woke up with|am suffering from] a @ill[,|.] [what should i do|what can i \
      take|what helps|is it serious|should i see a doctor]
    what [helps|is good|should i take|can i do|is the cure] [against|for|with] a @ill
    [my|our] [son|daughter|dog|cat|wife|baby|father] has a @ill[,|.] [what now|what do i do|is \
      that bad|help]
    [is|how serious is|how long lasts] a @ill[ dangerous| contagious| bad|]
    [which|what] [papers|documents|forms|steps] [do i need|are needed] for a @paper
    do i need a @paper [to|for] [travel to {c}|work in {c}|visit {c}|{c}|live in {c}]
    [can i|am i able to|may i] get a @paper [without a job|in {c}|as a student|online]
    my @paper [expired|was refused|got lost|is late][,|.] [what now|what can i do|help]
    what [happened|was going on|was life like|did people eat|was invented] @when
    [who|which king|which country|which queen] [ruled|won|fought|was born|lived|reigned] @when
    @tell [about|the history of|the story of|the causes of] {w}
    @tell [how|why] {w} [works|work|happens|happened|is|matters|began|ended]
    @tell why @why
    why exactly @why
    [so|hey|mom asks][,|] why @why
    how [come|is it that] [the sky is blue|cats purr|we dream|leaves fall|the sea is salty|birds \
      migrate|ice floats]
    [what's|what is|what are|tell me|any|show me|read me] @news
    [did|do] you [hear|see|read|know|follow] @news
    [science|physics|chemistry|biology|history|geography|law|economics] \
      [question|homework|test][:|,] [what is|explain|define|describe] {w}
    [define|outline|analyse|analyze|evaluate|interpret|illustrate|justify] {w}[ for me| briefly| \
      in depth|]
    [the|a] [definition|meaning|theory|history|discovery|origin|formula|proof|biography] of {w}
    [what do you|do you|what does the world] [think|think about|believe in|know about|hate \
      about|like about] {w}
    [what's|what is] your [opinion|view|take|stance] on {w}
    [are you|do you feel|were you ever] [for or against|in favour of|worried about|interested in] \
      {w}
    [what|which] [will|would|could] happen [if|when|after] {w} [disappears|ends|wins|breaks|grows]
    {w}[,|:| -] [explain|how does it work|tell me everything|good or bad|pros and cons|a short \
      summary|what is it]
    [difference|differences|the difference] between {w} and {w}
    {w} [vs|versus|or|compared to] {w}[, which is better|, what should i choose|]
    [pros and cons|advantages|dangers|risks|benefits|examples|types|symptoms] of {w}
    [a|the|your best] recipe for [lasagna|apple pie|pancakes|chicken soup|bread|curry|{n} soup|a \
      {a} cake][ please|]
    how [do i|to|does one|long do i] [cook|bake|grill|boil|make|roast|prepare] [lasagna|apple \
      pie|pancakes|soup|an egg|a turkey|rice|{n}s]
    what [should|can|could] [i|we] [cook|eat|have] [tonight|for dinner|for lunch|for my \
      guests|today]
    [plan|organize|arrange|book|find] [me |us |][a trip|a holiday|a flight|a party|a wedding|a \
      weekend|a hotel] [to|in|for] {c}
    [best|cheapest|nearest|good|nice] [restaurant|hotel|museum|beach|bar|flight|school|doctor] \
      [in|near|to] {c}
    [what|which things] [to see|to do|should i visit|can i visit] in {c}
    [is|how] [it |]{c} [safe|worth a visit|expensive|far|nice in winter]
    how [do i|can i|to|does one] [get to|move to|reach|travel to|find work in] {c}
    [should|shall|could|can|may] i [quit my job|marry {p}|buy a house|sell my {n}|invest in \
      {w}|learn {w}|sue my boss|tell {p}]
    [which|what] [phone|laptop|car|bike|camera|bank|school|book|movie|series] should i \
      [buy|choose|get|read|watch]
    [recommend|suggest|advise] [me |][a|some] \
      [book|film|movie|series|phone|laptop|song|wine|podcast|present][ for my {n}| for {p}| about \
      {w}|]
    @help [draw|paint|sketch|design|photograph|generate] [me |][a|an|the] \
      [picture|logo|image|photo|portrait|icon] of [a {n}|{p}|my {n}|{w}]
    @help [call|phone|text|pay|visit|contact|invite|find] [my mother|{p}|the police|a taxi|my \
      boss|the doctor|a plumber]
    @help [buy|order|sell|cancel|deliver|repair|clean|cook|install] [a {n}|my {n}|two {n}s|the \
      {n}|pizza|a taxi|tickets]
    @help [solve|integrate|differentiate|factor|prove] [this equation|x squared|the theorem|this \
      integral|the puzzle|a sudoku|{w}]
    [what is|calculate|compute] the [square root|logarithm|derivative|integral|factorial|cosine] \
      of {d}
    [who|what] [will|is going to] win the [election|world cup|match|oscar|race|league]
    [predict|forecast|foresee] [the future|my future|the weather|the election|{w}]
    [read|interpret|tell] my [horoscope|palm|mind|future|dream|fortune]
    [what|when|where] is [the best time|a good place|the best way] to [visit {c}|buy {w}|learn \
      {w}|plant {n}s]
    how [tall|old|rich|famous|smart] is [the president|the queen|{p}|einstein|the pope|that actor]
    [who|what] [is|was] [einstein|shakespeare|mozart|cleopatra|gandhi|newton|darwin|tesla|marie \
      curie|{p}][ and what did he do| famous for|]
    [when|where] [was|did] [einstein|shakespeare|mozart|cleopatra|gandhi|newton|{p}] [born|die|live]
    [my|the|our] [car|printer|phone|wifi|laptop|fridge|toilet|bike|computer|internet] [is \
      broken|won't start|makes noise|is slow|is leaking|does not work][, help|, what now|. what \
      can i do|]
    [i|we] [was|were] [robbed|fired|scammed|cheated|arrested|sued][,|.] [what are my rights|what \
      can i do|help]
    [is it|would it be] [legal|ethical|allowed|healthy|wise|safe] to [eat meat|record a call|sell \
      {n}s|drink {n}|own a {n}|{v} a {n}]
    [what|which] [is|was] the [longest|highest|oldest|fastest|largest|deadliest|rarest] \
      [river|mountain|animal|building|country|war|bridge|train][ in the world| in {c}| ever|]
    [how many] [people|countries|languages|stars|bones|teeth|planets|species|islands] [are \
      there|exist|live|are known][ in the world| in {c}| in the body| today|]
    [play|let's play|can we play|want to play] [chess|poker|tic tac toe|hangman|a game|twenty \
      questions|hide and seek]
    [act as|pretend to be|imagine you are|you are now|roleplay as] [a lawyer|a doctor|a \
      pirate|{p}|my teacher|a linux terminal|a king]
    [remember|recall] what [we talked about|i wrote|we did|i asked] [yesterday|last week|last \
      time|in the last chat]
    [sing|dance|whistle|shout|hum][ for me| a song| something| {w}|]
    [open|close|read|delete|save|print|send|download|upload] [the|my|this] \
      [file|mail|door|window|picture|document|calendar]
    [extract|classify|rewrite|paraphrase|correct|analyse] [this|the following][:| text:| \
      sentence:] {e} {e} {e} {e}
    [i am|i'm] [writing|doing|preparing] [a|my] [thesis|homework|report|test|talk] [on|about] \
      {w}[,|.] [help|what should i write|any ideas|where do i start]
    [meaning|the meaning|purpose|the sense] of [life|love|{w}|the universe|dreams]
    [do|did|can|will] [aliens|ghosts|robots|dinosaurs|{n}s|gods|angels] [exist|talk|rule the \
      world|come back|feel pain]
    """,
    tell=_TELL, help=_HELP, lang=_LANG, doc=_DOC, code=_CODE, ill=_ILL, paper=_PAPER, when=_WHEN,
    why=_WHY, news=_NEWS,
)  # fmt: skip
