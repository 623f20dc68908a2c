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
        "WinePairing",
        "Suggests a wine that goes with a dish.",
        None,
        "Which wine goes with roast duck?",
        "roast duck",
        "Pinot Noir",
    ),
    Unseen(
        "MorseCode",
        "Writes a word in dots and dashes.",
        None,
        "Write the word harbour in dots and dashes.",
        "harbour",
        ".... .- .-. -... --- ..- .-.",
    ),
    Unseen(
        "bird_song",
        "Describes how a bird sings; the input is the bird.",
        None,
        "How does a nightjar sing?",
        "nightjar",
        "a long churring",
    ),
    Unseen(
        "departure_gate",
        "Tells from which gate a flight leaves. Input: the flight number.",
        None,
        "Which gate does flight LX 1632 leave from?",
        "LX 1632",
        "gate B42",
    ),
    Unseen(
        "postage",
        "Works out what a parcel to another country costs.",
        {"grams": int, "country": str},
        "What does a parcel of 750 grams to Norway cost?",
        {"grams": 750, "country": "Norway"},
        "14.90 euros",
    ),
    Unseen(
        "Allergens",
        "Lists the allergens in a dish of the canteen.",
        None,
        "Which allergens are in the lasagne?",
        "lasagne",
        "gluten and milk",
    ),
    Unseen(
        "BeachFlag",
        "Gives the colour of the flag that lifeguards fly at a beach; the input is the beach.",
        None,
        "What colour is the flag at Bondi Beach?",
        "Bondi Beach",
        "yellow",
    ),
    Unseen(
        "QueueTicket",
        "Draws the next number for the waiting line.",
        {},
        "Draw me a number for the waiting line.",
        "",
        "number 63",
    ),
    Unseen(
        "warranty",
        "Says until when the warranty of a device runs, by its serial number.",
        None,
        "How long does the warranty of the device SN-48213 run?",
        "SN-48213",
        "30 June 2027",
    ),
    Unseen(
        "water_plants",
        "Waters the plants of the garden for some minutes.",
        {"plants": str, "minutes": int},
        "Water the tomatoes for 15 minutes.",
        {"plants": "tomatoes", "minutes": 15},
        "36 litres used",
    ),
    Unseen(
        "DishwasherError",
        "Explains an error code of the dishwasher.",
        None,
        "The dishwasher shows the error code E24. What does it mean?",
        "E24",
        "drain hose blocked",
    ),
    Unseen(
        "TreeRegister",
        "Gives the kind of a street tree by the number on its tag.",
        None,
        "What kind of tree has the tag 7715?",
        "7715",
        "silver lime",
    ),
    Unseen(
        "record_run",
        "Records a run in the training log and gives the pace.",
        {"runner": str, "km": float, "minutes": int},
        "Record a run of 8.5 km in 47 minutes for the runner Selma.",
        {"runner": "Selma", "km": 8.5, "minutes": 47},
        "5:32 per km",
    ),
    Unseen(
        "HexColour",
        "Gives the hex code of a colour by its name.",
        None,
        "What is the hex code of the colour salmon?",
        "salmon",
        "#FA8072",
    ),
    Unseen(
        "SnowDepth",
        "How deep the snow is at a ski resort; the input is the resort.",
        None,
        "How deep is the snow in Zermatt?",
        "Zermatt",
        "85 cm",
    ),
    Unseen(
        "loan_payment",
        "Gives the monthly payment of a loan.",
        {"amount": float, "years": int, "rate": float},
        "What is the monthly payment for a loan with an amount of 12000, 5 years and a rate of 3.5?",
        {"amount": 12000, "years": 5, "rate": 3.5},
        "218.30",
    ),
    Unseen(
        "Syllables",
        "Splits a word into its syllables.",
        None,
        "Split the word umbrella into syllables.",
        "umbrella",
        "um-brel-la",
    ),
    Unseen(
        "rename_file",
        "Gives a file another name.",
        {"old": str, "new": str},
        "Rename the file draft.txt to final.txt.",
        {"old": "draft.txt", "new": "final.txt"},
        "3 links updated",
    ),
    Unseen(
        "bin_day",
        "Tells which bin is emptied next and when.",
        {},
        "Which bin is emptied next?",
        "",
        "the blue bin on Thursday",
    ),
    Unseen(
        "TrainSeat",
        "Says whether a seat in a train is free.",
        {"coach": int, "seat": int},
        "Is seat 64 in coach 9 free?",
        {"coach": 9, "seat": 64},
        "taken",
    ),
]
