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
    # one text
    Unseen(
        "CheeseCounter",
        "Tells how much of a cheese the shop still has; the input is the name of the cheese.",
        None,
        "Do we still have any Gruyère in the shop?",
        "Gruyère",
        "3.2 kg",
    ),
    Unseen(
        "locker_owner",
        "Tells to whom a locker belongs; the input is the number of the locker.",
        None,
        "Whose locker is number 218?",
        "218",
        "Dana Whitlock",
    ),
    Unseen(
        "KnittingStitch",
        "Explains how to knit a stitch.",
        None,
        "How does moss stitch go again?",
        "moss stitch",
        "knit one, purl one, shifted by one in the next row",
    ),
    Unseen(
        "MooringSpot",
        "Tells at which berth of the marina a boat lies; the input is the name of the boat.",
        None,
        "Where's the Salty Heron tied up?",
        "Salty Heron",
        "berth 27, east pier",
    ),
    Unseen(
        "SolventStorage",
        "Says how a chemical of the laboratory has to be kept.",
        None,
        "Can I leave the diethyl ether on the bench overnight?",
        "diethyl ether",
        "in the cooled, vented cabinet",
    ),
    Unseen(
        "spare_part_lookup",
        "Finds the shelf where a spare part is kept; the input is the part number.",
        None,
        "Where in the store do I find part KX-4471?",
        "KX-4471",
        "aisle 9, shelf C",
    ),
    Unseen(
        "Glossarium",
        "Translates an English word into Latin.",
        None,
        "What did the Romans call a hedgehog?",
        "hedgehog",
        "ericius",
    ),
    Unseen(
        "vet_record",
        "Shows when an animal last came to the animal clinic; the input is the animal's name.",
        None,
        "When was Biscuit last at the vet's?",
        "Biscuit",
        "3 October",
    ),
    Unseen(
        "hallmark_reader",
        "Explains the letters stamped into old silver; the input is the stamp.",
        None,
        "My grandmother's spoon says WH&S on the back, who made it?",
        "WH&S",
        "William Hutton & Sons, Sheffield",
    ),
    Unseen(
        "TrailStatus",
        "Says whether a hiking trail is open.",
        None,
        "Can we walk the Eagle Ridge Path this weekend?",
        "Eagle Ridge Path",
        "closed after a landslide",
    ),
    # two or three parameters
    Unseen(
        "repaint_wall",
        "Orders the painting of a wall of a room in a colour.",
        {"room": str, "colour": str},
        "I'd like the hallway to be mint green.",
        {"room": "hallway", "colour": "mint green"},
        "ordered",
    ),
    Unseen(
        "BikeRental",
        "Rents out bicycles for a number of days.",
        {"bikes": int, "days": int},
        "We need 4 bikes for 3 days.",
        {"bikes": 4, "days": 3},
        "reserved",
    ),
    Unseen(
        "feed_tank",
        "Drops portions of food into an aquarium.",
        {"tank": int, "portions": int},
        "The fish in tank 5 look hungry, let them have 2 portions.",
        {"tank": 5, "portions": 2},
        "done",
    ),
    Unseen(
        "ScoreKeeper",
        "Adds points to a player's score in the running game.",
        {"player": str, "points": int},
        "Marisol just got 35 points.",
        {"player": "Marisol", "points": 35},
        "Marisol: 112",
    ),
    Unseen(
        "parcel_quote",
        "Gives the postage of a parcel by its weight in grams and the country it goes to.",
        {"grams": int, "country": str},
        "How much is it to post a 750 gram package to Norway?",
        {"grams": 750, "country": "Norway"},
        "14.90",
    ),
    Unseen(
        "OvenProgram",
        "Starts a program of the oven at a temperature for some minutes.",
        {"program": str, "degrees": int, "minutes": int},
        "Put the oven on grill at 220 degrees for 15 minutes.",
        {"program": "grill", "degrees": 220, "minutes": 15},
        "heating",
    ),
    Unseen(
        "costume_loan",
        "Lends a costume of the theatre to a person.",
        {"costume": str, "borrower": str},
        "Henrik would like to take the pirate outfit home.",
        {"costume": "pirate outfit", "borrower": "Henrik"},
        "lent until Sunday",
    ),
    # none
    Unseen(
        "beehive_weight",
        "Reads the scales under the beehive.",
        {},
        "How heavy is the hive by now?",
        "",
        "41.6 kg",
    ),
    Unseen(
        "QueueLength",
        "Counts the people waiting at the reception.",
        {},
        "Are there many people ahead of me at the desk?",
        "",
        "7 waiting",
    ),
    Unseen(
        "Doorbell",
        "Tells who rang at the front door last.",
        {},
        "Who was at the door just now?",
        "",
        "the postman",
    ),
]
