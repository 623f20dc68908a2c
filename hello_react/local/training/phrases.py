"""The tables of `phrases.txt`: what the synthetic questions, passages and tools are made of.

Words and lines are lists of texts; a line that begins with "~" is held out from training.

    >>> MONTHS[:2], ATTRIBUTES["height"].noun, ATTRIBUTES["height"].asked[0]
    (['January', 'February'], 'height', 'How high is {x}?')
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple


class Attribute(NamedTuple):
    """A kind of fact: what it is called, how it is asked for and told, and the word to look up on a page."""

    noun: str
    asked: list[str]
    told: list[str]
    word: str


_TEXT = Path(__file__).with_name("phrases.txt").read_text(encoding="utf-8")
_SECTIONS = dict(re.findall(r"^\[(.+)\]\n((?:(?!\[).+\n)*)", _TEXT, re.MULTILINE))


def _words(name: str) -> list[str]:
    return str(_SECTIONS[f"words {name}"]).split()


def _lines(name: str) -> list[str]:
    return [line.strip('"') for line in _SECTIONS[f"lines {name}"].splitlines()]


def _attributes() -> dict[str, Attribute]:
    found = {}
    for header, body in _SECTIONS.items():
        if header.startswith("fact "):
            name, noun, word = header.removeprefix("fact ").split(" | ")
            lines = {sign: [line[2:] for line in body.splitlines() if line[0] == sign] for sign in "?!"}
            found[name] = Attribute(noun, lines["?"], lines["!"], word)
    return found


FIRST, LAST, CITIES, COLOURS = map(_words, ("FIRST", "LAST", "CITIES", "COLOURS"))
ANIMALS, WORDS, SYLLABLES, MONTHS = map(_words, ("ANIMALS", "WORDS", "SYLLABLES", "MONTHS"))
ATTRIBUTES = _attributes()
KINDS = {kind: facts.split() for kind, facts in (line.split(": ") for line in _lines("KINDS"))}
"""The kinds of invented things and the facts that each may have."""
FILLER = _lines("FILLER")
"""Sentences of a passage that tell none of the facts."""
MISSING = _lines("MISSING")
"""What no article tells: a word to look up | the question."""
OUT_OF_REACH, SMALL_TALK, TALK_BEFORE = map(_lines, ("OUT_OF_REACH", "SMALL_TALK", "TALK_BEFORE"))
"""Questions that no tool can answer; what is said | the reply; said, replied | asked later | the reply."""
SUMS = _lines("SUMS")
"""Arithmetic: the question | the expression | the unit of the answer."""
LISTED, CONVERTED = _lines("LISTED"), _lines("CONVERTED")
"""What is done with numbers | the question with their {list} | the unit; the kind of units, if not any | the
question."""
TOOLS = [line.split(" ;") for line in _lines("TOOLS")]
"""Names ; descriptions ; parameters ("-": none, empty: one text) ; questions ; input ; results."""
THINGS, QUALITIES = _words("THINGS"), _words("QUALITIES")
NUMBERS = _words("NUMBERS")
"""Small numbers in words, from zero on."""
QUALITY_ASKED, QUALITY_TOLD = _lines("QUALITY_ASKED"), _lines("QUALITY_TOLD")
"""Tools made of a thing and a quality of it: questions and descriptions."""
POLITE, POLITE_AFTER = _lines("POLITE"), _lines("POLITE_AFTER")
COMPARED = {
    name: _lines(name)
    for name in (
        *("DIFFERENCE", "DIFFERENCE_MORE", "DIFFERENCE_PEOPLE", "TOGETHER", "TIMES"),
        *("WHICH", "WHICH_PEOPLE", "WHICH_NOUN"),
        *("OLDER", "YOUNGER", "AGE", "SPAN_TO_YEAR", "SPAN_AGE_IN", "SPAN_BIRTHS", "SPAN_THINGS"),
        *("IS_MORE", "IS_LESS", "BOTH", "FOLLOW_UP", "DESCRIBED", "HOP_ASIDE", "NOT_THE"),
        *("IS_COMPARED", "IS_COMPARED_PEOPLE", "IS_COMPARED_NOUN", "IS_COMPARED_BORN"),
    )
}
"""Questions about one or two subjects {x} and {y} by what is done with their facts."""
FACTOR = _lines("FACTOR")
"""A calculation with one fact: the question | the expression."""
JOINT = _lines("JOINT")
"""What joins a question and a sum."""
POINTERS = {kind: names.split(", ") for kind, names in (line.split(": ") for line in _lines("POINTERS"))}
"""How a question points at a subject through another one, by the fact that leads there."""
READING = _lines("READING")
"""On the shipped articles: title | question | answer, in braces if the words beside it are needed to find it;
or "-" and a word that the article lacks."""
TWO_FACTS = _lines("TWO_FACTS")
"""On two facts of articles: what is done | title | title | question | words of the one | of the other."""
MENTIONED = _lines("MENTIONED")
"""On what has no article: title of one that mentions it | what is searched | question | answer, or "-"."""
