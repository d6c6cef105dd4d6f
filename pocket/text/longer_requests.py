"""Requests in free speech for tools that mostly take three or four values, such as amounts with
units. The values come in any order.
"""

from typing import Final

from pocket.text import spoken_values, values
from pocket.text.spoken_values import Measure, SpokenTool

_I: Final = "[I want|I need|I would like|I'd like|we want|We need|please get me|my boss wants]"
_WEIGHT: Final = Measure(("g", "kg"))
_GOODS: Final = Measure(("g", "kg", "l", "ml", "pieces"))
_DISTANCE: Final = Measure(("km", "m"))
_DURATION: Final = Measure(("hours", "minutes"))
_TRAINING: Final = Measure(("km", "m", "hours", "minutes"))
_SIZE: Final = Measure(("cm", "m", "l"))
TOOLS: Final = (
    SpokenTool(
        ("book_flight", "find_flight", "reserve_flight", "book_train"),
        "Book a journey.",
        (
            ("origin|from|start", spoken_values.PLACE),
            ("destination|to|goal", spoken_values.PLACE),
            ("date|day|when", values.date),
            ("seats|passengers|people", spoken_values.count(1, 9)),
        ),
        (
            "[from|leaving] {a} to {b} on {c}, {d} [seats|of us|people|passengers]",
            "{d} [seats|people|passengers|tickets] from {a} to {b}[,| on] {c}[, book it|]",
            "on {c}[,| we fly| I travel] from {a} to {b}[,| with] {d} [people|of us|seats]",
            f"to {{b}} {_I} {{d}} [seats|tickets], from {{a}}[,| on] {{c}}",
            "{c}: {a} to {b}, {d} [seats|people|passengers]",
            "we are {d}[ people|,] and [want to go|must get|travel] from {a} to {b} on {c}",
            "[the start is|we start in] {a}, [the goal is|we go to] {b}, [day|date] {c}, {d} [seats"
            "|people]",
            "[bring|take|fly] {d} [of us|people|passengers] to {b} from {a} on {c}",
        ),
    ),
    SpokenTool(
        ("create_event", "add_event", "plan_meeting", "schedule"),
        "Put a meeting into the calendar.",
        (
            ("title|name|what", spoken_values.topic),
            ("date|day", values.date),
            ("time|hour|start", values.time),
            ("place|room|where", spoken_values.either(spoken_values.two_words, values.name)),
        ),
        (
            '["{a}"|event "{a}"|meeting "{a}"] on {b} at {c}[,| in| at] {d}',
            '[on|for] {b} at {c} [plan|add|schedule|put] "{a}"[,| in| at] {d}',
            'at {c} on {b} [there is|we have|I have] "{a}" [in|at] {d}[, add it|. Note it|]',
            '[in|at] {d}[,|:] "{a}"[,|;] {b}[,|;| at] {c}',
            f'{_I} "{{a}}" in my calendar[:|,] {{b}}, {{c}}, {{d}}',
            '{b}, {c}, {d}: "{a}"',
            "[the place is|we meet at] {d}, [the day is|on] {b}, [the hour is|at] {c}, [title"
            '|call it] "{a}"',
        ),
    ),
    SpokenTool(
        ("order_food", "order_meal", "get_food", "food_delivery"),
        "Order food to an address.",
        (
            ("dish|food|meal|item", spoken_values.THING),
            ("count|portions|number", spoken_values.count(1, 20)),
            ("name|customer|for", spoken_values.person),
        ),
        (
            "{b} [portions of |]{a} for {c}",
            "for {c} {b} [portions of |]{a}[, please| please|]",
            "{c} [wants|ordered|would like|gets|asked for] {b} [portions of |]{a}",
            "{a}, {b} [times|portions|of it], [for|name|customer] {c}",
            f"For {{c}} {_I} {{b}} [portions of |]{{a}}",
            "[the name is|my name is|name:] {c}[,|.] [send|bring|I take] {b} {a}",
            "[bring|send|get] {c} {b} [portions of |]{a}",
        ),
    ),
    SpokenTool(
        ("add_to_list", "buy", "shopping_list", "put_on_list"),
        "Put a thing on a shopping list.",
        (
            ("item|thing|product|what", spoken_values.THING),
            ("amount|quantity|how_much", _GOODS),
            ("list|shop|store", spoken_values.either(spoken_values.two_words, values.name)),
        ),
        (
            "{b} of {a} [from|at|on the list for] {c}",
            "[add|put|write] {b} [of |]{a} [to|on|onto] [the list |the |]{c}",
            "[from|at] {c}[,|:] {b} [of |]{a}",
            "{a}, {b}, {c}",
            "{a}: {b}[,|.] [shop|list|store|get it at] {c}",
            f"From {{c}} {_I} {{b}} of {{a}}",
            "we [are out of|need more|ran out of] {a}, [get|buy|add] {b} [at|from] {c}",
            "[on|onto] [the list |]{c} [goes|put|add|write] {a}, {b}",
        ),
    ),
    SpokenTool(
        ("log_training", "log_run", "add_workout", "note_activity"),
        "Keep what somebody has done.",
        (
            ("activity|sport|what", spoken_values.any_word),
            (
                "amount|distance|duration",
                {"amount": _TRAINING, "distance": _DISTANCE, "duration": _DURATION},
            ),
            ("date|day|when", values.date),
        ),
        (
            "[I did|log|note|I have done] {b} of {a} on {c}",
            "on {c}[,|:| I did] {b} [of |]{a}",
            "{a}[,|:] {b}[,|;] [on |]{c}",
            "{c}[,|:] {a}[,|;] {b}",
            "[log|note|add|keep] {a} [for|with] {b}[,| on] {c}",
            "[it was|I managed|we made] {b} of {a}, [the day was|on|date] {c}[, log it|]",
        ),
    ),
    SpokenTool(
        ("send_parcel", "ship_parcel", "post_parcel", "new_shipment"),
        "Send a parcel.",
        (
            ("receiver|to|name", spoken_values.person),
            ("city|place|town", spoken_values.PLACE),
            ("weight|size|amount", {"weight": _WEIGHT, "size": _SIZE, "amount": _GOODS}),
            ("content|contents|what", spoken_values.THING),
        ),
        (
            "[send|ship|post] {c} of {d} to {a} in {b}",
            "[to|for] {a} in {b}[,|:] {c} [of |]{d}",
            "{a}[,|;] {b}[,|:|;] {c} [of |]{d}",
            "{c} of {d} [must go|should go|goes] to {a}[,| in] {b}",
            "[in|to] {b}[,|] {a} [waits for|wants|needs|ordered] {c} of {d}",
            f"To {{a}} {_I} to send {{c}} of {{d}}, [the city is|city|in] {{b}}",
            "[a parcel|parcel][,|:] {d}, {c}, [for|to] {a}, {b}",
        ),
    ),
    SpokenTool(
        ("leave_message", "text_person", "send_text", "pass_on"),
        "Pass a message to a person.",
        (
            ("person|to|receiver|name", spoken_values.person),
            ("message|text|words", spoken_values.quoted),
        ),
        (
            '[tell|text|message|write] {a}[:|,|] "{b}"',
            '"{b}"[,|:| -|.] [tell|text|send that to|pass that on to|for] {a}',
            '[to|for] {a}[,|:|;] "{b}"[ please|]',
            f'To {{a}} {_I} to say "{{b}}"',
            '{a} [must|should|has to|needs to|ought to] [hear|read|be told|know|get] "{b}"',
            '[let|make] {a} [know|hear|read][:|,|] "{b}"',
            '[pass on|say|deliver|whisper] "{b}" to {a}',
            '[the message is|message|words] "{b}"[,|;|.] [it is for|to|for|person] {a}',
        ),
    ),
)
