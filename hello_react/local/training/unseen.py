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
        "CheeseOrigin",
        "Names the region that a cheese comes from.",
        None,
        "Which region does Manchego come from?",
        "Manchego",
        "La Mancha",
    ),
    Unseen(
        "tide_table",
        "Tells when the water is highest at a harbour; the input is the harbour.",
        None,
        "When is the water highest at Whitby?",
        "Whitby",
        "16:42",
    ),
    Unseen(
        "light_fireworks",
        "Lets off fireworks over the lake.",
        {"rockets": int, "time": str},
        "Let off fireworks with 6 rockets at 22:30.",
        {"rockets": 6, "time": "22:30"},
        "best seen from pier 14",
    ),
    Unseen(
        "BandNamer",
        "Makes up a name for a rock band around a word.",
        None,
        "Make up a name for a rock band around velvet.",
        "velvet",
        "Velvet Avalanche",
    ),
    Unseen(
        "cat_flap",
        "Tells whether the cat is in or out.",
        {},
        "Is the cat in or out?",
        "",
        "out, since 7:10",
    ),
    Unseen(
        "knot_use",
        "Explains what a knot is good for. Input: the name of the knot.",
        None,
        "What is a bowline good for?",
        "bowline",
        "a loop that does not slip",
    ),
    Unseen(
        "Magnifier",
        "Works out how many times a telescope magnifies.",
        {"lens": float, "eyepiece": float},
        "How many times does a telescope with a lens of 52.5 and an eyepiece of 3.5 magnify?",
        {"lens": 52.5, "eyepiece": 3.5},
        "15 times",
    ),
    Unseen(
        "HikeIdea",
        "Suggests today's hike near a town.",
        None,
        "Where can I go for a hike near Freiburg today?",
        "Freiburg",
        "up the Schauinsland, by the ridge",
    ),
    Unseen(
        "vinyl_value",
        "Estimates what a vinyl record is worth, by its catalogue number.",
        None,
        "What is the vinyl record PCS 7027 worth?",
        "PCS 7027",
        "about 45 euros",
    ),
    Unseen(
        "move_card",
        "Moves a card on the task board to another column.",
        {"card": str, "column": str},
        "Move the card Login page to the column Review.",
        {"card": "Login page", "column": "Review"},
        "4 cards in that column",
    ),
    Unseen(
        "quote_verse",
        "Quotes a verse of the Bible.",
        None,
        "What does the Bible verse John 11:35 say?",
        "John 11:35",
        "Jesus wept.",
    ),
    Unseen(
        "FeedAnimal",
        "Gives hay to an animal on the farm.",
        {"animal": str, "kilos": float},
        "Give the donkey 3.5 kilos of hay.",
        {"animal": "donkey", "kilos": 3.5},
        "fed until 18:00",
    ),
    Unseen(
        "IngredientSwap",
        "Finds something to cook with in place of an ingredient.",
        None,
        "Find something to cook with in place of buttermilk.",
        "buttermilk",
        "milk with lemon juice",
    ),
    Unseen(
        "microwave_check",
        "Says whether a thing may go into the microwave; the input is its name.",
        None,
        "Can I put a melamine bowl into the microwave?",
        "melamine bowl",
        "dangerous",
    ),
    Unseen(
        "TyrePressure",
        "Gives the right tyre pressure for a car with so many people in it.",
        {"car": str, "people": int},
        "What is the right tyre pressure for a Volvo V60 with 5 people?",
        {"car": "Volvo V60", "people": 5},
        "2.7 bar",
    ),
    Unseen(
        "ChordNotes",
        "Lists the notes of a chord.",
        None,
        "Which notes are in the chord Fmaj7?",
        "Fmaj7",
        "F, A, C and E",
    ),
    Unseen(
        "fridge_contents",
        "Lists what is in the fridge.",
        {},
        "What is in the fridge?",
        "",
        "eggs, butter and half a melon",
    ),
    Unseen(
        "transfer_points",
        "Transfers loyalty points from one member to another.",
        {"sender": str, "receiver": str, "points": int},
        "Transfer 250 points from Nadia to Oskar.",
        {"sender": "Nadia", "receiver": "Oskar", "points": 250},
        "1,140 points left",
    ),
    Unseen(
        "ParkingFee",
        "What an hour of parking costs in a street. Input: the street.",
        None,
        "What does an hour of parking cost in Mill Lane?",
        "Mill Lane",
        "2.40 euros",
    ),
    Unseen(
        "fence_quote",
        "Calculates what a new fence costs.",
        {"metres": int, "material": str, "gates": int},
        "What does a new fence of 30 metres in larch with 2 gates cost?",
        {"metres": 30, "material": "larch", "gates": 2},
        "3,860 euros",
    ),
]
