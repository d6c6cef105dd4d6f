"""More ways to ask for the tools of `spoken_tools`, by the tool's first name."""

from typing import Final

from pocket.text.frames import frames

_SUBJECT: Final = (
    "subject|the subject|subject line|the subject line|subject is|the subject is|titled"
    "|headed|heading|topic|with subject|re"
)
_TEXT: Final = (
    "text|the text|body|the body|message|the message|body is|the text is|message is|content"
    "|it says|it reads|saying|it should say"
)
_MAIL: Final = (
    "email|e-mail|mail|message|send an email to|write an email to|send a mail to|write to"
    "|drop a line to|shoot a mail to|compose a mail to"
)
_BOOK: Final = (
    "book|reserve|get|get us|book us|reserve me|i need|i want|we need|we want|i'd like"
    "|please book|can you book|could you reserve"
)
_OF_US: Final = "people|of us|guests|persons|diners|folks|"
_PLAY: Final = (
    "play|put on|start|i want to hear|let me hear|let's hear|i'd like to listen to"
    "|i feel like hearing|turn on|spin|queue|stream"
)


def _frames(text: str) -> tuple[str, ...]:
    return frames(text, subject=_SUBJECT, text=_TEXT, mail=_MAIL, book=_BOOK, us=_OF_US, play=_PLAY)


TABLE: Final = _frames(
    """
    @book [a table|us a table] for {c} at {a} at {b}
    @book [a table|us a table] at {a} for {c} @us at {b}
    @book [a table|us a table] at {a} at {b} for {c} @us
    @book [a table|us a table] at {b} at {a}[,|] [for|we are] {c} @us
    @book {a} at {b} for {c}
    @book {a}, {b}, {c} @us
    [at|for] {b}[,|] @book a table for {c} @us at {a}
    [at|in] {a}[,|] @book a table for {c} @us at {b}
    [at|in] {a} at {b}[,|] a table for {c}[ please|]
    for {c} @us[,|] [a table |]at {a}[,|] [at|around] {b}
    for {c} @us at {b}[,|] [a table |]at {a}
    [table|a table] for {c}[,|] {a}[,|] {b}
    [table|a table] for {c} @us at {b}[,|] [at|in|place is] {a}
    [table|a table] at {a} for {c}[,|] {b}
    {c} @us[,|] {a}[,|] {b}
    {a}[,|] {b}[,|] {c} @us
    {a}[,|] table for {c}[,|] {b}
    {b}[,|] {a}[,|] {c} @us
    {b} at {a}[,|] {c} @us
    we are {c} and [want|would like|hope] to [eat|dine|have dinner|have lunch] at {a} at {b}
    we are {c} @us[,|] {a}[,|] at {b}
    there [are|will be] {c} of us at {a} at {b}[, book a table|]
    {c} of us [want|would like] to [eat|dine|have dinner] at {a} at {b}
    dinner at {a} at {b}[,|] {c} @us
    [lunch|dinner|a meal] for {c} @us at {b} at {a}
    [i am|i'm] [meeting|taking] friends at {a}[,|] {c} of us[,|] {b}[. book a table|]
    at {b} {c} @us [will come|are coming|arrive] at {a}[. book it|]
    is there a table for {c} at {a} at {b}
    can i get a table [for {c} |]at {a}[,| at] {b}[,| for] {c}
    """
)
SONG: Final = _frames(
    """
    @play "{a}" by {b}
    @play {b}'s "{a}"
    @play "{a}"[,|] [artist|singer|the artist is|sung by|the one by|from|performed by] {b}
    [from|of] {b}[,|] @play "{a}"
    {b}: "{a}"[, play it|]
    {b}, "{a}"[ please|, play that|]
    "{a}" by {b}[, please|, play it|, play that|]
    "{a}"[,|] {b}[ please|]
    "{a}", it's by {b}[, play it|]
    [the song|my favorite song|the track|the tune] is "{a}"[,|] [the artist|the singer|artist] is \
      {b}
    [the artist|the singer|artist] is {b}[,|] [the song|song|the track] is "{a}"
    [i love|i like|i'm in the mood for] {b}[,|.] @play "{a}"
    there is a song by {b} called "{a}"[, play it|]
    [do you have|have you got|can i hear] "{a}" [by|from|of] {b}
    [something|a song|music] by {b}[,|:] "{a}"
    my [mother|friend|dog|kid] wants to hear "{a}" by {b}
    """
)
PAINT: Final = _frames(
    """
    paint [my|the|our|this] {a} in {b}
    paint it {b}[,|:] [my|the] {a}
    paint {b} on [my|the] {a}
    {b} paint [on|for] [my|the] {a}[ please|]
    [use|take] {b} for [my|the] {a}
    with {b}[,|] [paint|coat|brush|do] [my|the] {a}
    [my|the] {a} [needs|wants|deserves|could use|gets] [a coat of |]{b}[ paint|]
    [my|the] {a} [should|must|has to|is going to] be [painted |]{b}
    [my|the] {a}[,|:|] {b}[ please|]
    {b}[,|:|] [my|the] {a}[ please|]
    [i want|i'd like|i need|let me have] [my|the|a] {a} [painted|coated|done|] [in |]{b}
    [make|turn|get] [my|the] {a} {b}[ with paint|]
    [give|add] [my|the] {a} [a coat of|some|a layer of|the colour] {b}
    [could|can|would] you [paint|make|turn|colour] [my|the] {a} {b}
    [change|switch|set] the colo[u|]r of [my|the] {a} to {b}
    the colo[u|]r of [my|the] {a} [should|must|shall] be {b}
    [my|the] {a} looks [boring|old|dull], [paint it|make it|try] {b}
    {b} is [what i want|the right colo[u|]r|best|lovely] for [my|the] {a}
    a {b} {a}[, paint it| would be nice| is what i want]
    """
)
ASKING: Final = {
    "get_weather": _frames(
        """
        [tell me|i'd like to know|do you know|check|look up] [if it rains|whether it is cold|how \
          warm it is|the weather|the forecast] in {a}
        [what should i wear|shall i bring an umbrella|is it beach weather|can i ride my bike|do \
          people need coats] in {a}
        how does the sky look [in|over] {a}
        [any rain|any snow|any sun|clouds|storms|sunshine] in {a}[ today| right now|]
        i [fly|drive|move|travel] to {a} [tonight|tomorrow|soon][,|.] [weather|how is it there|is \
          it cold|what's the weather like]
        what [are|is] the [temperatures|temperature|conditions|degrees|weather] [like |]in {a}
        """
    ),
    "get_time": _frames(
        """
        [tell me|i'd like to know|do you know|check|look up] [what time it is|the hour|the local \
          time|how late it is] in {a}
        my [sister|boss|client] is in {a}[,|.] [is it too late to call|what time is it for \
          her|what's the time there]
        [the clocks|clocks|watches] in {a} [show what|say what|what do they say]
        [what hour|which hour|how late] is it [now |]in {a}
        [time right now|current time|clock time|local hour] [in|for|at] {a}
        are people in {a} [asleep|awake|at lunch|still up][ now|]
        """
    ),
    "set_timer": _frames(
        """
        [my|the] [eggs|pasta|pizza|laundry|tea|bread] [need|needs|takes|take] {a} minutes[, set a \
          timer|, start the clock|. time it|]
        [wake me|ring|buzz|call me|shout|ping me|let me know] [in|after] {a} [minutes|mins|min]
        [count|time|measure] {a} [minutes|mins|min][ for me|]
        timer[:|,|] {a}
        i [nap|rest|take a break|meditate] for {a} minutes[,|.] [wake me|tell me when it is \
          over|set a timer]
        [after|when] {a} minutes [have passed |are over |]i [have to|must|want to] [stop|go|turn \
          off the oven]
        """
    ),
    "get_order_status": _frames(
        """
        {a}[?|,| -] [where is it|status|any news|is it coming|shipped yet]
        [still waiting|i am waiting|i wait] for {a}[,|.] [where is it|any news|what's going on]
        [status|state|whereabouts|progress] of {a}
        [when|how soon] [will|does|do i get] [order |parcel |]{a} [come|arrive|]
        what [happened to|became of|is the status of] [order |my parcel |]{a}
        [my|the] [reference|tracking number|code] is {a}[,|.] [where's my stuff|check it|what's \
          the status]
        """
    ),
    "web_search": _frames(
        """
        [see|find out|check] what the web [has|says] [on|about] {a}
        [online|on the web|on the internet][,|] [find|search|look for] {a}
        [please |]look {a} up[ online| for me| on the web|]
        i [can't find|heard about|read about|am curious about] {a}[,|.] [look it up|search|google \
          it|search the web]
        [dig up|fetch|get me|pull up] [something|pages|results|what you can] [on|about] {a}
        [search terms|query|keywords]: {a}
        [type|put|enter] {a} [in|into] [a search engine|google|the search box]
        """
    ),
    "set_light": _frames(
        """
        [i'd like|can i have|let me have] the {a} [light|lamp|lights] {b}
        {b}, the {a} [light|lamp|lights]
        [i want|we need] [it|the light] {b} in the {a}
        [put|switch|turn|flip] {b} the {a} [light|lamp|lights]
        [switch|turn|flip] the {a} [light|lamp|lights] {b}
        the [light|lamp] of the {a}: {b}
        {a}: [light|lamp] {b}
        """
    ),
    "create_reminder": _frames(
        """
        [make sure|see to it|take care] [that |]i {a} at {b}
        [around|by] {b} i [want|need|have] to {a}[,|.] [help me remember|remind me|reminder please]
        [my memory is bad|i forget everything|i am forgetful]: {a} at {b}
        reminder[:|,|] {a}[,|] [at |]{b}
        reminder[:|,|] {b}[,|] {a}
        [note|put down|write down][:|] {a}[,|] at {b}
        {b} is when i [must|should|have to] {a}[, remind me|]
        [do not|don't] let {b} [pass|go by] without telling me to {a}
        """
    ),
    "send_email": _frames(
        """
        @mail {a}[,|] @subject "{b}"[,|] @text "{c}"
        @mail {a}[,|] @text "{c}"[,|] @subject "{b}"
        @mail {a} about "{b}"[:|,|] "{c}"
        @mail {a}: "{c}". @subject: "{b}"
        @subject "{b}"[,|.|;] @text "{c}"[,|.|;] [to|send to|send it to|recipient|goes to|for] {a}
        @subject "{b}"[,|.|;] [to|for|recipient] {a}[,|.|;] @text "{c}"
        @text "{c}"[,|.|;] @subject "{b}"[,|.|;] [to|send to|it goes to|recipient|for] {a}
        @text "{c}"[,|.|;] [to|for|recipient] {a}[,|.|;] @subject "{b}"
        to[:|] {a}[,|;] subject[:|] {b}[,|;] [body|text|message][:|] {c}
        to[:|] {a}[,|;] [body|text|message][:|] "{c}"[,|;] subject[:|] "{b}"
        {a} [must|should|has to|needs to|ought to] [know|hear|read|learn] "{c}"[,|.] [email \
          it|mail it|write it|send it] [under|with|with subject|as] "{b}"
        [let|inform|tell] {a} [know |]"{c}" [by mail|in an email|by email][,|] @subject "{b}"
        [write|send|mail] {a} an email[,|.] @subject "{b}"[,|] @text "{c}"
        [write|send|mail] "{c}" [under the subject|with the subject line|as|titled] "{b}" to {a}
        ["{b}"|'{b}'] is the subject[,|] "{c}" [is |]the [text|body|message][,|] [send it \
          to|for|goes to] {a}
        a [mail|message|note] for {a}[:|,] "{c}"[,|.] @subject "{b}"
        i [have to|must|want to] [email|write to|mail] {a}[,|.] @subject "{b}"[,|] @text "{c}"
        @mail {a} with "{b}" as [the |]subject and "{c}" as [the |][text|body|message]
        @mail {a} with "{c}" as [the |][text|body|message] and "{b}" as [the |]subject
        """
    ),
    "book_hotel": _frames(
        """
        @book [a room|rooms|beds] [in|at] {a} on {c} for {b}
        @book [a room|rooms|beds] on {c} for {b} [people|guests] [in|at] {a}
        for {b} on {c}[,|] @book {a}
        {c}[,|] {a}[,|] {b} [people|guests|of us]
        {c}[,|] {b} [people|guests|of us][,|] {a}
        {b} of us [arrive|are coming|come] [at|to] {a} on {c}
        we [arrive|come|check in] on {c} at {a}[,|] [we are |]{b} [people|guests|of us]
        [arrival|date] {c}[,|] hotel {a}[,|] guests {b}
        """
    ),
    "save_memo": _frames(
        """
        [write|note|put|jot] "{b}" [in a memo|into a note] [called|named|titled] "{a}"
        [a note|memo|note] [called|named|titled] "{a}"[:|,| with] "{b}"
        "{a}" is the [heading|name|title][,|] "{b}" [is |]the [text|memo]
        [title|name|heading] it "{a}" and [write|put] "{b}"
        [keep|save] this as "{a}": "{b}"
        """
    ),
    "dye_cloth": PAINT[5:14],
    "pay_bill": _frames(
        """
        [let|make] {a} have {b} [euros|]
        [my debt|what i owe] to {a} is {b}[, pay it|]
        {b} [goes|go|should go|must go] to {a}
        [wire|hand|move|remit] {b} [euros |]to {a}
        [wire|hand|lend] {a} {b}[ euros|]
        {a} is owed {b}[ euros|][, settle it|]
        the [bill|sum|amount] is {b}[,|] [to|pay it to|receiver is|it goes to] {a}
        """
    ),
    "play_film": _frames(
        """
        tonight [we|i] [watch|want to see|would like] "{a}" by {b}
        {b} [made|directed|shot] "{a}"[, play it|, show it|]
        "{a}"[,|] [directed by|director|a film by|made by] {b}
        [director|the director is|the maker is] {b}[,|] [film|the film is|movie] "{a}"
        """
    ),
}
