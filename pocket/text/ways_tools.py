"""Further ways to ask for tools in free speech, and short texts as people write them. As data."""

from typing import Final

ORDER: Final = (
    "[my|the|our|that] [parcel|package|delivery|order|box] [is late|did not arrive|got lost|hasn't "
    "turned up|should be here by now|is nowhere to be seen|is stuck|was never delivered|is taking "
    "ages][,|.|:] [the number is|order no.|it has number|its id is|its number is|reference"
    "|number|the code on it is|tracking number is|i have the number] {a}[, please check|]",
    "[i am still waiting|still waiting|nothing came|nothing has arrived|i paid weeks ago]"
    "[,|.|:] [my order number is|the order has number|it is order|order|the number was] {a}",
    "[tell me|find out|i'd like to know|please see] [where|when] {a} [is|will come|arrives]",
    "[status|track|trace|lookup][:| of| for|] {a}[ please|]",
    "[about|regarding|concerning] [order|my order|parcel] {a}[:|,|.] [any news|where is it|is it "
    "sent|what happened]",
    "[here is|this is] [the|my] [number|order number|code]: {a}. [Where is my parcel|Is it sent"
    "|Look it up]",
)
LIGHT: Final = (
    "the {a} is [empty|dark|too bright|full of people|so gloomy|busy|quiet][,|.|:] [light {b}"
    "|turn the light {b}|put its lamp {b}|{b} with the light][ please|, please|]",
    "[we left|she entered|they went to|he is done in|dad has gone into|look at] the {a}[,|:|.] "
    "[light {b}|the lamp {b}, please|switch the lamp {b}|{b} with the lamp]",
    "[the cat|grandma|a guest|my son] [sleeps|plays|works] in the {a}: [switch the light {b}"
    "|the lamp should go {b}|i want the light {b} there]",
    "[why is the light in the {a} not|how come the light in the {a} is not] {b}? [Do it|Switch it"
    "|Change that]",
)
EMAIL: Final = (
    'to {a}, [subject|the subject is|subject line|topic|title|with the title] "{b}", [say|text|body'
    '|message|the text is|put|tell them|the message is|content] "{c}"',
    'to {a}[:|,] [the text|the message|text|say] "{c}", [the subject|subject|topic|title] "{b}"',
    '[mail|say|tell|deliver|pass on|forward|post] "{c}" to {a}[,|.] [subject|the title is|and as'
    ' subject|with title|the topic is|the headline is|under] "{b}"',
    '[compose|prepare|draft] [a mail|an email|a message] to {a}[:|,] [subject|title] "{b}", '
    '[text|body|saying] "{c}"',
    '[let|make] {a} [know|read|see] "{c}"[,|.] [subject|title|topic] "{b}"',
    '"{c}" - [mail|send|email] [that|this] to {a}[,| with] [subject|the subject|title] "{b}"',
    '[mail|email] with [subject|title] "{b}" [to|for] {a}[:|,] "{c}"',
)
FILM: Final = (
    "[by|from|of] {b} [let me see|i would like to see|we want to watch|we would love|i choose|put "
    'on|start|i fancy|show us] "{a}"',
    "[some|a bit of|a little] {b}[ tonight|][,|:] [the film|the one called|namely|start with] "
    '"{a}"',
    '[it is|it should be|make it|let it be] "{a}"[,|] [by|and the director is|made by] {b}',
    '[i feel like|i am in the mood for|tonight i want] {b}[,|:|.] [play|show|start|put on] "{a}"',
    '[could|can] you [play|show|start] "{a}"[,| the one| which is] by {b}',
)
DYE: Final = (
    "[dye|tint|colour|stain|spray] [my|the|this] [old |new |]{a} [in |all |]{b}[ please|]",
    "[give|get] [my|the] {a} a [coat|touch|shade|tone] of {b}",
    "[i picked|i chose|i decided on|let's go with] {b} for [my|the] {a}",
    "[one|a] {b} {a}, [please|that's what i want]",
    "{b}[, please,|] [for|on] [my|the] {a}",
    "[change|switch|set] [the colour of |]the {a} to {b}",
)
FILM_BY: Final = (
    "[by|from|of] {b} [I want|I would like|I'd love|I need|we want|We want|we would like|Please"
    "|may I|Can I|could we|My wife wants|My son wants|let me|Let us|I'd like|I wish] "
    '[to see|to watch|see|watch|to have|have|to start|to get] "{a}"[ tonight| please| now|]',
    "{b} [I like|I love|is great|is my favourite|made it|did that one|and nobody else|again]"
    '[:|,|.|;] [play|show|start|put on|let us watch|I want to see] "{a}"',
    '[what|something] [by|of] {b} [I know|I like|I want] is "{a}"[, play it|, show it|]',
    '"{a}" [I want to see|I would like to watch|we want to watch|please show|must be shown], [by'
    "|from|it is by|the one by|made by] {b}",
    '[everybody|My sister|Our teacher|The kids] [told me|said] to [see|watch] "{a}" by {b}',
    'if {b} made "{a}", [I want to see it|show it|then play it|put it on]',
)
EMAIL_PARTS: Final = (
    '[to|for] {a}[,|;|:] [subject|title|topic|re][:| is|] "{b}"[,|;|.] [put down|the words are|it'
    ' reads|it says|they should read|tell|send|content|and the body|the mail says] "{c}"',
    '[to|for] {a}[,|;|:] [put down|the words are|it says|tell|send|content|body] "{c}"[,|;|.|, and]'
    ' [subject|title|topic|re][:| is|] "{b}"',
    '[subject|title|topic|re][:| is|] "{b}"[,|;|.] [the words are|it says|put down|body|content|and'
    ' the mail says] "{c}"[,|;|.] [to|for|it goes to|recipient|address] [is |]{a}',
    '[the words are|it says|put down|body|content][:|] "{c}"[,|;|.] [to|for|it goes to|recipient'
    '|address][:|] {a}[,|;|.| and] [subject|title|topic|re][:| is|] "{b}"',
    '{a}[,|:|;] "{b}"[,|:|;] "{c}"',
    '[I owe|I promised|we promised|I should send] {a} a mail[:|,|.] [subject|title] "{b}"[,|;] '
    '[text|words|it says] "{c}"',
)
MEMO: Final = (
    '[write|note|jot down|put down|record] "{b}"[,|.] [the heading is|heading|label it|file it '
    'under|title] "{a}"',
    '[for|to] [my|the] [list|file|memos]: "{b}"[,|.] [label|heading|name] "{a}"',
    '[new|another] [memo|entry][:|,] "{a}"[:|,|;] "{b}"',
    '[label|name|call] it "{a}"[:|,|;] [the text is|it says|the memo reads] "{b}"',
)
BOOK: Final = (
    '[read|open|lend me|get me|order] "{a}" [by|from|written by] {b}',
    '[by|from] {b} [i want to read|i need|get me|i would like|please order] "{a}"',
    '{b}[,|:|\'s] "{a}"[ please|, the book|]',
    '[something|a book] by {b}[:|,] "{a}"',
    '[the author is|author] {b}[,|;|.] [the book is|title] "{a}"',
    '"{a}"[,|;|.] [the author is|written by|author] {b}',
    '[have you|do you have|is there] "{a}" [by|from] {b}[ in the library|]',
)
CHANNEL: Final = (
    '[post|write|put|announce|share|publish] "{b}" [in|to|into|on] [the channel |channel |]{a}',
    '[in|to|on] [the channel |channel |]{a}[ post|: post| write|, announce| say] "{b}"',
    '"{b}"[:|,| -|.] [post it|put that|it belongs|share that] [in|to|on] {a}',
    '[let|tell] {a} [know|hear]: "{b}"',
    '[channel|room] [is |]{a}[,|;] [text|message|the text is] "{b}"',
    '{a} [should read|must see|needs to hear] "{b}"',
)
RENAME: Final = (
    "[rename|move|change] {a} [to|into] {b}",
    "{a} [should be|must be|shall be|becomes|is now] [called |named |]{b}",
    "[call|name] {a} {b}[ from now on| instead|]",
    "[the new name|the name] [for|of] {a} is {b}",
    "[from|old name] {a}[,| to| - new name|; new name] {b}",
    "[let|make] {b} the [new |]name of {a}",
)
DELIVER: Final = (
    "[send|deliver|bring|ship] {c} {a} to {b}",
    "[to|for] {b}[,|:] {c} {a}[ please|]",
    "{c} {a} [for|to] {b}[, please| asap|]",
    "{b} [needs|wants|ordered|gets|asks for] {c} {a}",
    "[we need|i need|order] {c} {a}[,|] [deliver|send|bring] [them|it|those] to {b}",
    "{a}[,|:] {c} of them[,|] [to|for] {b}",
    "[the goods are|item:] {a}, [the city is|city:] {b}, [the number is|count:] {c}",
)
NOTES: Final = (
    "The {n}s are {a}.",
    "the {n} is {a}",
    "{v} the {n}",
    "see you {w}",
    "I am {a} {w}",
    "call {p} {w}",
    "{v} {d} {n}s",
    "We {v} the {n} {w}.",
    "Your {n} is {a}!",
    "no {n} {w}",
    "{p} is {a}",
    "Please {v} my {n}.",
    "the {a} {n} of {p}",
    "Is the {n} {a}?",
    "not {a}, but {a}",
    "I'll be {a} at {t}",
    "{d} {n}s for {p}",
    "{n} {w}: {a}",
    "it's {a}",
)
WHEN: Final = (
    *("soon", "today", "tomorrow", "tonight", "on Sunday", "at noon", "next week", "later", "now"),
    *("in June", "at home", "on Friday", "this evening", "again", "there", "by train"),
)
