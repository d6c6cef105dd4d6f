"""Requests for tools: any value, any order of the sentence, exact arguments."""

from typing import Any, Final

from pocket.judges import calls
from pocket.text.document import Json
from pocket.visitors.visit import Visit


def _tool(name: str, description: str, **parameters: str) -> Json:
    properties = {key: {"type": kind} for key, kind in parameters.items()}
    schema = {"type": "object", "properties": properties, "required": list(properties)}
    return {
        "type": "function",
        "function": {"name": name, "description": description, "parameters": schema},
    }


_WEATHER: Final = _tool("get_weather", "Get the current weather in a city.", city="string")
_TIME: Final = _tool("get_time", "Get the current time in a city.", city="string")
_MAIL: Final = _tool("send_email", "Send an email.", to="string", subject="string", body="string")
_TIMER: Final = _tool("set_timer", "Start a timer.", minutes="integer")
_REMIND: Final = _tool("create_reminder", "Create a reminder.", text="string", time="string")
_LIGHT: Final = _tool("set_light", "Switch a light.", room="string", on="boolean")
_SEARCH: Final = _tool("web_search", "Search the web.", query="string")
_TABLE: Final = _tool("book_table", "Book a table in a restaurant.", restaurant="string",
                      time="string", guests="integer")  # fmt: skip
_ORDER: Final = _tool("get_order_status", "Look up an order.", order_id="string")
_NOTE: Final = _tool("add_note", "Keep a note.", title="string", text="string")
_PAINT: Final = _tool("paint", "Paint a thing in a colour.", thing="string", colour="string")
_SEAT: Final = _tool("reserve_seat", "Reserve a seat on a train.", train="string", seat="integer")
_TICKET: Final = _tool("open_ticket", "Open a support ticket.", customer="string", problem="string")
_PLAY: Final = _tool("play_song", "Play a song.", song="string", artist="string")


def _ask(tool: Json, said: str, **arguments: Any) -> Visit:
    return Visit((said,), calls(tool["function"]["name"], **arguments), (tool,))


ONE_VALUE: Final[tuple[Visit, ...]] = (
    _ask(_WEATHER, "In Ouagadougou, what's the weather like?", city="Ouagadougou"),
    _ask(_WEATHER, "Do I need an umbrella in Tromsø?", city="Tromsø"),
    _ask(_WEATHER, "I'm flying to Montevideo, how is the weather there?", city="Montevideo"),
    _ask(_WEATHER, "hows the weather over in Lund", city="Lund"),
    _ask(_WEATHER, "Ulaanbaatar weather please", city="Ulaanbaatar"),
    _ask(_TIME, "If it's noon here, what time would it be in Kathmandu?", city="Kathmandu"),
    _ask(_TIME, "Samarkand: what's the local time?", city="Samarkand"),
    _ask(_TIMER, "I want to boil eggs, give me 7 minutes on the timer", minutes=7),
    _ask(_TIMER, "25 minutes, timer, go!", minutes=25),
    _ask(_TIMER, "wake me from my nap in 40 minutes with a timer", minutes=40),
    _ask(_ORDER, "BX-20417. Where did that order end up?", order_id="BX-20417"),
    _ask(_ORDER, "has order qq81z been sent yet?", order_id="qq81z"),
    _ask(_ORDER, "My parcel never came, the order number is KR-77.", order_id="KR-77"),
    _ask(_SEARCH, "what does the web say about purple carrots", query="purple carrots"),
    _ask(_SEARCH, "I'd like to know more about glass frogs, search for it", query="glass frogs"),
    _ask(_SEARCH, '"sourdough starter" - can you look that up online?', query="sourdough starter"),
)  # fmt: skip

SEVERAL_VALUES: Final[tuple[Visit, ...]] = (
    _ask(_LIGHT, "It's too dark in the pantry, put the light on.", room="pantry", on=True),
    _ask(_LIGHT, "nobody is in the attic, light off please", room="attic", on=False),
    _ask(_LIGHT, "Off with the light in the veranda, please", room="veranda", on=False),
    _ask(_LIGHT, "light up the wardrobe", room="wardrobe", on=True),
    _ask(_REMIND, "At 18:45 I have to feed the parrot, remind me.", text="feed the parrot",
         time="18:45"),
    _ask(_REMIND, "don't let me forget to water the cactus, 09:10", text="water the cactus",
         time="09:10"),
    _ask(_REMIND, "Please ping me at 07:30 to pack the suitcase", text="pack the suitcase",
         time="07:30"),
    _ask(_MAIL, 'To olaf@fjord.no, subject "boats", write "The boats are ready."',
         to="olaf@fjord.no", subject="boats", body="The boats are ready."),
    _ask(_MAIL, 'Write "see you soon" to mimi@lagoon.com, the subject is "hello".',
         to="mimi@lagoon.com", subject="hello", body="see you soon"),
    _ask(_MAIL, 'zeno@stoa.gr must know "paid today", subject line "rent"',
         to="zeno@stoa.gr", subject="rent", body="paid today"),
    _ask(_TABLE, "Table for 4 at Osteria Luna, 19:30 please.", restaurant="Osteria Luna",
         time="19:30", guests=4),
    _ask(_TABLE, "We are 6 people and would like to eat at Blue Fig at 20:15.",
         restaurant="Blue Fig", time="20:15", guests=6),
    _ask(_TABLE, "At 12:00, 2 of us, restaurant is Chez Momo. Book it!", restaurant="Chez Momo",
         time="12:00", guests=2),
    _ask(_NOTE, 'Keep this: "buy 3 lamps". Title "shopping".', title="shopping",
         text="buy 3 lamps"),
    _ask(_NOTE, 'Note down "call Ruth" under the title "monday"', title="monday",
         text="call Ruth"),
    _ask(_PAINT, "I'd love the gate to be turquoise, paint it.", thing="gate", colour="turquoise"),
    _ask(_PAINT, "Use crimson and paint my canoe with it", thing="canoe", colour="crimson"),
    _ask(_PAINT, "paint the shed mauve", thing="shed", colour="mauve"),
    _ask(_SEAT, "Seat 42 on train ICE-604, please reserve.", train="ICE-604", seat=42),
    _ask(_SEAT, "I want to sit in 17 on the train RX9, reserve that", train="RX9", seat=17),
    _ask(_TICKET, "Mrs-Okafor says her printer smokes: open a ticket for customer Mrs-Okafor with "
         "the problem printer smokes", customer="Mrs-Okafor", problem="printer smokes"),
    _ask(_TICKET, 'problem is "no sound", customer is delta-9, make it a ticket',
         customer="delta-9", problem="no sound"),
    _ask(_PLAY, 'By Tuulikki Vanhanen I want to hear "Snowmelt".', song="Snowmelt",
         artist="Tuulikki Vanhanen"),
    _ask(_PLAY, 'put on some Baba Dembele, the song "Dust Road"', song="Dust Road",
         artist="Baba Dembele"),
)  # fmt: skip
