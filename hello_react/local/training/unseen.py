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
        "recipe_scout",
        "Suggests a dish to cook from one ingredient.",
        None,
        "What could I make with aubergines tonight?",
        "aubergines",
        "moussaka",
    ),
    Unseen(
        "ParcelTracker",
        "Tells where a parcel is now; the input is its tracking number.",
        None,
        "Any idea where my package RX40718 has got to?",
        "RX40718",
        "sorting centre in Utrecht",
    ),
    Unseen(
        "birdcall",
        "Plays the song of a bird; the input is the name of the bird.",
        None,
        "Let me hear what a nightingale sounds like.",
        "nightingale",
        "playing",
    ),
    Unseen(
        "Thesaurus",
        "Lists words with nearly the same meaning as a word.",
        None,
        "What else can I write instead of stubborn?",
        "stubborn",
        "obstinate, headstrong",
    ),
    Unseen(
        "FlightGate",
        "Tells the gate of a departure; the input is the flight number.",
        None,
        "Where do I have to go to board KL1084?",
        "KL1084",
        "gate D14",
    ),
    Unseen(
        "side_effects",
        "Lists the side effects of a medicine.",
        None,
        "Could ibuprofen upset my stomach?",
        "ibuprofen",
        "nausea, heartburn",
    ),
    Unseen(
        "StaffDirectory",
        "Finds the telephone extension of a colleague; the input is the full name.",
        None,
        "How can I reach Nadia Ferreira at her desk?",
        "Nadia Ferreira",
        "extension 417",
    ),
    Unseen(
        "chess_opening",
        "Shows the first moves of a chess opening; the input is its name.",
        None,
        "How does the Caro-Kann begin?",
        "Caro-Kann",
        "1. e4 c6",
    ),
    Unseen(
        "HighTide",
        "Gives the time of the next high water at a harbour.",
        None,
        "When will the sea be up again in Whitby?",
        "Whitby",
        "16:52",
    ),
    Unseen(
        "book_room",
        "Reserves a meeting room for one hour.",
        {"room": str, "hour": int},
        "We need the Maple room at 14 o'clock, can you get it for us?",
        {"room": "Maple", "hour": 14},
        "reserved",
    ),
    Unseen(
        "GardenSprinkler",
        "Waters a part of the garden for some minutes.",
        {"zone": str, "minutes": int},
        "Give the roses 20 minutes of water.",
        {"zone": "roses", "minutes": 20},
        "sprinkler on",
    ),
    Unseen(
        "DiceCup",
        "Rolls several dice at once.",
        {"dice": int, "sides": int},
        "Throw 3 dice with 20 sides each for my wizard.",
        {"dice": 3, "sides": 20},
        "4, 17, 11",
    ),
    Unseen(
        "cinema_seats",
        "Looks whether enough seats are free for a film.",
        {"film": str, "seats": int},
        "Could 4 of us still get in to see Casablanca?",
        {"film": "Casablanca", "seats": 4},
        "yes, row 9",
    ),
    Unseen(
        "FerryFare",
        "Works out the price of a crossing by ferry.",
        {"start": str, "destination": str, "passengers": int},
        "What would 5 people pay for the boat from Split to Hvar?",
        {"start": "Split", "destination": "Hvar", "passengers": 5},
        "45 euros",
    ),
    Unseen(
        "BeehiveScale",
        "Weighs the beehive behind the house.",
        {},
        "How heavy are my bees and their honey by now?",
        "",
        "38.2 kg",
    ),
    Unseen(
        "pulse",
        "Measures the heart rate of the wearer of the watch.",
        {},
        "How fast is my heart beating?",
        "",
        "71 beats per minute",
    ),
    Unseen(
        "knot_guide",
        "Shows how a knot is tied, given its name.",
        None,
        "I need to make a bowline, how does it go?",
        "bowline",
        "make a loop, bring the end up through it, round behind the rope and back down",
    ),
    Unseen(
        "Metronome",
        "Clicks a steady beat at a tempo for some time.",
        {"beats_per_minute": int, "minutes": int},
        "I'm practising scales, keep me at 92 for 15 minutes, please.",
        {"beats_per_minute": 92, "minutes": 15},
        "ticking",
    ),
    Unseen(
        "EngraveTrophy",
        "Engraves a winner's name and the year on the trophy.",
        {"winner": str, "year": int},
        "Put Rosa Keller on the cup for 2023.",
        {"winner": "Rosa Keller", "year": 2023},
        "engraved",
    ),
    Unseen(
        "nest_boxes",
        "Counts the eggs that lie in the henhouse.",
        {},
        "How many have the chickens laid so far?",
        "",
        "7 eggs",
    ),
]
