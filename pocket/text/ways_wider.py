"""Further ways to say what the other modules ask, away from their usual frames. As data."""

from typing import Final

INTRODUCING: Final = (
    "[yo|ayo|heyo|sup|oi|hey|hiya|wassup|ey|], [it's|its|tis|this is|here is|it is] [ya|yer|your|ur"
    "|da|the|yo] [gal|lad|homie|bestie|dude|bro|main man|old mate|champ|girl|lass|one and only"
    "|dawg|guy|fave human|favourite user|big man] {x}",
    "[hey|hi|hello|yo|good day|morning|evening]! {x} [speaking|writing|at the keyboard|on the line"
    "|over here|typing|again|is my name|in the house|reporting]",
    "{x} here[, hello|, good evening|, glad to be here|, new user|. what's up|, howdy|. hi there"
    "|, hello again|, your new user|, first visit| speaking]",
    "{x} [here|speaking], [good to meet you|lovely to meet you|glad to meet you|pleased to chat"
    "|good to be here|happy to chat]",
    "[greetings from|love from|hello from|best wishes from|yours,|signed,|regards,] {x}",
    "[write|put|note|take] [me |this |]down[ as|:] {x}",
    "[you've got|you have got|meet|say hello to|say hi to] {x}",
    "[they|folks|colleagues|the neighbours|my gran|the whole town|my crew] [say|know me as"
    "|refer to me as|shout|nicknamed me] {x}",
    "[i answer to|i respond to|i sign as|i usually sign|i'm registered as|i like to be called"
    "|i prefer|i'd rather be called] {x}",
    "[me|i]? [i'm|i am|the name is|just|simply|plain old] {x}",
    "me [is|be|am|iz] {x}",
    "[im|i'm|i am] {x} [btw|by the way|lol|haha|if you want to know|in case you ask|fyi]",
    "[my handle is|my nick is|nick:|call sign|stage name:|codename|alias:] {x}",
    "[so|well|ok|right], [i'm|i am|that would be|you may know me as|they named me] {x}",
    "{x} [was the name they gave me|is written on my badge|is what my passport says"
    "|is what everybody says|is how i sign|is who you are talking to]",
)
HAPPY: Final = (
    "[feeling|i feel|i'm|i am feeling|doing] [fab|stellar|marvelous|splendid|superb|incredible"
    "|refreshed|joyful|delighted|thrilled|over the moon|blessed|energetic|grand|peachy|optimistic"
    "|magnificent|glorious|ecstatic|radiant|relaxed|unstoppable|content|cheery]"
    "[ today| lately| tonight| this week| at the moment|]",
    "[this is|life is|my week is|everything feels|all is] [awesome|brilliant|amazing|super|swell"
    "|terrific|peachy|splendid]",
    "[in|i'm in|i am in] [a good mood|high spirits|great shape|a great mood|the best of moods]"
    "[ today| right now|]",
    "[could not|couldn't] [be better|be happier|feel better]",
    "[best|greatest|happiest] [day|week|morning] [ever|in ages|of my life|this year]",
    "[good news|great news|yay|hooray|woohoo|yippee][,|!|:] [i won|i got the job|it worked"
    "|i passed|my team won|it is my birthday|i am going on holiday|]",
)
UNHAPPY: Final = (
    "[feeling|i feel|i'm|i am feeling] [miserable|gloomy|crushed|drained|exhausted|blue|rotten"
    "|heartbroken|hopeless|worn out|upset|grumpy|low|worried|anxious|poorly]"
    "[ today| lately| tonight| this week| at the moment|]",
    "[this was|it was|it's been|had|i've had] [a tough|an awful|a dreadful|a nasty|a gloomy|a long"
    "|the worst] [day|week|night|morning|month]",
    "[worst|saddest|longest] [day|week|morning] [ever|in ages|of my life|this year]",
    "[bad news|sad news|oh no|ugh|sigh][,|!|:] [i lost|i failed|my cat is ill|it broke"
    "|i missed my train|my team lost|nobody called]",
)
JOB: Final = (
    "[what|how] do i [earn my bread|pay my bills|spend my working day|make my money]",
    "[which|what] [line of work|field|job|kind of work] [am i in|do i do|is mine|do i have]",
    "for [a job|money|my work|work|bread], what [do i do|is it i do|was it that i do]",
    "[where my money comes from|what my work is|what i get paid for][, you know|, do you recall|]",
    "[my|the] living, how do i [earn|make] it",
)
JOKE: Final = (
    "[might|may|could] [i|we] [request|ask for|beg for|order|trouble you for|possibly get"
    "|interest you in telling] [a|one|some] [joke|pun|funny line|gag|laugh]"
    "[, kindly|, maybe|, if that's ok|, if you don't mind|]",
    "[would|will] you [mind telling|be so kind as to tell|care to tell|share|treat us to] "
    "[me |us |]a [joke|pun|gag|good one|funny one]",
    "[might|may] i hear [a pun|something funny|one of your jokes|a good one|a joke]",
    "[is there|isn't there] [a|any] [joke|pun|gag] [you know|for me|to be had|in there]",
    "[i'd|i would] [like|love|really like] to [hear|get|laugh at] [something funny|a pun|a gag"
    "|your best joke|one of your jokes]",
    "[a|one] [joke|gag|pun][, perhaps|, maybe|, possibly|, would you|, if i may ask|, go on]",
    "[time for|how about|what about|ready for|let's have|bring on] [a joke|jokes|a pun|some fun]",
    "[cheer|perk|lift] [me|us] up[, i had a bad day| with something funny| a little|]",
)
ANOTHER: Final = (
    "[some|a few|further|extra|additional|fresh|newer|better|other|new] jokes[, go| like that|]",
    "more [puns|gags|laughs|fun|humour|comedy|wordplay|of the same|funny stuff|like that"
    "|funny ones|like this one]",
    "[give me|tell|tell me|i want|i'd like|let's have|we want|i need] [some |even |]more "
    "[jokes|puns|gags|of them|of these]",
    "do you [know|remember|have] [a second|a newer|a better|a funnier|another|a fresh|some other"
    "|a longer] [one|joke|pun]",
    "[is there|got|have you|have you got|maybe] [a different|some other|a fresh|an alternative"
    "|a new] [one|joke|pun]",
    "[not|but not] [that one|the same|this one] again[, another|, a different joke|]",
    "[a different|a new|some other|a fresh|a second|one other] [joke|one|pun|gag]",
    "[i knew that|i've heard that|seen it|too easy|boring|old], [try a different joke|try again"
    "|got a new one|another one|tell a different one]",
    "[can|could|would] you [try|find|give|make] [a different|another|a new] [one|joke|pun]",
    "[ok|cool|nice|haha|lol|ha|good][,|!] [and the next|what else|a different one|and a new joke"
    "|now a better one|tell me more|a second one]",
)
HAIKU: Final = (
    "[five seven five|5/7/5|575|five-seven-five][:|,| -|] [verse|poetry|lines|haiku|syllables"
    "|write one|a little verse|that form][ please| about {t}|]",
    "[verse|something|three lines|poetry|a poem|lines] [in|with|of|as] [5-7-5|five-seven-five"
    "|5/7/5|17 syllables|seventeen syllables|haiku form][ please| about {t}|]",
    "[use|take|follow|do] the [5-7-5|haiku|five-seven-five] [form|pattern|rule|scheme]"
    "[ to write| and write|][ about {t}|]",
    "[a|the|one] [tiny|mini|very short] poem [like in japan|from japan|in japanese style"
    "|of 17 syllables][ about {t}|]",
    "[syllables|beats|lines]: 5-7-5[, go| please|]",
)
POEM: Final = (
    "rhyme [anything|whatever you like|a story|four lines|what you want|freely|me a tale"
    "|us a tale|a tune|verses|me up|all you can|things for us|stuff]",
    "[make|let|have] [something|it|the words|your words|some lines] rhyme[ now| for us|]",
    "[can|could|would|will] you rhyme [for us|anything|a little|some|a tale|a few lines|words]",
    "[do|try|start|begin] [some |a little |a bit of |]rhyming[ for me| now| please|]",
    "[talk|speak|answer|say something|tell me something] in [rhyme|rhymes|verse|verses]",
    "[poem|poetry|verse|rhyme], [go|pls|now|any|quick|if you can]",
    "[four|some|a few] lines [that|which] rhyme",
)
COMPARED: Final = (
    "{a}[:|...|.|,| -] [is this|this is|surely that's|it's|is the number|isn't that|could it be] "
    "%s than {b}",
    "{a} - [that's|this is|is it] %s than {b}, [is it|isn't it|correct|no]",
    "[what about|take|look at|consider] {a}[.|,|:| -] is [it|that|this] %s than {b}",
    "[here's|my number is|i got|i have] {a}[.|,| -] [is it|is that] %s than {b}",
    "than {b}, is {a} %s",
    "is {a} or isn't it %s than {b}",
    "{a} against {b}: is the [first|former] %s",
)
SORTED: Final = (
    "[these|those|they|the numbers|some numbers] [want|require|could use|are waiting for|deserve"
    "|are in need of|lack] [sorting|ordering|some order|to be sorted|an order][:|,| -] {l}",
    "[need|wants] [ordering|ranking|arranging|a sort][:|,| -] {l}",
    "[please do|do|perform|run] [a|the] sort[:|,| of| on] {l}",
    "sort[,|:|;|] [please|pls|now|quick][:|,|] {l}",
    "[sorting|ordering|ranking] [task|job|time|exercise][:|,| -] {l}",
    "[make|bring] [some order|order] [out of|into|of|from] {l}",
    "[tidy|clean|straighten|order] up {l}",
    "[a|the|one] sorted [list|row|version|line] [of|from|with] {l}",
)
BEFORE_OR_AFTER: Final = (
    "[does|do|will|would] {x} [fall|sit|lie|stand|land] [before or after|after or before] {y}",
    "{x}[:|,| -|...] [before or after|after or before|earlier or later than] {y}",
    "is {x} [ahead of or behind|after or before|earlier than or later than|sooner or later than] "
    "{y}",
    "[in the year|in the week|on the calendar|in order], [is|does] {x} [come |]before or after {y}",
    "[tell me|say|do you know] [if|whether] {x} [is|comes] before or after {y}",
    "before or after {y}[:|,] [where is|when is|when comes|] {x}",
    "{x} is [before or after|after or before] {y}",
)
OPPOSITE: Final = (
    "[i go|i shout|i write|i type|he says|one says|they say|she says|i answer|i yell|i sing] {x}"
    "[,|;|:| -|...] [you go|you shout|you write|the other says|you answer|you yell|you type|and you"
    "|what do you say]",
    "me: {x}[.|,|;] you[:|...|?| -]",
    "my word is {x}[,|.|;] [yours is|your word|what is yours|and yours]",
    "{x}! [and you say|you say|your turn|the other one|you]",
    "{x} is the [contrary|antonym|reverse|exact opposite|flip side] [of|to] [what word|which one"
    "|which word|which term|what]",
    "{x} is [opposite|opposed|contrary] to [which word|what|which one]",
    "[of|to] [which|what] [word|term] is {x} the [opposite|contrary|antonym]",
    "[what|which word] [has {x} as its opposite|has the opposite {x}|stands against {x}]",
    "[play|let's play] opposites[:|,|.] {x}",
)
DO_RHYME: Final = (
    "{x} [+|&|vs|/|with|versus] {y}[:|,| -|] [a rhyme|is that a rhyme|rhyming or not|rhymes|match]",
    "[this|the|that|my] [pair|couple|two words][:|,| -|] {x}[/| /| and|,] {y}[, a rhyme|, rhyme"
    "|. Does this pair rhyme|. Is it a rhyme|. Do the two rhyme|]",
    "{x}[,| /|;| and] {y}[:|,| -|.] [does this pair rhyme|do the two rhyme|do both rhyme"
    "|do they sound alike|is there a rhyme]",
    "[two words|take the words|look at][:|] {x}, {y}. [do they|will they|would they] rhyme",
    "[i rhymed|he rhymed|my poem rhymes] {x} [with|and] {y}[,|.] [is that right|is that ok"
    "|does it work|correct]",
)
LIST: Final = (
    "[pick|choose|select|get|take|bring|find] {n} {t} [for|to] [my trip|our party|the shop|tonight"
    "|our team|a poster|the garden|her birthday|my sister|the show|a book|a crossword|my notes"
    "|the menu|our club]",
    "[i must|we must|i have to|let's|help us|i should] [pick|choose|name|find|list] {n} {t}"
    "[ for our party| today| for school|]",
    "{n} [kinds of|sorts of|types of|examples of|names of] {t}[ please| for me|]",
    "[pick|choose|say|list] [any|some|just|your favourite|your top] {n} {t}",
    "[my|your|a|the] top {n}[:|,| of| in|] {t}",
    "[what|which] {n} {t} [should i pick|shall we take|would you choose|do we need]",
)
DECLINED: Final = (
    "{w}[,|?|...|.] [can you explain|any idea|what's the story|how come|mind explaining"
    "|know anything|want to explain it|would you explain that]",
    "[and|so|ok then|well then|then|fine], [what about|how about|who knows about|explain|tell me "
    "about] [{w}|the history of {w}|the story of {w}|the future of {w}]",
    "[what about|how about|and] [the origin|the past|the story|the rise|the fall|the economy] "
    "of [{w}|{c}|the {n}]",
    "[and|ok,|so,|then] [who|what|why|when|where] [is|was|are|did|does] [{w}|the {n}|{c}]",
    "[let's talk about|let us discuss|i wonder about|thoughts on|curious about] {w}",
)
