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

_TAXI: Final = _tool("call_taxi", "Call a taxi.", pickup="string", destination="string",
                     time="string", passengers="integer")  # fmt: skip
_HEAT: Final = _tool("set_temperature", "Heat a room.", room="string", degrees="integer")
_SHOP: Final = _tool("add_to_shopping_list", "Put an item on the shopping list.", item="string",
                     quantity="integer")  # fmt: skip
_CINEMA: Final = _tool("buy_cinema_tickets", "Buy tickets for a film.", film="string",
                       time="string", tickets="integer")  # fmt: skip
_HOTEL: Final = _tool("book_hotel", "Book a room in a hotel.", hotel="string", guest="string",
                      nights="integer", breakfast="boolean")  # fmt: skip
_MESSAGE: Final = _tool("send_message", "Send a message.", recipient="string", text="string")
_CONTACT: Final = _tool("add_contact", "Add a contact.", person="string", phone="string",
                        email="string")  # fmt: skip

SEVERAL_VALUES: Final[tuple[Visit, ...]] = (
    _ask(_LIGHT, "could you turn the lamp in the cellar on? i can hardly see", room="cellar",
         on=True),
    _ask(_LIGHT, "Goodnight! The nursery light can be switched off now.", room="nursery",
         on=False),
    _ask(_REMIND, "16:20 - pick up the kids - reminder please", text="pick up the kids",
         time="16:20"),
    _ask(_REMIND, "I must not forget to take out the bins. Nudge me at 21:05?",
         text="take out the bins", time="21:05"),
    _ask(_MAIL, 'Could you mail petra@quarry.org? Subject is "keys" and the text is "I left them '
         'at the desk."', to="petra@quarry.org", subject="keys",
         body="I left them at the desk."),
    _ask(_MAIL, 'subject: "lunch", body: "Shall we meet at noon?", to: finn@harbour.io',
         to="finn@harbour.io", subject="lunch", body="Shall we meet at noon?"),
    _ask(_MAIL, 'pls send "Running late, sorry!" to ana@studio42.pt with "apology" as subject',
         to="ana@studio42.pt", subject="apology", body="Running late, sorry!"),
    _ask(_TABLE, "Hi, could you get us into Trattoria Nino at 18:30? There are 5 of us.",
         restaurant="Trattoria Nino", time="18:30", guests=5),
    _ask(_TABLE, "dinner for 3, Golden Wok, 21:00", restaurant="Golden Wok", time="21:00",
         guests=3),
    _ask(_NOTE, 'make a note called "garage", it should say "code is 7788"', title="garage",
         text="code is 7788"),
    _ask(_NOTE, '"oat milk is cheaper at the corner shop" - save that with the title "groceries"',
         title="groceries", text="oat milk is cheaper at the corner shop"),
    _ask(_PAINT, "the fence should be emerald from now on, can you paint it?", thing="fence",
         colour="emerald"),
    _ask(_SEAT, "On train TGV-88 i'd like seat 61 pls", train="TGV-88", seat=61),
    _ask(_TICKET, 'New ticket please. Customer: Bluebird-Cafe. Problem: "card reader is dead"',
         customer="Bluebird-Cafe", problem="card reader is dead"),
    _ask(_PLAY, 'do you have "Paper Lanterns" by Mira Solberg? play it please',
         song="Paper Lanterns", artist="Mira Solberg"),
    _ask(_PLAY, 'im in the mood for "Cobalt Hour", the artist is Otto Brandvold',
         song="Cobalt Hour", artist="Otto Brandvold"),
    _ask(_TAXI, "I need a taxi from Mill Lane to Central Station at 06:40, we are 3 people.",
         pickup="Mill Lane", destination="Central Station", time="06:40", passengers=3),
    _ask(_TAXI, "cab for 2 at 22:15, destination Pier 9, pickup Hotel Aurora",
         pickup="Hotel Aurora", destination="Pier 9", time="22:15", passengers=2),
    _ask(_HEAT, "it's freezing in the bathroom, make it 23 degrees", room="bathroom", degrees=23),
    _ask(_HEAT, "18 degrees is enough for the hallway, please set that", room="hallway",
         degrees=18),
    _ask(_SHOP, "we're out of lemons, put 6 on the shopping list", item="lemons", quantity=6),
    _ask(_CINEMA, '4 tickets for "The Quiet Lighthouse" at 20:45, please!',
         film="The Quiet Lighthouse", time="20:45", tickets=4),
    _ask(_HOTEL, "Book Hotel Miramar for Ines Adeyemi, 3 nights, with breakfast.",
         hotel="Hotel Miramar", guest="Ines Adeyemi", nights=3, breakfast=True),
    _ask(_HOTEL, "Guest: Paul Lindqvist, hotel: Pension Edelweiss, 2 nights. No breakfast, thanks.",
         hotel="Pension Edelweiss", guest="Paul Lindqvist", nights=2, breakfast=False),
    _ask(_MESSAGE, 'let Yara know "the door is open", send her a message', recipient="Yara",
         text="the door is open"),
    _ask(_CONTACT, "New contact! Bruno Castell, phone 555-0148, email bruno@castell.net",
         person="Bruno Castell", phone="555-0148", email="bruno@castell.net"),
)  # fmt: skip
