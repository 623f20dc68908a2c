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
        "ThermostatSet",
        "Sets the heating of a room to so many degrees.",
        {"room": str, "degrees": float},
        "Set the heating of the study to 19.5 degrees.",
        {"room": "study", "degrees": 19.5},
        "warm in 25 minutes",
    ),
    Unseen(
        "gate_finder",
        "Finds the gate that a flight leaves from; the input is the flight number.",
        None,
        "Which gate does flight LX 318 leave from?",
        "LX 318",
        "gate B43",
    ),
    Unseen(
        "DiceRoll",
        "Rolls dice with a number of sides.",
        {"dice": int, "sides": int},
        "Roll 3 dice with 12 sides.",
        {"dice": 3, "sides": 12},
        "4, 11 and 7",
    ),
    Unseen(
        "vacuum_status",
        "Tells what the robot vacuum is doing.",
        {},
        "What's the robot vacuum up to?",
        "",
        "stuck under the sofa",
    ),
    Unseen(
        "my_notes",
        "Searches the user's own notes for a word or a phrase.",
        None,
        "What do my notes say about boiler warranty?",
        "boiler warranty",
        "runs out on 3 May, receipt in the blue folder",
    ),
    Unseen(
        "SampleLeft",
        "Works out how many grams of a radioactive sample are left after some days.",
        {"isotope": str, "grams": float, "days": int},
        "How many grams of 12.5 grams of iodine-131 are left after 16 days?",
        {"isotope": "iodine-131", "grams": 12.5, "days": 16},
        "3.1 g",
    ),
    Unseen(
        "book_desk",
        "Books a desk in the office for a day.",
        {"desk": str, "day": str},
        "Could you book desk 4C for Thursday?",
        {"desk": "4C", "day": "Thursday"},
        "booked, by the window",
    ),
    Unseen(
        "CrosswordFit",
        "Finds words that fit a crossword pattern with question marks for the open letters.",
        None,
        "Find words that fit the crossword pattern ?A?GO.",
        "?A?GO",
        "MANGO or TANGO",
    ),
    Unseen(
        "visa_rules",
        "Says whether a traveller needs a visa.",
        {"passport": str, "destination": str},
        "Do I need a visa with a Dutch passport if the destination is Laos?",
        {"passport": "Dutch", "destination": "Laos"},
        "yes, on arrival, 30 days",
    ),
    Unseen(
        "ink_level",
        "Tells how much ink the printer has left.",
        {},
        "How much ink has the printer got left?",
        "",
        "cyan at 8 percent",
    ),
    Unseen(
        "OpeningName",
        "Names the chess opening that begins with these moves.",
        None,
        "What's the chess opening called that begins with e4 c6?",
        "e4 c6",
        "Caro-Kann Defence",
    ),
    Unseen(
        "cabin_bag",
        "Gives the largest cabin bag that an airline allows. Input: the airline.",
        None,
        "How large a cabin bag does Finnair allow?",
        "Finnair",
        "55 x 40 x 23 cm",
    ),
    Unseen(
        "MohsScale",
        "Tells how hard a mineral is.",
        {"mineral": str},
        "How hard is fluorite?",
        {"mineral": "fluorite"},
        "4 on the Mohs scale",
    ),
    Unseen(
        "log_hours",
        "Writes down working hours for a project.",
        {"project": str, "hours": float},
        "Put down 6.5 hours for the project Harbour.",
        {"project": "Harbour", "hours": 6.5},
        "31 hours this week",
    ),
    Unseen(
        "BinDay",
        "Tells which bin goes out next.",
        {},
        "Which bin do I have to put out next?",
        "",
        "the paper bin, on Friday",
    ),
    Unseen(
        "stain_help",
        "Explains how to get a stain out of clothes. Input: what made the stain.",
        None,
        "How do I get a red wine stain out of my shirt?",
        "red wine",
        "salt at once, then cold water",
    ),
    Unseen(
        "FerryPrice",
        "What a ferry crossing costs.",
        {"route": str, "adults": int, "children": int},
        "What does the ferry crossing Oban to Mull cost for 2 adults and 3 children?",
        {"route": "Oban to Mull", "adults": 2, "children": 3},
        "24.60 pounds",
    ),
    Unseen(
        "keep_score",
        "Adds points to the score of a player on game night.",
        {"player": str, "points": int},
        "Give Priya 14 points.",
        {"player": "Priya", "points": 14},
        "Priya has 52 points and leads",
    ),
    Unseen(
        "StarRise",
        "Tells when a constellation rises tonight.",
        None,
        "When does Orion rise tonight?",
        "Orion",
        "at 20:54",
    ),
    Unseen(
        "slope_report",
        "Says how a ski run is today; the input is the run.",
        None,
        "What state is the Eagle Ridge run in today?",
        "Eagle Ridge",
        "open, icy in the morning",
    ),
]
