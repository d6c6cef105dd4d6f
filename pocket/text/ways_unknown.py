"""More that the model cannot answer: topics, and ways to ask about them. As data."""

from typing import Final

TOPICS: Final = tuple(
    topic.strip()
    for topic in """
    string theory, general relativity, quantum computers, superconductors, the big bang,
    gene editing,
    antibiotics, the immune system, the nervous system, nuclear fusion, plate tectonics, tides,
    rainbows, lightning, mitosis, osmosis, the greenhouse effect, entropy, thermodynamics, calculus,
    integrals, matrices, prime numbers, logarithms, trigonometry, statistics, game theory, algebra,
    neural networks, transformers, blockchains, encryption, compilers, operating systems, databases,
    docker, git, regular expressions, pointers, threads, sockets, CSS, React, Rust, TypeScript,
    the cold war, the renaissance, the industrial revolution, the crusades, ancient Egypt, Sparta,
    the Vikings, the Aztecs, the Ottoman empire, the great depression, the black death, Cleopatra,
    Julius Caesar, Gandhi, Mozart, Shakespeare, Macbeth, the Odyssey, War and Peace, Star Wars,
    Harry Potter, the Mona Lisa, impressionism, baroque music, stoicism, existentialism, Kant,
    Buddhism, Islam, the Bible, meditation, mindfulness, keto diets, protein, cholesterol, asthma,
    the flu, migraines, allergies, insomnia, anxiety, a sprained ankle, high blood pressure, fever,
    toothache, a cough, hay fever, pregnancy, vitamins, sunburn, aspirin, surgery, vaccination,
    mortgage rates, hedge funds, index funds, stocks, bonds, pensions, credit cards, income tax,
    interest rates, crypto, real estate, startups, venture capital, marketing, accounting, invoices,
    divorce, copyright, patents, contracts, visas, passports, customs, work permits, citizenship,
    parking fines, jet lag, flights, hotels, train tickets, camping, hiking, scuba diving, surfing,
    the world series, the super bowl, formula one, the champions league, cricket rules, marathons,
    elections, parliaments, the senate, NATO, the UN, brexit, democracy, communism,
    the supreme court,
    today's headlines, the news, the weather forecast, traffic, a recipe for lasagna, pancakes,
    sushi,
    wine, cheese making, baking bread, knitting, gardening, roses, pruning trees, beekeeping,
    chickens,
    dog training, cat food, dinosaurs, sharks, octopuses, migration of birds, coral reefs, glaciers,
    hurricanes, tsunamis, deserts, the Amazon, the Sahara, Mount Everest, the Nile, the Great Wall,
    a broken window, a leaking tap, a car engine, an electric car, a router, bluetooth, a phone,
    a slow computer, a crash, a memory leak, a deadlock, a null pointer, a broken build,
    a merge conflict
    """.replace("\n", " ").split(",")
)
LANGUAGES: Final = (
    *("Dutch", "Greek", "Welsh", "Korean", "Hindi", "Zulu", "Arabic", "Hebrew", "Norwegian"),
    *("French", "German", "Spanish", "Italian", "Polish", "Turkish", "Russian", "Japanese"),
    *("Swedish", "Finnish", "Latin", "Thai", "Urdu", "Irish", "Basque", "Maori", "Danish"),
)
_SIMPLY: Final = (
    "[ as if i were a child| like i am a beginner| for dummies| in plain english| step by step"
    "| so that my grandma gets it| as simply as possible| like i am ten| to a beginner|]"
)
_BUG: Final = (
    "[null pointer|syntax error|stack overflow|index out of range|permission denied|kernel panic"
    "|core dumped|timeout|type error|import error|connection refused|undefined is not a function"
    "|out of memory|exit code {d}|error {d}|key error {e}|bus error|assertion failed|bad gateway"
    "|core dump in {e}|panic in {e}|error 0x{d}|trap at 0x{d}|404 not found|no such file {e}"
    "|broken pipe|undefined symbol {e}|division by zero|illegal instruction|heap corruption]"
)
ASKED: Final = (
    f"[explain|please explain|help me understand|teach me|break down|clarify] {{w}}{_SIMPLY}",
    f"[how does|how do|why does|what makes] {{w}} [work|happen|function|matter]{_SIMPLY}",
    "[give me|write|i want] [an introduction to|an overview of|a summary of|a lecture on|the basics"
    " of|a short history of|the story of] {w}",
    "{w}[,|:|?] [please explain|what is that|tell me all|care to tell me more|how does it work"
    "|what do you know|explain in short|a summary please]",
    "[what is|what are|what's|define] {w}[ exactly| in physics| in simple terms|]",
    "[what's|what is] the [difference|link|connection] between {w} and {w}",
    "[what are|list|name] the [pros and cons|causes|symptoms|effects|rules|benefits|risks"
    "|types] of "
    "{w}",
    "[latest|any|what are the] news [about|on|from] [{w}|{c}]",
    "[what do|how would] [they|people|locals] say [{n}|'{a} {n}'|{n} and {n}] in {g}",
    "[what does|how does] ['{a} {n}'|{n}|'{n} {n}'] [sound like|read|look] in {g}",
    "in {g}[,|] [how is|how do i say|what is] ['{a} {n}'|{n}|'the {n}'][ said| written|]",
    "[{g} for|{g} word for|the {g} for] [{n}|'{a} {n}']",
    "['{a} {n}'|{a} {n}|{n}] in {g}[ please|, what is it|]",
    "translate[ this|][:|] [the {n} is {a}|i {v} the {n}|{a} {n}|good morning|i love you]"
    "[ to {g}| into {g}|]",
    f"[debug|fix|explain|help with|solve] [this error|this bug|this crash|my error|this message]"
    f"[:|] {_BUG}[ in line {{d}}| in {{e}}| at {{d}}|]",
    f"[what causes|why do i get|i get|how do i fix|what does it mean:] {_BUG}[ in {{e}}|]",
    f"my [program|code|script|app|server|build|test] [crashes|fails|stops|says|dies][ with"
    f"|:] {_BUG}",
    "how do i [get|apply for|renew|obtain|change] [a|my] [passport|residence permit|work permit"
    "|driving licence|student loan|green card|bank account] [in|to|for] {c}",
    "[do i need|how long is|what does it take to get|where can i get] a visa "
    "[to visit|to enter|when travelling to|if i go to|for a trip to] {c}",
    "[which|what] [papers|documents|vaccines] do i need [for|in|to enter] {c}",
    "[definition|meaning|etymology|plural|pronunciation|spelling] of {e}",
    "[what is|what's|tell me] the [definition|origin|plural|etymology|pronunciation] of "
    "[the word |the term |]{e}",
    "[what|which] [is|does] {e} [mean|supposed to mean|called|stand for][ in english|]",
    "[define|explain] [the word|the term|the phrase] {e}",
    "[is|should] [it safe|it ok|i] [to take|to mix|take] {w}[ with {w}| every day|]",
    "[which|what] [pill|drug|medicine|tea|treatment|doctor] [helps|is good|do i need] [with|against"
    "|for] {w}",
    "[i have|my son has|my dog has] [{w}|a pain in the {n}|a bad {n}][,|.] "
    "[what should i do|what can i take|is it bad|help]",
    "[should i|is it time to|when should i] [buy|sell|invest in|hold] [{w}|{e} stock|{p}|gold]",
    "[give me|got|any] [stock|money|investment|career|dating|travel|health|legal|tax] "
    "[picks|advice|help|ideas|hints]",
    "[who|which team|which party] [will|is going to|might] [win|lose|lead|play in] "
    "[the {n}|the cup|{w}|the final|the vote|in {c}]",
    "who [was|is] the [first|last|{d}th|current|next] [king|queen|president|pope|mayor|chancellor"
    "|prime minister] of {c}",
    "who [invented|discovered|built|wrote|painted|sang|directed|founded] [the {n}|{w}|the radio"
    "|the wheel|the piano|{e}]",
    "[when|where|why] [did|was|were] {w} [begin|end|invented|discovered|happen|start|popular]",
    "why [is|are|do|does] [the {n}|{n}s|people|cats|we|{w}] [so |always |often |]"
    "[{a}|{v}|sleep|cry|dream]",
    "how [tall|high|deep|long|heavy|old|far|wide|big] is [{w}|mount {e}|the {e} tower|the {e} river"
    "|{c}|the {n}|lake {e}]",
    "[the {e} tower|{c}|the {n}|mount {e}][,|:] how [tall|far away|old|many people|deep|expensive]",
    "how many [people|calories|planets|languages|countries|stars|atoms|bones|words] "
    "[are there|exist|are in {w}|does {c} have|has the {n}|speak {g}]",
    "[what is|what's|name] the [plot|ending|author|moral|main character] of [{w}|{e}|the {n}"
    "|the {a} {n}]",
    "[write|draft|compose|prepare|make] [me |us |][a|an|my] [cover letter|marketing plan|budget"
    "|business proposal|cv|resume|wedding speech|blog post|lesson plan|novel|contract|python script"
    "|web page|shell script|unit test|sql query|letter to {p}|report on {w}][ for {c}| on {w}|]",
    "[my|our|this] [homework|algebra task|physics exercise|chemistry task|history essay|thesis"
    "|tax form|exam] [is hard|is late|is due tomorrow|makes no sense][,|.] [do it|help me|write it"
    "|finish it for me|what do i do]",
    "[can|could|will] you [fix|repair|clean|drive|cook|order|call|hack|install|update|reset] "
    "[my|the] [{n}|computer|phone|printer|router|car|sink|password|account|internet]",
    "[where|what] [is|are] the [best|nearest|cheapest] [restaurant|bakery|hotel|doctor|beach"
    "|shop|bar"
    "|pharmacy|cafe|gym][ in {c}| near me| nearby| around| in town|]",
    "[recommend|suggest] [a|some] [book|film|series|restaurant|laptop|game|diet|workout|gift]"
    "[ for {p}| for my mother| about {w}|]",
    "[solve|integrate|differentiate|simplify|factor|prove] [{d}x + {d} = {y}|x^{d}|sin x"
    "|this equation|the theorem of {p}|the {n} theorem]",
    "[how about|and now|then] [{w}|the past of {c}|the {n} of {c}|the war in {c}]",
    "[what|who] [happened|died|won|was born] in [{y}|{c} in {y}|the year {y}]",
    "[tell me|what is] [my future|my horoscope|the lottery numbers|the exchange rate"
    "|your opinion on "
    "{w}|what {p} thinks|the news of today]",
    "[read|open|summarize|look at|check] [this|my] [file|link|pdf|picture|page|article|mail]"
    "[: {e}| please|]",
    "[draw|paint|show|generate] [me |][a picture|an image|a photo|a logo|a map] of [the {n}"
    "|{w}|{c}]",
)
