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
        "VolcanoWatch",
        "Tells the present alert level of a volcano; the input is its name.",
        None,
        "Is it all right to hike up Stromboli this week?",
        "Stromboli",
        "yellow, keep below 400 metres",
    ),
    Unseen(
        "SurfReport",
        "Tells how high the waves are at a beach; the input is the name of the beach.",
        None,
        "Worth taking the board down to Croyde after work?",
        "Croyde",
        "1.4 m, clean, wind off the land",
    ),
    Unseen(
        "Parcel",
        "Tells where a parcel is; the input is its tracking number.",
        None,
        "Has PK4471802 left the depot yet?",
        "PK4471802",
        "out for delivery since 7:15",
    ),
    Unseen(
        "FabricCare",
        "Tells how a fabric should be washed; the input is the name of the fabric.",
        None,
        "Can merino wool go in the machine?",
        "merino wool",
        "wool cycle at 30 °C, no tumble drying",
    ),
    Unseen(
        "to_welsh",
        "Translates a word or a sentence into Welsh.",
        None,
        'How would someone in Cardiff say "good evening" in Welsh?',
        "good evening",
        "noswaith dda",
    ),
    Unseen(
        "WineCellar",
        "Counts the bottles of a wine in the cellar; the input is the name of the wine.",
        None,
        "Do we have any Barolo left?",
        "Barolo",
        "3 bottles",
    ),
    Unseen(
        "tie_knot",
        "Shows step by step how a knot is tied; the input is the name of the knot.",
        None,
        "I keep getting the bowline wrong, what goes where?",
        "bowline",
        "Make a small loop, pass the end up through it, round behind the rope and back down.",
    ),
    Unseen(
        "Synonym",
        "Gives words with nearly the same meaning as a word.",
        None,
        "What else can I write instead of stubborn?",
        "stubborn",
        "obstinate, headstrong, pig-headed",
    ),
    Unseen(
        "NameDay",
        "Gives the date of the name day that goes with a first name.",
        None,
        "When do people called Ludmila celebrate?",
        "Ludmila",
        "16 September",
    ),
    Unseen(
        "game_rules",
        "Explains the rules of a board game or card game; the input is the name of the game.",
        None,
        "My nephew wants to learn backgammon, how does it go?",
        "backgammon",
        "Each player moves 15 pieces by two dice and tries to bear them off first.",
    ),
    Unseen(
        "set_heating",
        "Sets the heating of a room to a temperature.",
        {"room": str, "degrees": int},
        "It should be 21 degrees in the nursery.",
        {"room": "nursery", "degrees": 21},
        "set",
    ),
    Unseen(
        "point_telescope",
        "Points the telescope at something in the sky and follows it for a number of minutes.",
        {"object": str, "minutes": int},
        "I would like to watch Saturn for 20 minutes.",
        {"object": "Saturn", "minutes": 20},
        "following",
    ),
    Unseen(
        "Treadmill",
        "Starts the treadmill at a speed in kilometres per hour and a slope in percent.",
        {"speed": int, "slope": int},
        "Let me jog at 9 km/h with 2 percent uphill.",
        {"speed": 9, "slope": 2},
        "running",
    ),
    Unseen(
        "BloodBank",
        "Orders a number of bags of blood of one blood group for the hospital.",
        {"bags": int, "group": str},
        "Theatre two needs 4 bags of O negative.",
        {"bags": 4, "group": "O negative"},
        "on the way, there in 9 minutes",
    ),
    Unseen(
        "flashcard",
        "Makes a card for learning words, with a text on each side.",
        {"front": str, "back": str},
        "I want a new card with squirrel on the front and ardilla on the back.",
        {"front": "squirrel", "back": "ardilla"},
        "card 218 made",
    ),
    Unseen(
        "PaintMixer",
        "Mixes a number of litres of wall paint in a colour.",
        {"colour": str, "litres": int},
        "I'd like 3 litres of terracotta for the hall.",
        {"colour": "terracotta", "litres": 3},
        "ready in 6 minutes",
    ),
    Unseen(
        "ferry_ticket",
        "Buys ferry tickets from one port to another for a number of passengers.",
        {"origin": str, "destination": str, "passengers": int},
        "There are 5 of us going from Oban to Craignure, get us on the boat.",
        {"origin": "Oban", "destination": "Craignure", "passengers": 5},
        "booked for 14:10",
    ),
    Unseen(
        "compost_probe",
        "Measures the temperature inside the compost heap.",
        {},
        "Is the compost getting hot enough?",
        "",
        "58 °C",
    ),
    Unseen(
        "nest_camera",
        "Tells what the camera in the bird box sees at the moment.",
        {},
        "Have the blue tits hatched yet?",
        "",
        "5 chicks, 2 eggs, the hen is sitting",
    ),
    Unseen(
        "GeigerCounter",
        "Measures the radioactivity of the air on the roof.",
        {},
        "Is there more radiation than usual out there?",
        "",
        "0.11 µSv per hour",
    ),
]
