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
        "oven_preheat",
        "Preheats the oven in one of its modes.",
        {"mode": str, "degrees": int},
        "Preheat the oven to 190 degrees in fan mode.",
        {"mode": "fan", "degrees": 190},
        "ready in 9 minutes",
    ),
    Unseen(
        "BusTimes",
        "Tells when the next bus leaves from a stop.",
        None,
        "When does the next bus leave from Mill Lane?",
        "Mill Lane",
        "at 16:08, line 22",
    ),
    Unseen(
        "yeast_amount",
        "Says how much yeast a dough needs.",
        {"flour": int, "hours": int},
        "How much yeast do I need for 800 grams of flour and 12 hours of rising?",
        {"flour": 800, "hours": 12},
        "2 grams",
    ),
    Unseen(
        "HumidityNow",
        "Reads the humidity in the flat.",
        {},
        "How humid is it in the flat?",
        "",
        "63 percent",
    ),
    Unseen(
        "water_boils_at",
        "Gives the temperature at which water boils at an altitude in metres.",
        {"altitude": int},
        "At what temperature does water boil at an altitude of 3200 metres?",
        {"altitude": 3200},
        "89 °C",
    ),
    Unseen(
        "ResistorBands",
        "Gives the colour bands of a resistor. Input: its ohms, as a number.",
        None,
        "What colour bands does a 4700 ohm resistor have?",
        "4700",
        "yellow, violet and red",
    ),
    Unseen(
        "MeetingRooms",
        "Reserves a meeting room.",
        {"room": str, "time": str, "people": int},
        "Reserve the Blue Room at 14:30 for 8 people.",
        {"room": "Blue Room", "time": "14:30", "people": 8},
        "reserved, the projector is there",
    ),
    Unseen(
        "ScratchCard",
        "Checks a lottery ticket; the input is its number.",
        None,
        "Did my lottery ticket 88-31407 win anything?",
        "88-31407",
        "no prize this time",
    ),
    Unseen(
        "mirror_writing",
        "Writes a word as a mirror shows it.",
        None,
        "How does AMBULANCE look in a mirror?",
        "AMBULANCE",
        "the letters run from right to left",
    ),
    Unseen(
        "MazeHint",
        "Gives a hint to the player who is lost in the maze.",
        {},
        "I'm lost in the maze. Can I get a hint?",
        "",
        "follow the wall on your left",
    ),
    Unseen(
        "anagrams_of",
        "Lists the anagrams of a word.",
        None,
        "What anagrams are there of LISTEN?",
        "LISTEN",
        "silent, enlist and tinsel",
    ),
    Unseen(
        "HotelPrice",
        "Says what a stay at a hotel costs.",
        {"hotel": str, "nights": int},
        "How much do 4 nights at the Seaview Inn cost?",
        {"hotel": "Seaview Inn", "nights": 4},
        "516 pounds with breakfast",
    ),
    Unseen(
        "FontSample",
        "Shows a sample of a font. Input: the name of the font.",
        None,
        "Show me what the font Garamond looks like.",
        "Garamond",
        "sample on screen, 12 points",
    ),
    Unseen(
        "SeatSwap",
        "Changes the seat on a train that you have booked.",
        {"train": str, "seat": int},
        "Change my seat on train RJ 163 to seat 42.",
        {"train": "RJ 163", "seat": 42},
        "changed, it is an aisle seat",
    ),
    Unseen(
        "guitar_string",
        "Tells which note a string of a guitar has in a tuning.",
        {"tuning": str, "string": int},
        "What note is string 3 in drop D tuning?",
        {"tuning": "drop D", "string": 3},
        "the note G",
    ),
    Unseen(
        "MemoFinder",
        "Searches the user's own notes and memos; the input is a word or a phrase to look for.",
        None,
        "Did I write anything down about the garage code?",
        "garage code",
        "it is 5508, changed in May",
    ),
    Unseen(
        "pay_parking",
        "Pays for parking in a zone of the town.",
        {"zone": str, "hours": float},
        "Pay for parking in zone 7B for 1.5 hours.",
        {"zone": "7B", "hours": 1.5},
        "paid, until 13:10",
    ),
    Unseen(
        "moon_on_day",
        "Says what phase the Moon has on a date.",
        {"date": str},
        "What phase will the moon be in on 8 April?",
        {"date": "8 April"},
        "waning crescent",
    ),
    Unseen(
        "monster_loot",
        "Tells what a monster in the game leaves behind when it is beaten.",
        None,
        "What loot does the Frost Troll drop?",
        "Frost Troll",
        "an ice axe and 30 coins",
    ),
    Unseen(
        "PrintFile",
        "Prints a file on the office printer.",
        {"file": str, "copies": int},
        "Print 12 copies of agenda.pdf, please.",
        {"file": "agenda.pdf", "copies": 12},
        "printed, in tray 2",
    ),
]
