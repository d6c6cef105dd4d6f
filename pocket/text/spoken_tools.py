"""Tools asked for in free speech: values in any order, named by nothing but their place."""

from typing import Final

from pocket.text import longer_requests, phrasing, spoken_values, values, ways_tools
from pocket.text.dice import Dice
from pocket.text.document import Call, Document, Json, Turn
from pocket.text.spoken_values import SpokenTool

TOOLS: Final = (
    SpokenTool(
        ("get_weather", "weather", "forecast", "get_forecast"),
        "Get the weather in a city.",
        (("city|place|location|town", spoken_values.PLACE),),
        (
            "in {a}, [how is the weather|what is the weather|is it raining|is it cold]",
            "{a}[,|:] [what's the weather|how's the weather|is it sunny|how warm is it]",
            "[i am|i will be|we are|i'm] [going|travelling|moving|off] to {a}, [how is the "
            "weather|what is the weather like|will it rain]",
            "[will it|is it going to|might it] [rain|snow|be sunny|be windy] in {a}[ today| "
            "tomorrow|]",
            "[do i need|should i take] [a coat|a hat|sunglasses|boots] in {a}",
            "[weather|the weather] [for|of|at] {a}",
            "{a} [forecast|temperature|weather forecast]",
            "how [cold|hot|warm|wet|windy] is it [over |]in {a}[ now| today|]",
            "[what is it like|how is it] outside in {a}",
            "is {a} [sunny|rainy|cold|warm] [today|now|at the moment]",
            "my [friend|mother] lives in {a}, how is the weather there",
        ),
    ),
    SpokenTool(
        ("get_time", "current_time", "clock", "local_time"),
        "Get the local time in a city.",
        (("city|place|location|zone", spoken_values.PLACE),),
        (
            "in {a}, what time is it[ now|]",
            "{a}[,|:] what time is it[ there|]",
            "[how late|what time] is it [over |]in {a}",
            "[i want to|i need to|i will] call [someone|a friend|my boss] in {a}, what time is "
            "it there",
            "[the |local |]time in {a}",
            "[tell me|do you know|say] [the time|how late it is|what the clock says] in {a}",
            "{a} time",
            "is it [morning|night|late|early] in {a}[ now|]",
            "when it is [noon|midnight|morning] here, what time is it in {a}",
        ),
    ),
    SpokenTool(
        ("set_timer", "start_timer", "timer", "countdown"),
        "Start a timer.",
        (("minutes|duration|mins", spoken_values.count(1, 90)),),
        (
            "{a} minutes[, timer| on the timer| please| countdown|]",
            "[i cook|i bake|i am cooking|i make] [rice|pasta|bread|tea|a cake], [set a timer for"
            "|tell me in|timer of] {a} minutes",
            "[tell|call|alert|wake|remind] me in {a} minutes",
            "[the timer|a timer|timer] [of|with|to|at|for] {a} [minutes|min]",
            "in {a} minutes [the timer should ring|ring|beep|i must stop]",
            "[start|set|begin|run] a [countdown|timer] of {a} minutes",
            "[give me|make it|let it run] {a} minutes",
        ),
    ),
    SpokenTool(
        ("get_order_status", "track_order", "find_parcel", "order_status"),
        "Look up an order.",
        (("order_id|order|id|number", values.identifier),),
        (
            "{a}[.|,|:| -] [where is this order|what happened to that order|is that on its"
            " way|when will it arrive|any update on it|has it shipped|track that one|what is"
            " its status]",
            "{a} is my [order|parcel|order number], [where is it|what is its status|is it on the "
            "way]",
            "[where is|what about|how is|any news of] [order|parcel|my order|my parcel] {a}",
            "my [order|parcel|package] {a} [is late|did not come|is missing|has not arrived][, "
            "where is it|]",
            "[is|was|has] [order|parcel|my order] {a} [shipped|delivered|been shipped|here|left]",
            "[the |my |]order number is {a}, [please check|look it up|what is its status]",
            "[check|track|find|look up] {a}",
            "i ordered something, the number is {a}. [Where is it|When does it come]",
            *ways_tools.ORDER,
        ),
    ),
    SpokenTool(
        ("web_search", "search", "find_online", "search_web"),
        "Search the web.",
        (("query|q|text|terms", spoken_values.either(lambda d: values.phrase(d, 1, 3))),),
        (
            "[find|look for|search|look] {a} [online|on the web|on the internet]",
            "{a}: [search|look that up|google it|search for it]",
            '"{a}" - [search|look it up|find it][ online| on the web|]',
            "[i want|i need] [to know about|information on|to read about|facts on] {a}[, search "
            "the web|, look it up|]",
            "what does the [internet|net] [say|know] about {a}",
            "[do a|start a|run a] [web |]search for {a}",
            "[google|look up|search for] {a}",
            "[what can you find|anything online] about {a}",
        ),
    ),
    SpokenTool(
        ("set_light", "switch_light", "lamp", "light"),
        "Switch a light on or off.",
        (("room|place|where", spoken_values.ROOM), ("on|lit|state", spoken_values.SWITCH)),
        (
            "{b}[ please|, please|] with [that lamp|the bulb|every lamp] in the {a}",
            "{b} [goes|should go] the [light|lamp] in the {a}",
            "{b}[,|:| -] the {a} [light|lamp]",
            "[turn|switch|put] [the light|the lamp|the lights] in the {a} {b}",
            "[turn|switch|put] {b} [the light|the lamp|the lights] in the {a}",
            "{b}[ please|]: [the light|the lamp] [in|of] the {a}",
            "the {a} [light|lamp] {b}[ please|]",
            "in the {a}, [the light|the lamp] [should|must|has to] be {b}",
            "light {b} in the {a}",
            "{a} [light|lamp|lights] {b}",
            "i want the [light|lamp] in the {a} {b}",
            "the {a} [needs|wants|should have] its light {b}",
            "[make|get] the light in the {a} go {b}",
            "i am [in|leaving|entering] the {a}, [light|lamp|switch the light] {b}",
            "[the light|it], {b}[ please|], [it is|that is] the [one in the |]{a}",
            "{b} with the [lamp|lights] in the {a}",
            *ways_tools.LIGHT,
        ),
    ),
    SpokenTool(
        ("create_reminder", "remind", "add_reminder", "alarm"),
        "Create a reminder.",
        (("text|what|task|message", spoken_values.task), ("time|when|at", values.time)),
        (
            "[remind me|tell me|call me] [at {b} to {a}|to {a} at {b}]",
            "at {b} [i must|i should|i need to|i want to|we have to] {a}[, remind me|. Remind me|]",
            "{b}[:|,] {a}[, remind me|]",
            "i [must|have to|need to|should] {a} at {b}, [please remind me|don't let me forget"
            "|remind me]",
            "[don't|never] let me forget to {a} at {b}",
            "[set|make|create|add] a reminder: {a}, {b}",
            "[set|make|create] a reminder for {b}: {a}",
            "{a} at {b}, [remind me|a reminder please|set a reminder]",
            "when it is {b}, [tell|remind] me to {a}",
            "i want to {a} at {b}[, make a note|, tell me then|]",
            "[it is important to|please make me|i forgot to] {a}, [remind me at|at] {b}",
            "[send me a note|ring|beep] at {b} to {a}",
        ),
    ),
    SpokenTool(
        ("send_email", "email", "send_mail", "write_mail"),
        "Send an email.",
        (
            ("to|recipient|address", values.email),
            ("subject|title|topic", spoken_values.topic),
            ("body|text|message|content", spoken_values.quoted),
        ),
        (
            '[send|mail|email] "{c}" to {a}, [subject|subject line|with subject|titled|the'
            ' topic is] "{b}"',
            '{a} [has to|should|ought to|needs to] [know|hear|read|learn] "{c}"[,|.] [subject'
            '|the topic is|under the subject|with subject line|as subject use] "{b}"',
            '[email|mail] {a}: "{c}" [with|and the] subject line "{b}"',
            '[write|send] {a} [a mail|an email] [reading|that reads|saying] "{c}"[,|.] [the'
            ' subject line is|subject line|with subject line] "{b}"',
            '[send|write|mail] "{c}" to {a} with the subject "{b}"',
            'to {a}: "{c}", [subject|the subject is|with subject] "{b}"',
            'subject "{b}", to {a}, [text|body|the text is|message] "{c}"',
            '[email|mail|write to|tell] {a} "{c}", [and make the subject|subject|the subject is'
            '|with subject] "{b}"',
            'with [the |]subject "{b}" [send|write|mail] "{c}" to {a}',
            'the subject is "{b}", the [text|message] is "{c}", [send it to|it goes to|mail it '
            "to] {a}",
            '[an email|a mail|mail] to {a} about "{b}" [saying|that says|with the text] "{c}"',
            'tell {a} by [email|mail] "{c}", subject "{b}"',
            '{a} [should get|gets|needs] an email: subject "{b}", text "{c}"',
            *ways_tools.EMAIL,
            *ways_tools.EMAIL_PARTS,
        ),
    ),
    SpokenTool(
        ("book_hotel", "reserve_room", "book_room", "hotel_booking"),
        "Book rooms in a hotel.",
        (
            ("hotel|name|house", spoken_values.either(spoken_values.two_words, values.name)),
            ("guests|people|persons", spoken_values.count(1, 9)),
            ("date|day|arrival", values.date),
        ),
        (
            "[a room|rooms|book a room|reserve a room] [at|in] {a} for {b} [guests|people], {c}",
            "we are {b}[ people| guests|] and [want to stay|would like to sleep|want a room] at "
            "{a} on {c}",
            "on {c}[,|] {b} [people|of us|guests] [at|in] {a}[, book it|]",
            "{a}, {c}, {b} [guests|people|persons]",
            "{b} [guests|people|persons], hotel {a}, [on |]{c}",
            "[for|on] {c} [book|reserve] {a} for {b}[ people|]",
            "hotel is {a}, {b} of us, [we come|arriving|date is] {c}",
            "for {b} [guests|people] [at|in] {a} on {c}, please [book|reserve]",
        ),
    ),
    SpokenTool(
        ("book_court", "reserve_court", "plan_match", "reserve_pitch"),
        "Reserve a court to play on.",
        (
            ("club|place|venue", spoken_values.either(spoken_values.two_words, values.name)),
            ("time|hour|start", values.time),
            ("players|people|count", spoken_values.count(2, 12)),
        ),
        (
            "[at|for] {b}, we are {c}, [club|venue|the club] is {a}. [Reserve it|Please book"
            "|Do book it]!",
            "{b}, {c} [players|of us], [club|venue]: {a}[, book it|, reserve|. Reserve that!|]",
            "[club|venue] {a}, {c} [players|people], at {b}[. Book it|, reserve it|]",
            "[court|a court] for {c} at {a}, {b}[ please|]",
            "[we are|there are] {c} [players|of us] and [want|would like] to play at {a} at {b}",
            "at {b}, {c} [players|of us], [club is|the place is|at] {a}",
            "{a} at {b} for {c}[ players| people|]",
            "{c} [players|people], {b}, {a}",
            "[book|reserve|get] {a} at {b}, we are {c}",
            "for {c} [players|people] at {b}[, |] [book|reserve] {a}",
        ),
    ),
    SpokenTool(
        ("save_memo", "write_memo", "keep_memo", "store_text"),
        "Keep a memo.",
        (
            ("title|heading|name|label", spoken_values.topic),
            ("text|memo|body|content", spoken_values.quoted),
        ),
        (
            '[store|save|note] this: "{b}". The [heading|title|name][ is|:] "{a}"',
            '[keep|save] [the following|that|this memo]: "{b}"[.|,] [Heading|Call it|Name it'
            '|Title it|Label] "{a}"',
            '[title|heading|name] "{a}", [text|content|memo] "{b}"',
            '"{b}"[,|.] [titled|title it|call that|the title is] "{a}"',
            '[save|write down|keep|store] "{b}" [under|as|with the heading|called] "{a}"',
            '[under|with the name|with heading] "{a}" [save|write|keep|store] "{b}"',
            '"{b}", [heading|name|call it|label it] "{a}"',
            'heading "{a}"[:|,] "{b}"',
            '[memo|a memo]: "{b}". [Heading|Name|Label] "{a}"',
            '[i want to keep|please save|store this:] "{b}" [and call it|with the heading] "{a}"',
            '{a}: "{b}", [save that|keep it|write it down]',
            *ways_tools.MEMO,
        ),
    ),
    SpokenTool(
        ("dye_cloth", "colour_item", "tint", "set_colour"),
        "Give a thing a colour.",
        (("item|object|what", spoken_values.THING), ("colour|color|shade", spoken_values.colour)),
        (
            "[dye|tint|colour] [my|the|this|a] {a} {b}",
            "[make|turn] [my|the|this] {a} {b}",
            "[i want|i'd like|i need] [my|the|a] {a} [to be |in |dyed ]{b}",
            "{b} [for|on] [the|my] {a}[, dye it|]",
            "[use|take] {b} [for|on|to dye|and tint] [the|my] {a}",
            "the {a} [should|must|shall] [be|become|get] {b}",
            "{b} is the colour [for|of] my {a}",
            "{a}: [dye|tint|make|colour] it {b}",
            "with {b}[,|] [dye|tint|colour] [my|the] {a}",
            "[take|get] [the|my] {a} and [make|dye|tint] it {b}",
            "my {a} [would look|looks] good in {b}, [dye|tint] it",
            *ways_tools.DYE,
        ),
    ),
    SpokenTool(
        ("reserve_desk", "book_locker", "assign_desk", "take_place"),
        "Reserve a numbered desk in a building.",
        (
            ("building|house|site", values.identifier),
            ("desk|number|place", spoken_values.count(1, 99)),
        ),
        (
            "[desk|place|number] {b} in [building |]{a}[, reserve it| please|]",
            "in [building |]{a} [i want|reserve|book|i'd like] [desk|place|number] {b}",
            "[reserve|book|assign|i need] {b} in {a}",
            "[i want to|i would like to|let me] [work|sit] at [desk |]{b} in [building |]{a}",
            "[building|house] {a}, [desk|number|place] {b}",
            "[can i have|is there|give me] [desk|place] {b} [at|of|in] {a}",
        ),
    ),
    SpokenTool(
        ("file_complaint", "report_fault", "log_issue", "note_complaint"),
        "File a complaint of a client.",
        (
            ("client|user|person|account", spoken_values.either(values.identifier, values.name)),
            ("complaint|issue|fault|text", lambda d: values.phrase(d, 2, 3)),
        ),
        (
            '[client|user] {a} [says|complains|reports] "{b}"[, file it|]',
            "{a} [says|complains that|reports|told us] {b}: [file a complaint|write it up|log it]",
            '[complaint|issue] is "{b}", [client|user|person] is {a}',
            "[file|log|note|report] {b} for [client |user |]{a}",
            '[file|log|note] a complaint [of|by|for] {a}: "{b}"',
            "for [client |user |]{a}[, the complaint is| file] {b}",
            '"{b}" [says|complains|writes] {a}, [log|file|note] that',
        ),
    ),
    SpokenTool(
        ("play_film", "show_movie", "start_film", "stream_film"),
        "Play a film.",
        (
            ("film|title|movie", spoken_values.two_words),
            ("director|maker|by", spoken_values.person),
        ),
        (
            '[play|show|start|put on] "{a}" [by|of|from] {b}',
            'by {b}[,|] [play|show|start] "{a}"',
            '[i want|i would like|we want] to [see|watch] "{a}" by {b}',
            'something [by|from] {b}, [the film|namely|maybe] "{a}"',
            '{b}, "{a}"[, play it|]',
            '[the film|film|movie] "{a}"[, director|, made by|, by] {b}',
            "[let's|let us] watch {b}'s \"{a}\"",
            *ways_tools.FILM,
            *ways_tools.FILM_BY,
        ),
    ),
    SpokenTool(
        ("pay_bill", "send_money", "transfer", "make_payment"),
        "Send money to somebody.",
        (
            ("receiver|to|person", values.full_name),
            ("amount|sum|euros", spoken_values.count(1, 900)),
        ),
        (
            "[send|pay|give|transfer] {a} {b} [euros|dollars|]",
            "[send|pay|transfer] {b} [euros |]to {a}",
            "{a} [gets|should get|needs|wants] {b} [euros|]",
            "i owe {a} {b} [euros|], [pay it|send it|transfer it]",
            "{b} [euros |]for {a}[, please pay|]",
            "to {a}[,|] {b} [euros|]",
        ),
    ),
    SpokenTool(
        ("open_book", "lend_book", "order_book", "read_aloud"),
        "Get a book.",
        (("book|title|name", spoken_values.two_words), ("author|writer|by", spoken_values.person)),
        ways_tools.BOOK,
    ),
    SpokenTool(
        ("post_message", "announce", "post", "write_to_channel"),
        "Post a text in a channel.",
        (
            ("channel|room|place", spoken_values.any_word),
            ("text|message|content", spoken_values.quoted),
        ),
        ways_tools.CHANNEL,
    ),
    SpokenTool(
        ("rename_file", "rename", "move_file", "change_name"),
        "Give a thing another name.",
        (("old|from|name", spoken_values.any_word), ("new|to|new_name", spoken_values.any_word)),
        ways_tools.RENAME,
    ),
    SpokenTool(
        ("deliver", "ship_goods", "send_goods", "order_delivery"),
        "Deliver goods to a city.",
        (
            ("item|goods|what", spoken_values.THING),
            ("city|place|to", spoken_values.PLACE),
            ("count|number", spoken_values.count(2, 99)),
        ),
        ways_tools.DELIVER,
    ),
    *longer_requests.TOOLS,
)


def _shown(dice: Dice, value: object) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, int):
        return str(value)
    return str(value)


def _schema(value: object) -> Json:
    kind = (
        "boolean" if isinstance(value, bool) else "integer" if isinstance(value, int) else "string"
    )
    return {"type": kind}


def spoken(dice: Dice, tool: SpokenTool) -> tuple[Json, str, Call]:
    """A tool's schema, a request for it and the call that the request means."""
    keys, makers = tool.draw(dice)
    made = spoken_values.draw_values(dice, makers)
    for at, maker in enumerate(makers):
        text = made[at]
        if isinstance(text, str) and maker not in spoken_values.KEEP_PUNCTUATION:
            made[at] = text.strip(' ".,') or "x"
    slots = {letter: _shown(dice, value) for letter, value in zip("abcd", made, strict=False)}
    end, bare = dice.pick("", ".", "?"), dice.chance(0.75)
    ask = phrasing.say(dice, dice.choice(tool.asking), end, bare=bare, **slots)
    if ask.startswith(("on ", "off ", "on,", "off,", "on:", "off:")) and dice.chance(0.6):
        ask = ask[0].upper() + ask[1:]
    properties = {key: _schema(value) for key, value in zip(keys, made, strict=True)}
    name = tool.names[0] if dice.chance(0.5) else dice.choice(tool.names)
    function: Json = {"name": name, "description": tool.description}
    if dice.chance(0.1):
        del function["description"]
    function["parameters"] = {"type": "object", "properties": properties, "required": keys}
    call = Call(name, dict(zip(keys, made, strict=True)))
    return {"type": "function", "function": function}, ask, call


def document(dice: Dice, thinking: bool) -> Document:
    """One to three requests, one after the other, over the tools they need."""
    chosen = dice.sample(TOOLS, dice.choices((1, 2, 3), (3, 4, 2))[0])
    box: dict[str, Json] = {}
    turns: list[Turn] = []
    for tool in chosen:
        schema, ask, call = spoken(dice, tool)
        if call.name in box:
            continue
        box[call.name] = schema
        keys = ", ".join(call.arguments)
        turns += [
            Turn("user", ask),
            Turn("assistant", "", f"I call {call.name} with {keys}.", (call,)),
        ]
    tools = list(box.values())
    dice.shuffle(tools)
    return Document("spoken_tool", turns, tools, thinking)
