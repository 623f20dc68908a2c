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
        "Barcode",
        "Identifies a product by the digits of its bar code.",
        None,
        "Which product has the bar code 4006381333931?",
        "4006381333931",
        "felt-tip pen",
    ),
    Unseen(
        "TideTable",
        "Gives the time of the next high tide at a harbour; the input is the harbour.",
        None,
        "When is high tide in Saint-Malo?",
        "Saint-Malo",
        "17:42",
    ),
    Unseen(
        "LicensePlate",
        "Finds the keeper of a car by its licence plate.",
        None,
        "Whose car has the plate HH-KR 2207?",
        "HH-KR 2207",
        "Ingrid Sommer",
    ),
    Unseen(
        "Rhyme",
        "Finds a word that rhymes with the given word.",
        None,
        "Find me a rhyme for candle.",
        "candle",
        "handle",
    ),
    Unseen(
        "MoonPhase",
        "Tells the phase of the moon tonight.",
        {},
        "What phase is the moon in tonight?",
        "",
        "waning crescent",
    ),
    Unseen(
        "IsbnSearch",
        "Gives the title that belongs to an ISBN.",
        None,
        "Which book has the ISBN 9780140449136?",
        "9780140449136",
        "The Odyssey",
    ),
    Unseen(
        "TaxRate",
        "Looks up the sales tax of a country in percent. Input: the country.",
        None,
        "How high is the sales tax in Slovenia?",
        "Slovenia",
        "22%",
    ),
    Unseen(
        "CharacterCode",
        "Gives the Unicode number of a character.",
        None,
        "What is the Unicode number of the character ß?",
        "ß",
        "U+00DF",
    ),
    Unseen(
        "PollenCount",
        "How much pollen is in the air at a place; the input is the place.",
        None,
        "How strong is the pollen in Augsburg today?",
        "Augsburg",
        "low",
    ),
    Unseen(
        "split_bill",
        "Splits the amount of a bill among guests.",
        {"amount": float, "guests": int},
        "Split a bill of 84 among 7 guests.",
        {"amount": 84, "guests": 7},
        "12.0",
    ),
    Unseen(
        "Volcano",
        "Says whether a volcano is active; the input is its name.",
        None,
        "Is the volcano Stromboli active?",
        "Stromboli",
        "active",
    ),
    Unseen(
        "TrafficJam",
        "Length of the traffic jam on a motorway, by its number.",
        None,
        "How long is the jam on the A81?",
        "A81",
        "6 km",
    ),
    Unseen(
        "Anagram",
        "Makes another word out of the letters of a word.",
        None,
        "Make an anagram of listen.",
        "listen",
        "silent",
    ),
    Unseen(
        "PassportCheck",
        "Tells until when a passport is valid. Input: its number.",
        None,
        "Until when is passport C01X00T47 valid?",
        "C01X00T47",
        "3 May 2031",
    ),
    Unseen(
        "BloodBank",
        "Counts the units of a blood group in store; the input is the group.",
        None,
        "How many units of AB negative are in store?",
        "AB negative",
        "14 units",
    ),
    Unseen("CoinFlip", "Flips a coin.", {}, "Flip a coin, please.", "", "heads"),
    Unseen(
        "ElevatorStatus",
        "Tells on which floor a lift is; the input is the lift's letter.",
        None,
        "On which floor is lift C?",
        "C",
        "floor 9",
    ),
    Unseen(
        "book_court",
        "Books a tennis court for an hour.",
        {"court": int, "hour": int},
        "Book court 3 at hour 18.",
        {"court": 3, "hour": 18},
        "booking 551",
    ),
    Unseen(
        "StampValue",
        "What a collector pays for a stamp; the input is its catalogue number.",
        None,
        "What is the stamp Mi-1147 worth to a collector?",
        "Mi-1147",
        "230 euros",
    ),
    Unseen(
        "SunsetTime",
        "Gives the time of sunset at a place. The input is the place.",
        None,
        "When does the sun set in Tromsø?",
        "Tromsø",
        "15:08",
    ),
]
