"""Twenty tools that training never saw, each with a question that it fits and the right call."""

from __future__ import annotations

from typing import Any, NamedTuple


class Unseen(NamedTuple):
    """A tool, a question for it, the right input, what it gives. No parameters (None) means one text."""

    name: str
    description: str
    parameters: dict[str, Any] | None
    question: str
    input: Any
    result: str


UNSEEN = [
    Unseen(
        "DimLights",
        "Dims the lights in a room.",
        {"room": str, "percent": int},
        "Dim the lights in the hallway to 35 percent, please.",
        {"room": "hallway", "percent": 35},
        "done, hallway at 35 percent",
    ),
    Unseen(
        "phrase_book",
        "Translates a phrase for travellers.",
        {"phrase": str, "language": str},
        "How do I say where is the pharmacy in Basque?",
        {"phrase": "where is the pharmacy", "language": "Basque"},
        "non dago farmazia",
    ),
    Unseen(
        "MolarMass",
        "Works out the molar mass of a compound. Input: its chemical formula.",
        None,
        "What's the molar mass of C6H12O6?",
        "C6H12O6",
        "180.16 g/mol",
    ),
    Unseen(
        "fridge_list",
        "Lists what is in the fridge.",
        {},
        "What have we still got in the fridge?",
        "",
        "eggs, half a cabbage and butter",
    ),
    Unseen(
        "notebook_search",
        "Looks through the notes that the user has written; the input is what to look for.",
        None,
        "Is there anything in my notes about sourdough starter?",
        "sourdough starter",
        "feed it on Sundays, equal parts flour and water",
    ),
    Unseen(
        "DrawCards",
        "Draws cards from a shuffled pack.",
        {"cards": int},
        "Deal me 5 cards.",
        {"cards": 5},
        "two queens, a seven, a four and the ace of clubs",
    ),
    Unseen(
        "order_supplies",
        "Orders office supplies from the store room.",
        {"item": str, "boxes": int},
        "We need 4 boxes of staples, order them for us.",
        {"item": "staples", "boxes": 4},
        "ordered, they arrive on Tuesday",
    ),
    Unseen(
        "HighTide",
        "Tells when the next high tide is at a harbour.",
        None,
        "When is high tide at Whitby?",
        "Whitby",
        "at 17:42, 5.1 m",
    ),
    Unseen(
        "hire_bikes",
        "Hires bicycles at a station in town.",
        {"station": str, "bikes": int, "hours": int},
        "Hire 3 bikes at Castle Square for 5 hours.",
        {"station": "Castle Square", "bikes": 3, "hours": 5},
        "45 euros, the lock code is 7719",
    ),
    Unseen(
        "WordScore",
        "Says how many points a word is worth with letter tiles. Input: the word.",
        None,
        "How many points do I get for QUARTZ?",
        "QUARTZ",
        "24 points",
    ),
    Unseen(
        "expense_claim",
        "Files a claim for money that an employee has spent.",
        {"purpose": str, "euros": float, "date": str},
        "I paid 48.75 euros for a taxi on 12 March, file a claim for it.",
        {"purpose": "taxi", "euros": 48.75, "date": "12 March"},
        "filed, paid out with the next salary",
    ),
    Unseen(
        "SolarWind",
        "Gives the speed of the solar wind as measured a minute ago.",
        {},
        "How fast is the solar wind blowing now?",
        "",
        "412 km/s",
    ),
    Unseen(
        "plant_care",
        "How often a house plant wants water; input is the name of the plant.",
        None,
        "How often should I water my monstera?",
        "monstera",
        "once a week, less in winter",
    ),
    Unseen(
        "PlugType",
        "Says which kind of plug fits the sockets of a country.",
        {"country": str},
        "I'm off to Malta, which plug do I need?",
        {"country": "Malta"},
        "type G, with three flat pins",
    ),
    Unseen(
        "slab_order",
        "Says how much cement to order for a floor slab. Metres, and centimetres for the thickness.",
        {"long": float, "wide": float, "thick": int},
        "My slab is 4.5 metres long, 3.2 metres wide and 12 centimetres thick. What must I order?",
        {"long": 4.5, "wide": 3.2, "thick": 12},
        "34 bags of 25 kg",
    ),
    Unseen(
        "extension_of",
        "Finds a colleague's telephone extension.",
        None,
        "What's the extension of Marta Oduya?",
        "Marta Oduya",
        "extension 2046",
    ),
    Unseen(
        "QuizCard",
        "Draws a quiz question; level is easy, medium or hard.",
        {"topic": str, "level": str},
        "Quiz me! A hard question about volcanoes.",
        {"topic": "volcanoes", "level": "hard"},
        "Which volcano buried Saint-Pierre in 1902?",
    ),
    Unseen(
        "start_washing",
        "Starts the washing machine. Needs the programme and the turns of the spin.",
        {"programme": str, "spin": int},
        "Start the washing machine with the programme wool and a spin of 800.",
        {"programme": "wool", "spin": 800},
        "finished at 11:20",
    ),
    Unseen(
        "TipGuide",
        "Explains how much to tip in a country.",
        None,
        "How much do you tip a waiter in Georgia?",
        "Georgia",
        "about 10 percent, unless the bill includes it",
    ),
    Unseen(
        "shredder_state",
        "Tells whether the office shredder is free, busy or jammed.",
        {},
        "Can I use the shredder or is somebody at it?",
        "",
        "jammed since this morning",
    ),
]
