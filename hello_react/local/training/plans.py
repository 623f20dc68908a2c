"""How each kind of synthetic question is answered, step by step, with the tools at hand.

A plan plays its run on a `Script`: the tools really run, the parser words its notes, `render_step` writes
the history. A plan that does not work out with these tools or this passage raises `Unsuited`, and another
one is tried.
"""

from __future__ import annotations

import itertools
import math
import random
import re
from collections.abc import Callable
from dataclasses import dataclass, field

from ... import parser
from ...errors import ToolError
from ...events import Observation, Reply, Step
from ...guards import REPEAT_NOTE
from ...parser import Action
from ...prompt import render_step
from ...toolbox.calculator import calculate
from ...toolbox.page import sentences
from ...tools import ToolExecutor
from ..prompt import trained_prompt
from . import phrases
from .kits import Kit, custom_tool
from .world import Subject, World, bare_of, chosen, fill, usual_facts

NOT_FOUND = "I could not find the answer."
"""How a run ends when the answer can't be had."""
NOT_THERE = "It does not say this; I look it up."
LONGEST = 200
"""Characters of a sentence that a thought repeats, at most."""


@dataclass(frozen=True)
class Turn:
    """One step to learn: the whole prompt and the reply."""

    prompt: str
    reply: str


@dataclass(frozen=True)
class Run:
    """One question with the right steps to its answer."""

    kind: str
    question: str
    answer: str
    turns: tuple[Turn, ...]
    conversation: tuple[tuple[str, str], ...] = ()
    tools: ToolExecutor = field(default_factory=ToolExecutor, compare=False, repr=False)
    replay: tuple[tuple[str, str, str], ...] = ()
    """The calls that are right, with what the tool says: (tool, input, observation)."""
    made_up: frozenset[str] = frozenset()
    """The tools that only know these calls."""


_OPENERS = (
    "What",
    "How",
    "When",
    "Who",
    "Which",
    "Where",
    "In ",
    "On ",
    "At ",
    "Is ",
    "Was ",
    "Did ",
    "Do ",
    "By ",
    "Tell",
    "Into",
)
_CONTENT_WORD = re.compile(
    r"\b(?!(?:a(?:bout|ctually|ny(?:body|one|thing))|can|could|do(?:es|ne)?|ever|exact(?:ly)?|find|from|give"
    r"|happen|have|idea|into|just|know|like|many|maybe|mean|much|name|need|one|over|please|quick|really|said"
    r"|say|some(?:body|one|thing)?|tell|than|that|the(?:ir|n|re|se|y)?|this|those|want|were|what|when|where"
    r"|which|whose|will|with|wonder|would|your?)\b)[a-z]{4,}"
)
"""A word of a question that may stand on a page: of four letters or more and no filler."""
_CASE_MATTERS = ("tool", "failing", "unfitting", "after a slip")
"""Kinds whose questions are never written in small or capital letters throughout."""


class Unsuited(Exception):
    """The plan does not work with these tools or this passage; another one is tried."""


class Script:
    """One run as it is played."""

    def __init__(self, world: World, kit: Kit) -> None:
        self.world, self.kit, self.rng, self.words = world, kit, world.rng, world.words
        self.question, self.conversation = "", tuple[tuple[str, str], ...]()
        self.kind, self.answer, self._history, self._number = "", "", "", 0
        self.turns: list[Turn] = []
        self.replay: list[tuple[str, str, str]] = []
        self._leading: dict[tuple[str, str], bool] = {}
        self.in_full: Subject | None = None
        """A subject that the question does not name, whatever words of its name stand there."""
        self._asked_first = ""

    def _turn(self, thought: str, action: str) -> str:
        reply = f"Thought: {thought}\nAction: {action}"
        prompt = trained_prompt().text(
            self.question, self.kit.executor.describe(), self._history, self.conversation
        )
        self.turns.append(Turn(prompt, reply))
        return reply

    def _add(self, thought: str | None, calls: tuple[Action, ...], seen: Observation, reply: str) -> None:
        self._number += 1
        self._history += render_step(Step(self._number, thought, calls, (seen,), Reply(reply), 0.0))

    def act(self, thought: str, tool: str, given: str, learnt: bool = True) -> str:
        """Call a tool; gives the observation. What is not `learnt` only stands in the history, as a slip."""
        reply = f"Thought: {thought}\nAction: {tool}[{given}]"
        if learnt:
            self._turn(thought, f"{tool}[{given}]")
        seen = self.kit.executor.execute(tool, given)
        text = seen.text
        if (tool, given, text) in self.replay:
            text += f"\n({REPEAT_NOTE})"
        self.replay.append((tool, given, seen.text))
        self._add(thought, (Action(tool, given),), Observation(text, seen.ok, tool), reply)
        return text

    def slip(self, reply: str) -> None:
        """A reply that can't be read, and the note on it."""
        move = parser.parse(reply, self.kit.executor.names).move
        if not isinstance(move, parser.Malformed):
            raise Unsuited
        self._add(None, (), Observation(move.note, False, ""), reply)

    def finish(self, thought: str, answer: str) -> None:
        self._turn(thought, f"Finish[{answer}]")
        self.answer = answer

    def run(self) -> Run:
        return Run(
            self.kind,
            self.question,
            self.answer,
            tuple(self.turns),
            self.conversation,
            self.kit.executor,
            tuple(self.replay),
            frozenset(self.kit.stubs),
        )

    # --- questions

    def ask(self, question: str, *names: str) -> None:
        """Set the question, sometimes with politeness, in small letters or with a slip of the finger.

        Args:
            names: what must not be changed.
        """
        rng, style = self.rng, self.rng.random()
        if rng.random() < 0.09:
            polite = rng.choice(phrases.POLITE)
            if polite.endswith((", ", "so ")) and question.startswith(_OPENERS):
                question = question[0].lower() + question[1:]
            question = polite + question
        if rng.random() < 0.05:
            question += rng.choice(phrases.POLITE_AFTER)
        if style < 0.11:
            question = _mistyped(question, names, rng)
        elif style < 0.15 and not question.startswith(names):
            question = question[:1].lower() + question[1:].rstrip("?.")
        elif style < 0.17:
            question = question.rstrip("?") + "??"
        elif style < 0.25 and self.kind not in _CASE_MATTERS:
            question = rng.choice([str.lower, str.lower, str.lower, str.upper])(question)
        self.question = question

    def called(self, what: Subject | str) -> str:
        """A name as the question writes it, with "the" if that stands before it.

        Of a subject it may be a part ("Kepler"), if that is all that stands there and a search for it leads
        to the article; a name that does not stand there is given as it is.
        """
        name = what if isinstance(what, str) else what.name
        if what is self.in_full:
            return name
        words = name.removeprefix("the ").split()
        for count in range(len(words), 0, -1):
            for first in range(len(words) - count + 1):
                part = " ".join(words[first : first + count])
                written = rf"(\bthe )?(?<!\w)({re.escape(part)})(?!\w)"
                found = re.search(written, self.question, re.IGNORECASE)
                if found and (count == len(words) or self._leads(part, what)):
                    return f"the {found[2]}" if found[1] else found[2]
        return name

    def _leads(self, part: str, what: Subject | str) -> bool:
        """Whether a search for a part of a name opens the article of the subject, or lets choose it."""
        if isinstance(what, str) or not self.kit.search or part[0].islower():
            return False
        if (part, what.title) not in self._leading:
            seen = self.kit.executor.execute(self.kit.search, part).text
            chosen_from = " may mean" in seen and what.title in seen
            self._leading[part, what.title] = what.text[:30] in seen or chosen_from
        return self._leading[part, what.title]

    def some_fact(self) -> tuple[Subject, str]:
        """A subject and one of its facts; half of the time the fact is chosen first, so that none is rare."""
        if self.rng.random() < 0.5:
            attribute = self.rng.choice(sorted(set(phrases.ATTRIBUTES) - self._vague))
            return self.world.subject(attribute), attribute
        subject = self.world.subject()
        facts = sorted(subject.facts.keys() - self._vague)
        if not facts:
            raise Unsuited
        return subject, self.rng.choice(facts)

    @property
    def _vague(self) -> set[str]:
        """Facts that are right in several wordings: learnt, but not asked where only one counts."""
        return {"what", "place"} if self.world.held_out else set()

    def wanted(self, subject: Subject, attribute: str) -> str:
        """A fact as an answer tells it: as much of a date as the question asks for."""
        value = subject.facts[attribute]
        only_year = re.search(r"\b(?:year|YEAR)\b", self._asked_first) and re.search(r" \d{4}$", value)
        return value[-4:] if only_year else _short(value, subject)

    def one_of(self, lines: list[str]) -> str:
        """One of the lines for training, or of the held-out ones."""
        return self.rng.choice(chosen(lines, self.world.held_out))

    def worded(self, lines: list[str]) -> str:
        """One of the lines; the first one, which is the plainest, more often than the others."""
        plainest = not self.world.held_out and self.rng.random() < 0.12
        return lines[0] if plainest else self.one_of(lines)

    def compared(self, name: str, **slots: str) -> str:
        """A question of a table of `phrases.COMPARED`."""
        text = fill(self.worded(phrases.COMPARED[name]), slots)
        return text[:1].upper() + text[1:] if self.rng.random() < 0.9 else text

    def pointer(self, kind: str, name: str) -> str:
        """How a question points at something through `name`."""
        return self.one_of(phrases.POINTERS[kind]).replace("{x}", name)

    def phrase(self, attribute: str, name: str) -> str:
        asked = self.worded(phrases.ATTRIBUTES[attribute].asked)
        text = asked.replace("{x}", name)
        self._asked_first = self._asked_first or asked
        return text[:1].upper() + text[1:] if asked[0] in "{W" else text

    # --- steps that several plans share

    def read(self, subject: Subject, attribute: str, thought: str = "") -> str:
        """Search for a subject and, if need be, look a word up; the fact."""
        if not self.kit.search:
            raise Unsuited
        value, plain = subject.facts[attribute], self.called(subject).removeprefix("the ")
        seen = self.act(thought or f"I look up {self.called(subject)}.", self.kit.search, plain)
        if " may mean" in seen and subject.title in seen and subject.title != plain:
            seen = self.act(f"I mean the {_told_apart(subject)}.", self.kit.search, subject.title)
        if value in seen:
            self.look_in_vain(0.1)
        elif self.kit.lookup and not seen.startswith(("I could not", "Could not")):
            seen = self.act(NOT_THERE, self.kit.lookup, phrases.ATTRIBUTES[attribute].word)
        if value not in seen:
            raise Unsuited
        return value

    def look_in_vain(self, share: float) -> None:
        """Now and then, look up some word although all is there: a slip to go on from."""
        words = [
            *_CONTENT_WORD.findall(self.question),
            self.rng.choice(list(phrases.ATTRIBUTES.values())).word,
        ]
        if self.kit.lookup and self.rng.random() < share:
            self.act(NOT_THERE, self.kit.lookup, self.rng.choice(words), learnt=False)

    def says(self, subject: Subject, attribute: str) -> str:
        """The sentence that tells a fact, if it is short enough for a thought."""
        told = subject.told[attribute]
        return told if len(told) < LONGEST else f"The article says {subject.facts[attribute]}."

    def calculate(self, thought: str, expression: str) -> str:
        if not self.kit.calculator:
            raise Unsuited
        result = self.act(thought, self.kit.calculator, expression)
        if result.startswith("Not calculated"):
            raise Unsuited
        return result


def _told_apart(subject: Subject) -> str:
    """What tells a subject from others of its name: the words in brackets behind its title."""
    found = re.search(r"\(([^()]+)\)$", subject.title)
    return found[1] if found else subject.kind


def _mistyped(question: str, names: tuple[str, ...], rng: random.Random) -> str:
    """`question` with one or two slips in its small words."""
    fixed = " ".join(names).casefold()
    starts = tuple(word for word in fixed.split() if len(word) > 2)
    words = question.split(" ")
    places = [
        place
        for place, word in enumerate(words)
        if word.isalpha() and word.islower() and len(word) > 2
        if word not in fixed and not word.startswith(starts)
    ]
    for place in rng.sample(places, min(len(places), rng.randint(1, 3))):
        words[place] = _misspelt(words[place], rng)
    return " ".join(words)


def _misspelt(word: str, rng: random.Random) -> str:
    """`word`, of three letters or more, with a letter lost, doubled, wrong or in the place of the next."""
    at = rng.randrange(1, len(word) - 1)
    return rng.choice(
        [
            word[:at] + word[at + 1 :],
            word[:at] + word[at + 1] + word[at] + word[at + 2 :],
            word[:at] + word[at] + word[at:],
            word[:at] + rng.choice("aeiourstnl") + word[at + 1 :],
        ]
    )


def _fact(script: Script) -> None:
    subject, attribute = script.some_fact()
    script.ask(script.phrase(attribute, subject.name), subject.name)
    script.read(subject, attribute)
    script.finish(script.says(subject, attribute), script.wanted(subject, attribute))


_SUPERLATIVE = (
    r"is the ((?:second |third |fourth )?"
    r"(?:highest|longest|largest|tallest|smallest|deepest|hottest|brightest) [a-z -]+?"
    r"(?:(?:in|of|on) (?:the )?[A-Za-z ]+?)?)(?:,|\.| and| at| with| above|;)"
)


_EXTREMES = [
    f"{word} {thing}"
    for thing, words in {
        "mountain": "highest tallest biggest",
        "river": "longest biggest shortest",
        "lake": "largest deepest biggest",
        "building": "tallest highest oldest",
        "bridge": "longest oldest",
        "city": "largest biggest oldest",
        "university": "oldest largest",
        "island": "largest biggest",
        "tunnel": "longest",
        "airport": "busiest largest",
        "forest": "largest",
        "church": "oldest largest",
    }.items()
    for word in words.split()
]


def _described(script: Script) -> None:
    """What is searched has no name in the question, only a description.

    Not so the highest mountain of a country: the article on the country is looked up for it.
    """
    rng = script.rng
    if rng.random() < 0.35:
        _not_described(script)
        return
    found = [(one, match[1]) for one in script.world.real if (match := re.search(_SUPERLATIVE, one.text))]
    countries = [one.name.removeprefix("the ") for one in script.world.real if one.kind == "country"]
    found = [(one, words) for one, words in found if not any(name in words for name in countries)]
    subject, words = rng.choice(found)
    if not script.kit.search or not script.kit.is_encyclopedia:
        raise Unsuited
    attribute = (
        rng.choice(sorted(set(subject.facts) - {"what", "place"}) or [""]) if rng.random() < 0.5 else ""
    )
    verb = "Who is" if subject.kind == "person" else rng.choice(["What is", "Which is"])
    script.ask(
        script.phrase(attribute, f"the {words}")
        if attribute
        else script.compared("DESCRIBED", verb=verb, words=words),
        words,
    )
    words = script.called(words).removeprefix("the ")
    seen = script.act(f"I look for the {words}.", script.kit.search, words)
    if not seen.startswith(f"{subject.title}:") or (attribute and subject.facts[attribute] not in seen):
        raise Unsuited
    plain = subject.name.removeprefix("the ")
    if attribute:
        script.finish(script.says(subject, attribute), script.wanted(subject, attribute))
    else:
        script.finish(f"It is {subject.name}.", plain)


def _not_described(script: Script) -> None:
    """The highest, longest, ... of a place, where its article does not tell it."""
    if not script.kit.search or not script.kit.is_encyclopedia:
        raise Unsuited
    place = script.world.subject(kind=script.rng.choice(("country", "city")))
    words = script.rng.choice(_EXTREMES)
    _not_told(script, place, script.compared("NOT_THE", words=words, place=place.name), words.split()[-1])


def _sum(script: Script) -> None:
    style = script.rng.random()
    (_list if style < 0.07 else _conversion if style < 0.17 else _sum_of_table)(script)


def _list(script: Script) -> None:
    """The average, the sum, the largest ... of two to seven numbers."""
    rng = script.rng
    kind, asked, unit = script.one_of(phrases.LISTED).split("|")
    count = rng.choice((2, 3, 3, 4, 4, 5, 5, 6, 7))
    highest, decimals = rng.choice((9, 40, 99, 999, 9999)), rng.choice((0, 0, 0, 1, 2))
    numbers = [f"{rng.uniform(1, highest):.{decimals}f}" for _ in range(count)]
    told = f"{', '.join(numbers[:-1])}{rng.choice([' and ', ' and ', ', and ', ', '])}{numbers[-1]}"
    counted = rng.choice([str(count), phrases.NUMBERS[count]])
    given = {
        "average": f"({' + '.join(numbers)}) / {count}",
        "sum": " + ".join(numbers),
        "product": " * ".join(numbers),
        "largest": f"max({', '.join(numbers)})",
        "smallest": f"min({', '.join(numbers)})",
    }[kind]
    _calculated(script, fill(asked, {"list": told, "n": counted}), given, unit, counted)


_UNITS = {
    "time": ("seconds", 60, "minutes/min", 60, "hours/h", 24, "days", 7, "weeks"),
    "length": ("millimetres/mm", 10, "centimetres/cm", 100, "metres/m", 1000, "kilometres/km"),
    "mass": ("milligrams/mg", 1000, "grams/g", 1000, "kilograms/kilos/kg", 1000, "tonnes"),
    "volume": ("millilitres/ml", 1000, "litres/l"),
    "money": ("cents", 100, "euros"),
    "data": ("kilobytes/KB", 1000, "megabytes/MB", 1000, "gigabytes/GB", 1000, "terabytes/TB"),
}
"""Units from small to large, with how many of one make one of the next."""


def _unit_as_asked(unit: str, question: str) -> str:
    """A unit as the question writes it: grams, not g."""
    same = next((one for scale in _UNITS.values() for one in scale[::2] if unit in str(one).split("/")), unit)
    spellings = [unit, *str(same).split("/")]
    return next((one for one in spellings if re.search(rf"\b{re.escape(one)}\b", question)), unit)


def _conversion(script: Script) -> None:
    """A value in another unit: one multiplication or division for each unit on the way."""
    rng = script.rng
    family, _, asked = script.one_of(phrases.CONVERTED).rpartition("|")
    scale = _UNITS[family or rng.choice(["time", "time", *_UNITS])]
    units, factors = scale[::2], [str(factor) for factor in scale[1::2]]
    low = rng.randrange(len(factors))
    high = min(low + rng.choice((1, 1, 1, 2, 2, 3)), len(factors))
    smaller, larger = (rng.choice(str(units[place]).split("/")) for place in (low, high))
    value = rng.choice([str(rng.randint(2, 60)), str(rng.randint(2, 9999)), f"{rng.uniform(1, 90):.1f}"])
    told, small = value, rng.randint(2, 20)
    if rng.random() < 0.12:
        value, told = str(small), phrases.NUMBERS[small]
    elif rng.random() < 0.12:
        value, told = f"{small}.5", f"{rng.choice([str(small), phrases.NUMBERS[small]])} and a half"
    if rng.random() < 0.5:
        given, unit = " * ".join([value, *factors[low:high][::-1]]), smaller
    else:
        given, unit = " / ".join([value, *factors[low:high]]), larger
    slots = {"from": larger, "to": smaller} if unit == smaller else {"from": smaller, "to": larger}
    _calculated(script, fill(asked, {"v": told, **slots}), given, unit, unit, told)


def _sum_of_table(script: Script) -> None:
    rng, words = script.rng, script.words
    line = rng.choice(chosen(phrases.SUMS, script.world.held_out))
    asked, expression, unit = line.split("|")
    for _ in range(20):  # nobody asks for fewer sweets than none
        slots = _numbers(script, asked, expression)
        if not unit or unit.startswith(("degrees", "percent")) or _value(fill(expression, slots)) > 0.17:
            break
    if not unit and rng.random() < 0.12:  # a longer expression
        signs = [
            rng.choice(["+", "-", "*", "/", "×", "**"][: rng.choice((3, 4, 6))])
            for _ in range(rng.randint(2, 3))
        ]
        numbers = [str(words.whole(2, 999)) for _ in range(len(signs) + 1)]
        parts = [
            numbers[0],
            *(
                f"{sign} {one}"
                for sign, one in zip([s if s != "**" else "*" for s in signs], numbers[1:], strict=True)
            ),
        ]
        if rng.random() < 0.5:
            parts[0], parts[1] = f"({parts[0]}", f"{parts[1]})"
        expression = " ".join(parts)
        asked = rng.choice(
            ["What is {}?", "Calculate {}.", "{}", "How much is {}?", "compute {}", "Evaluate {}", "{} = ?"]
        ).format(expression)
    expression = _in_order(expression, asked)
    spoken = dict(slots)
    if unit and rng.random() < 0.25:
        small = {one: phrases.NUMBERS[int(slots[one])] for one in "st" if int(slots[one]) <= 20}
        spoken.update({one: word for one, word in small.items() if f"{{{one}}} " in asked})
    if unit and "{e} " in asked and rng.random() < 0.15:
        whole = rng.randint(1, 20)
        slots["e"], spoken["e"] = f"{whole}.5", f"{phrases.NUMBERS[whole]} and a half"
    given = fill(expression, slots)
    if unit or given not in fill(asked, spoken):
        given = re.sub(r"(?<=\d),(?=\d{3})", "", given)
    _calculated(script, fill(asked, spoken), given, unit, *spoken.values(), expression)


def _numbers(script: Script, asked: str, expression: str) -> dict[str, str]:
    """The slots of a question, filled with numbers."""
    rng, words = script.rng, script.words
    number = [words.whole(2, 99_999) for _ in range(3)]
    grouped = 0 if "}, {" in asked else 0.12  # in a list of numbers, commas part them
    written = [f"{one:,}" if rng.random() < grouped else str(one) for one in number]
    return {
        "a": written[0],
        "b": written[1],
        "c": written[2],
        "s": str(words.whole(2, 99)),
        "t": str(rng.randint(2, 8 if "^" in expression else 20)),
        "p": str(rng.randint(1, 95)),
        "d": f"{words.whole(1, 999)}.{rng.randint(1, 99)}",
        "e": f"{words.whole(1, 99)}.{rng.randint(1, 9)}",
        "name": words.name().split()[0],
    }


def _value(expression: str) -> float:
    return float(calculate(re.sub(r"(?<=\d),(?=\d{3})", "", expression)))


def _calculated(script: Script, question: str, given: str, unit: str, *kept: str) -> None:
    """Ask a question, calculate an expression and finish with its value in a unit."""
    if question[0].islower() and script.rng.random() < 0.5:
        question = question[0].upper() + question[1:]
    unit = _unit_as_asked(unit, question)
    script.ask(question, unit, *kept)
    thought = "I calculate it as it stands." if given in question else f"I {_in_words(given)}."
    result = script.calculate(thought, given)
    answer = f"{result} {unit}".strip()
    script.finish(f"The result is {result}.", answer)


_NUMBER = r"(?:\{\w\}|\d+(?:\.\d+)?)"
_PRODUCT = re.compile(rf"(?<![/^] )(?<![\w.^%]){_NUMBER}(?: \* {_NUMBER})+(?![\w.^%]| \^)")
_SUM = re.compile(rf"(?<![-/*^] )(?<![\w.^%]){_NUMBER}(?: \+ {_NUMBER})+(?![\w.^%]| [*/^])")


def _in_order(expression: str, asked: str) -> str:
    """The same sum with factors and summands in the order of the question, and what it does not name last:
    which of them comes first could not be learnt.

    >>> _in_order("{a} - 7 * {s} * {t}", "{t} days, {s} a day, from {a}: left after a week?")
    '{a} - {t} * {s} * 7'
    """

    def place(number: str) -> float:
        names = [number]
        if number.isdigit() and int(number) < len(phrases.NUMBERS):
            names.append(phrases.NUMBERS[int(number)])
        found = [re.search(rf"(?<![\w.,]){re.escape(name)}(?![\w]|[.,]\d)", asked.lower()) for name in names]
        return min((one.start() for one in found if one), default=math.inf)

    def ordered(run: re.Match[str]) -> str:
        sign = " * " if " * " in run[0] else " + "
        return sign.join(sorted(run[0].split(sign), key=place))

    return _SUM.sub(ordered, _PRODUCT.sub(ordered, expression))


_FIRST = {
    "+": "add {} and {}",
    "-": "take {1} away from {0}",
    "*": "multiply {} by {}",
    "/": "divide {} by {}",
}
_NEXT = {"+": "add {}", "-": "take {} away", "*": "multiply by {}", "/": "divide by {}"}
_AFTER = {"floor": "round down", "ceil": "round up", "sqrt": "take the square root"}


def _in_words(expression: str) -> str:
    """What to do, one thing after the other; the same words for the same sum, so that they can be learnt.

    >>> _in_words("(3 + 4) * 1.5 / 2"), _in_words("20% of 50 + 3 * 4")
    ('add 3 and 4, multiply by 1.5 and divide by 2', 'take 20 percent of 50 and add 3 * 4')
    """
    *before, last = _steps(expression)
    return f"{', '.join(before)} and {last}" if before else last


def _steps(expression: str) -> list[str]:
    """What is done to the running result, from the first operation on; what has no words is calculated."""
    depths = list(itertools.accumulate((sign == "(") - (sign == ")") for sign in expression))
    for signs in ("+-", "*/"):
        for place in range(len(expression) - 2, 0, -1):
            sign = expression[place]
            if sign in signs and not depths[place] and expression[place - 1 : place + 2] == f" {sign} ":
                left, right = expression[: place - 1], expression[place + 2 :]
                before = _steps(left)
                if before == [f"calculate {left}"]:
                    return [_FIRST[sign].format(left, right)]
                return [*before, _NEXT[sign].format(right)]
    if called := re.fullmatch(r"(floor|ceil|sqrt|)\((.+)\)", expression):
        inner = _steps(called[2])
        plain = inner == [f"calculate {called[2]}"]
        if called[1] == "sqrt" and plain:
            return [f"take the square root of {called[2]}"]
        return [*inner, _AFTER[called[1]]] if called[1] and not plain else inner
    if share := re.fullmatch(r"(\S+)% of (.+)", expression):
        return [f"take {share[1]} percent of {share[2]}"]
    if power := re.fullmatch(r"(\S+)\^(\d+)", expression):
        return [f"raise {power[1]} to {power[2]}"]
    return [f"calculate {expression}"]


def _kept(question: str, given: str) -> list[str]:
    """The pieces of a question for a tool that have to be copied: no slip of the finger may get into them."""
    return [
        *re.findall(r': "([^"]+)"', given),
        *re.findall(r'"([^"]+)"', question),
        *re.findall(r"\b[A-Z0-9]\S*", question),
    ]


def _tool(script: Script) -> None:
    if not script.kit.custom:
        raise Unsuited
    tool, make = script.rng.choice(script.kit.custom)
    question, given, result, answer = make()
    script.ask(question, given, *_kept(question, given))
    script.kit.stubs[tool.name].result = result
    script.act(f"{tool.name} can tell this.", tool.name, given)
    script.finish("Now I know the answer.", answer)


def _number(value: str) -> tuple[str, str, str]:
    """A value as the calculator takes it: number, factor word, unit."""
    found = re.fullmatch(r"(-?[\d.,]*\d)(?: (million|billion))?(?: (.*))?", value)
    if not found:
        raise Unsuited
    return found[1].replace(",", ""), found[2] or "", found[3] or ""


_SUPERLATIVES = {
    "height": [("higher", "lower"), ("taller", "smaller")],
    "length": [("longer", "shorter")],
    "depth": [("deeper", "shallower")],
    "area": [("larger", "smaller"), ("bigger", "smaller")],
    "employees": [("larger", "smaller")],
    "diameter": [("larger", "smaller"), ("bigger", "smaller")],
    "born": [("younger", "older")],
    "year": [("newer", "older")],
    "released": [("newer", "older")],
    "founded": [("newer", "older")],
}
"""Words for more and less of a fact."""
_GREATNESS = {
    "melting": ("higher", "lower"),
    "boiling": ("higher", "lower"),
    "density": ("higher", "lower"),
    "number": ("higher", "lower"),
    "distance": ("greater", "smaller"),
    "period": ("longer", "shorter"),
    "employees": ("greater", "smaller"),
}
"""Words for more and less of a fact that is asked for by its noun."""
_FACTORS = {"": "", "million": " * 1000000", "billion": " * 1000000000"}
_DIFFERENCE = {
    "height": ("higher", "taller"),
    "length": ("longer",),
    "depth": ("deeper",),
    "diameter": ("wider", "larger"),
    "area": ("larger", "bigger"),
}
_COUNTED = (
    "height",
    "length",
    "depth",
    "area",
    "population",
    "diameter",
    "melting",
    "boiling",
    "number",
    "employees",
    "density",
)


def _pair(script: Script, attributes: tuple[str, ...]) -> tuple[Subject, Subject, str]:
    world = script.world
    while True:
        attribute = script.rng.choice(attributes)
        first = world.subject(attribute)
        second = world.subject(attribute, kind=first.kind)
        if (
            first.kind == second.kind
            and first.title != second.title
            and first.name != second.name
            and first.facts[attribute] != second.facts[attribute]
        ):
            return first, second, attribute


def _ordered(script: Script, first: Subject, second: Subject) -> tuple[Subject, Subject]:
    """Both in the order in which the question names them: so they are read, and so one calculates."""
    names = [re.escape(script.called(one).removeprefix("the ")) for one in (first, second)]
    found = [re.search(rf"(?<!\w){name}(?!\w)", script.question) for name in names]
    places = [one.start() if one else -1 for one in found]
    return (second, first) if 0 <= places[1] < places[0] else (first, second)


def _both(script: Script, first: Subject, second: Subject, attribute: str) -> tuple[str, str]:
    left = script.read(first, attribute)
    told = f"{left} is {script.called(first)}."
    return left, script.read(second, attribute, f"{told} Now I look up {script.called(second)}.")


def _expression(left: str, right: str) -> tuple[str, str, str]:
    """The difference as an expression, the factor word left out of it, and the unit."""
    (a, a_factor, a_unit), (b, b_factor, b_unit) = _number(left), _number(right)
    if a_unit != b_unit:
        raise Unsuited
    b = f"({b})" if b.startswith("-") else b
    if a_factor == b_factor:
        return f"{a} - {b}", a_factor, a_unit
    return f"{a}{_FACTORS[a_factor]} - {b}{_FACTORS[b_factor]}", "", a_unit


def _difference(script: Script) -> None:
    first, second, attribute = _pair(script, (*_COUNTED, "height", "length"))
    noun, x, y = phrases.ATTRIBUTES[attribute].noun, first.name, second.name
    more = script.rng.choice(_DIFFERENCE.get(attribute, ("",)))
    if more and script.rng.random() < 0.75:
        metres = attribute in ("height", "depth")
        units = "metres" if metres else "square kilometres" if attribute == "area" else "kilometres"
        asked = script.compared("DIFFERENCE_MORE", x=x, y=y, more=more, units=units)
    elif attribute == "population" and script.rng.random() < 0.6:
        asked = script.compared("DIFFERENCE_PEOPLE", x=x, y=y)
    else:
        asked = script.compared("DIFFERENCE", x=x, y=y, noun=noun)
    script.ask(asked, x, y)
    _apart(script, *_both(script, *_ordered(script, first, second), attribute))


def _apart(script: Script, left: str, right: str) -> None:
    """Calculate the difference of two values and finish with it."""
    expression, factor, unit = _expression(left, right)
    result = script.calculate(f"{left} and {right}: I need the difference.", expression)
    answer = " ".join(filter(None, [result.removeprefix("-"), factor, unit]))
    script.finish(f"The difference is {answer}.", answer)


def _together(script: Script) -> None:
    """The sum of two facts, or how often one goes into the other."""
    first, second, attribute = _pair(script, (*_COUNTED, "number", "height"))
    noun, x, y = phrases.ATTRIBUTES[attribute].noun, first.name, second.name
    sign = script.rng.choice("++/")
    plain = {"height": "high", "length": "long", "depth": "deep"}.get(attribute, "large")
    asked = script.compared("TOGETHER" if sign == "+" else "TIMES", x=x, y=y, noun=noun, plain=plain)
    script.ask(asked, x, y)
    pair = _ordered(script, first, second)
    left, right = _both(script, *pair, attribute)
    _joined(script, *((left, right) if sign == "+" or pair[0] is first else (right, left)), sign)


def _joined(script: Script, left: str, right: str, sign: str) -> None:
    """Calculate the sum ("+") of two values, or one divided by the other ("/"), and finish with it."""
    (a, a_factor, unit), (b, b_factor, b_unit) = _number(left), _number(right)
    if unit != b_unit or a_factor != b_factor or (b.startswith("-") and sign == "/"):
        raise Unsuited
    told, wanted = ("the sum", f"{a} + {b}") if sign == "+" else ("to divide them", f"{a} / {b}")
    result = script.calculate(f"{left} and {right}: I need {told}.", wanted)
    answer = " ".join(filter(None, [result, a_factor, unit])) if sign == "+" else result
    script.finish(f"The result is {answer}.", answer)


def _which(script: Script) -> None:
    """Which of two is higher, longer, ...: the larger (or smaller) number tells."""
    counted = (one for one in (*_SUPERLATIVES, *_GREATNESS) if one != "born")
    first, second, attribute = _pair(script, (*counted, "population", "population", "height", "length"))
    x, y, rng = first.name, second.name, script.rng
    more, claimed = rng.random() < 0.7, rng.random() < 0.45
    table, noun = "", phrases.ATTRIBUTES[attribute].noun
    if attribute == "population":
        table, word = "_PEOPLE", "more" if more else "fewer"
    elif attribute in _GREATNESS:
        table, word = "_NOUN", _GREATNESS[attribute][0 if more else 1]
    else:
        word = rng.choice(_SUPERLATIVES[attribute])[0 if more else 1]
    table = f"{'IS_COMPARED' if claimed else 'WHICH'}{table}"
    asked = script.compared(table, x=x, y=y, word=word, noun=noun, kind=_kind(first))
    if attribute == "area" and rng.random() < 0.4:
        asked = asked.replace(f"{word} than", f"{word} in area than")
    script.ask(asked, x, y)
    pair = _ordered(script, first, second)
    values = _both(script, *pair, attribute)
    if claimed:
        _judge(script, pair, values, more == (pair[0] is first))
        return
    found, wanted = _compare(script, pair, values, more)
    _found(script, found, wanted)


def _found(script: Script, value: str, subject: Subject) -> None:
    """Finish with the one of two whose value was looked for."""
    name = script.called(subject)
    script.finish(f"{value} is {name}.", name.removeprefix("the "))


def _judge(script: Script, subjects: tuple[Subject, Subject], values: tuple[str, str], more: bool) -> None:
    """Let the calculator say whether the first value is more (or less) than the second: yes or no."""
    (left, right), pairs = _sides(script, subjects, values)
    asked = f"Is {values[0]} {'more' if more else 'less'} than {values[1]}?"
    _answer(script, script.calculate(f"{pairs} {asked}", f"{left} {'>' if more else '<'} {right}"))


def _answer(script: Script, result: str) -> None:
    """Yes for what the calculator says is true, no for what is false."""
    script.finish(f"That is {result}.", "Yes" if result == "true" else "No")


def _kind(subject: Subject) -> str:
    """What a question calls subjects of this kind."""
    return {"space": "planet", "language": "programming language"}.get(subject.kind, subject.kind)


def _compare(
    script: Script, subjects: tuple[Subject, Subject], values: tuple[str, str], larger: bool
) -> tuple[str, Subject]:
    """Let the calculator find the larger (or smaller) of two values; gives it and whose it is."""
    numbers, pairs = _sides(script, subjects, values)
    script.calculate(
        f"{pairs} I need the {'larger' if larger else 'smaller'} one.",
        f"{'max' if larger else 'min'}({numbers[0]}, {numbers[1]})",
    )
    place = (calculate(f"{numbers[1]} > {numbers[0]}") == "true") == larger
    return values[place], subjects[place]


def _sides(
    script: Script, subjects: tuple[Subject, Subject], values: tuple[str, str]
) -> tuple[list[str], str]:
    """Two values as the calculator takes them, and told with their subjects."""
    parts = [_number(value) for value in values]
    if parts[0][2] != parts[1][2]:
        raise Unsuited
    same = parts[0][1] == parts[1][1]
    numbers = [number if same else f"{number}{_FACTORS[factor]}" for number, factor, _ in parts]
    if calculate(f"{numbers[0]} - ({numbers[1]})") == "0":
        raise Unsuited
    pairs = [f"{one} is {script.called(whose)}" for one, whose in zip(values, subjects, strict=True)]
    return numbers, f"{', '.join(pairs)}."


def _year(date: str) -> str:
    return date[-4:]


def _as_digits(date: str) -> str:
    day, month, year = date.split()
    return f"{year}{phrases.MONTHS.index(month) + 1:02}{int(day):02}"


def _older(script: Script) -> None:
    first, second, _ = _pair(script, ("born",))
    x, y, rng = first.name, second.name, script.rng
    if _year(first.facts["born"]) == _year(second.facts["born"]):
        raise Unsuited
    earlier = rng.random() < 0.6
    claimed, when = rng.random() < 0.3, "before" if earlier else "after"
    asked = script.compared("OLDER" if earlier else "YOUNGER", x=x, y=y)
    if claimed:
        asked = script.compared("IS_COMPARED_BORN", x=x, y=y, when=when)
    script.ask(asked, x, y)
    pair = _ordered(script, first, second)
    left, right = map(_year, _both(script, *pair, "born"))
    if claimed:
        _judge(script, pair, (left, right), earlier != (pair[0] is first))
        return
    found, wanted = _compare(script, pair, (left, right), not earlier)
    _found(script, found, wanted)


def _age(script: Script) -> None:
    subject = script.world.subject("born", "died")
    script.ask(script.compared("AGE", x=subject.name), subject.name)
    _age_of(script, subject, f"I look up {script.called(subject)}.")


def _age_of(script: Script, subject: Subject, thought: str) -> None:
    """Read both dates of a person and calculate the age at death."""
    born, died = script.read(subject, "born", thought), subject.facts["died"]
    if died not in script._history:
        raise Unsuited
    _years_old(script, born, died, f"Born on {born}, died on {died}: I calculate the age.")


def _years_old(script: Script, born: str, then: str, thought: str) -> None:
    """Calculate the age on a day and finish with it."""
    if _as_digits(born) >= _as_digits(then):
        raise Unsuited
    result = script.calculate(thought, f"floor(({_as_digits(then)} - {_as_digits(born)}) / 10000)")
    script.finish(f"The age is {result} years.", f"{result} years")


def _span(script: Script) -> None:
    """Years between two facts, or between a fact and a year in the question."""
    rng = script.rng
    if rng.random() < 0.5:
        subject = script.world.subject(rng.choice(["year", "released", "founded", "born"]))
        dated = ["year", "released", "founded", "born"]
        attribute = rng.choice([one for one in dated if one in subject.facts])
        year = int(_year(subject.facts[attribute]))
        later = year + rng.randint(3, 150)
        verb = {"year": "published", "released": "released", "founded": "founded", "born": "born"}[attribute]
        x = subject.name
        table = "SPAN_AGE_IN" if attribute == "born" and rng.random() < 0.5 else "SPAN_TO_YEAR"
        script.ask(script.compared(table, x=x, verb=verb, later=str(later)), x, str(later))
        value = script.read(subject, attribute)
        _years_apart(script, str(later), value)
        return
    first, second, attribute = _pair(script, ("year", "released", "born", "founded"))
    x, y = first.name, second.name
    beginning = {"year": "publication", "founded": "foundation"}.get(attribute, "beginning")
    table = "SPAN_BIRTHS" if attribute == "born" else "SPAN_THINGS"
    script.ask(script.compared(table, x=x, y=y, beginning=beginning), x, y)
    _years_apart(script, *_both(script, *_ordered(script, first, second), attribute))


def _years_apart(script: Script, left: str, right: str) -> None:
    """Calculate the years between two dates and finish with them."""
    if _year(left) == _year(right):
        raise Unsuited
    result = script.calculate(
        f"{_year(left)} and {_year(right)}: I need the difference.", f"{_year(left)} - {_year(right)}"
    ).removeprefix("-")
    script.finish(f"The difference is {result} years.", f"{result} years")


_ABOUT = {
    "person": ("born", "died", "birthplace"),
    "city": ("population",),
    "country": ("capital", "population", "currency", "language", "area"),
}
"""What a question of two hops asks about what it points at."""
_HOPS = {
    "capital": "city",
    "author": "person",
    "designer": "person",
    "discovered": "person",
    "architect": "person",
    "inventor": "person",
    "country": "country",
    "capital of": "country",
}
"""A fact whose value is a subject itself, and its kind."""


def _two_hops(script: Script) -> None:
    rng, world = script.rng, script.world
    by_name = {one.title: one for one in world.subjects}
    link = rng.choice([*sorted(_HOPS), "capital of", "author"])
    wanted = _ABOUT[_HOPS[link]]
    pairs = [
        (one, by_name[one.facts[link].removeprefix("the ")])
        for one in world.subjects
        if one.facts.get(link, "").removeprefix("the ") in by_name
    ]
    pairs = [(one, two) for one, two in pairs if set(wanted) & two.facts.keys()]
    if not pairs:
        raise Unsuited
    first, second = rng.choice(pairs)
    spoken, script.in_full = script.pointer(link, first.name), second

    def begin() -> str:
        script.read(first, link)
        return f"{script.says(first, link)} Now I look up {script.called(second)}."

    read = [pair for pair in second.reading if not pair[1].startswith("-")]
    read = [pair for pair in read if re.search(rf"(?<!and ){re.escape(second.name)}(?!['’\\w])", pair[0])]
    if read and rng.random() < 0.4:
        question, answer = rng.choice(read)
        script.ask(question.replace(second.name, spoken), first.name, answer)
        if bare_of(answer).casefold() in script.question.casefold():
            raise Unsuited
        _told(script, second, answer, begin())
        return
    if {"born", "died"} <= second.facts.keys() and rng.random() < 0.2:
        script.ask(script.compared("AGE", x=spoken), first.name)
        _age_of(script, second, begin())
        return
    told = {"capital"} if link == "capital of" else {"capital of"}
    attribute = rng.choice(sorted((set(wanted) & second.facts.keys()) - told) or ["none"])
    if attribute == "none":
        raise Unsuited
    if link == "capital of" and rng.random() < 0.3:
        there = rng.choice(["that country", "the country", "this country"])
        spoken = f"the country whose capital is {first.name}"
        asked = script.compared("HOP_ASIDE", x=first.name, asked=script.phrase(attribute, there))
    else:
        asked = script.phrase(attribute, spoken)
    script.ask(asked, first.name)
    script.read(second, attribute, begin())
    script.finish(script.says(second, attribute), script.wanted(second, attribute))


def _with_factor(script: Script) -> None:
    """A fact and a calculation with it."""
    rng = script.rng
    attribute = rng.choice(["height", "length", "depth", "diameter", "number", "employees", "height"])
    subject = script.world.subject(attribute)
    noun, x, n = phrases.ATTRIBUTES[attribute].noun, subject.name, rng.randint(2, 99)
    asked, pattern = script.one_of(phrases.FACTOR).split("|")
    slots = {"n": str(n), "noun": noun, "x": x}
    script.ask(fill(asked, slots), x)
    value = script.read(subject, attribute)
    number, factor, unit = _number(value)
    if factor:
        raise Unsuited
    expression = fill(pattern, {**slots, "v": number})
    told = f"{value} is {script.called(subject)}."
    result = script.calculate(f"{told} I {_in_words(expression)}.", expression)
    script.finish(f"The result is {result}.", f"{result} {unit if '^' not in pattern else ''}".strip())


def _yes_no(script: Script) -> None:
    rng = script.rng
    if rng.random() < 0.5:
        attribute = rng.choice(["height", "length", "diameter", "depth"])
        subject = script.world.subject(attribute)
        number, _, unit = _number(subject.facts[attribute])
        limit = str(
            max(2, round(float(number) * rng.uniform(0.4, 1.8), -1 if float(number) > 100 else 0))
        ).removesuffix(".0")
        if float(limit) == float(number):
            raise Unsuited
        word, plain = {
            "height": ("higher", "high"),
            "length": ("longer", "long"),
            "diameter": ("wider", "wide"),
            "depth": ("deeper", "deep"),
        }[attribute]
        noun = phrases.ATTRIBUTES[attribute].noun
        less = rng.random() < 0.25
        unit_asked = rng.choice([unit, {"m": "metres", "km": "kilometres"}.get(unit, unit)])
        slots = {"x": subject.name, "word": word, "plain": plain, "noun": noun, "unit": unit_asked}
        limit_asked = f"{int(limit):,}" if rng.random() < 0.4 and limit.isdigit() else limit
        script.ask(
            script.compared("IS_LESS" if less else "IS_MORE", limit=limit_asked, **slots),
            subject.name,
            limit_asked,
        )
        value = script.read(subject, attribute)
        number = _number(value)[0]
        thought = f"{script.says(subject, attribute)} Is {number} {'less' if less else 'more'} than {limit}?"
        _answer(script, script.calculate(thought, f"{number} {'<' if less else '>'} {limit}"))
        return
    attribute = rng.choice(
        [
            "capital",
            "author",
            "currency",
            "symbol",
            "birthplace",
            "designer",
            "language",
            "country",
            "founder",
        ]
    )
    subject = script.world.subject(attribute)
    right = rng.random() < 0.5
    value = subject.facts[attribute]
    claim = value if right else script.world.subject(attribute).facts[attribute]
    right = claim == value
    asked = {
        "author": f"Did {claim} write {subject.name}?",
        "birthplace": f"Was {subject.name} born in {claim}?",
        "designer": f"Did {claim} design {subject.name}?",
        "country": f"Is {subject.name} in {claim}?",
        "founder": f"Did {claim} found {subject.name}?",
    }.get(attribute, "")
    noun = phrases.ATTRIBUTES[attribute].noun
    asked = asked or rng.choice(
        [f"Is {claim} the {noun} of {subject.name}?", f"Is the {noun} of {subject.name} {claim}?"]
    )
    script.ask(asked, subject.name, claim)
    script.read(subject, attribute)
    script.finish(
        f"{script.says(subject, attribute)} {'As asked.' if right else f'Not {claim}.'}",
        "Yes" if right else "No",
    )


def _two_intents(script: Script) -> None:
    rng = script.rng
    first, attribute = script.some_fact()
    asked = script.phrase(attribute, first.name).rstrip("?.")
    if rng.random() < 0.5:
        a, b, sign = script.words.whole(2, 999), script.words.whole(2, 999), rng.choice("+-*")
        joint = fill(script.one_of(phrases.JOINT), {"sum": f"{a} {sign} {b}"})
        script.ask(f"{asked}{joint}", first.name)
        script.read(first, attribute)
        value = script.wanted(first, attribute)
        result = script.calculate(f"I have {value}. Now I calculate {a} {sign} {b}.", f"{a} {sign} {b}")
        script.finish(f"I have both: {value} and {result}.", f"{value} and {result}")
        return
    if rng.random() < 0.5 and len(first.facts) > 1:
        others = sorted(first.facts.keys() - script._vague - {attribute})
        if not others:
            raise Unsuited
        other = rng.choice(others)
        nouns = [phrases.ATTRIBUTES[one].noun for one in (attribute, other)]
        script.ask(script.compared("BOTH", noun=nouns[0], noun2=nouns[1], x=first.name), first.name)
        script.read(first, attribute)
        if first.facts[other] not in script._history:
            raise Unsuited
        value, more = script.wanted(first, attribute), script.wanted(first, other)
        script.finish(f"I have both: {value} and {more}.", f"{value} and {more}")
        return
    second, other = script.some_fact()
    if second.name == first.name:
        raise Unsuited
    script._asked_first = "-"  # two facts are told in full
    script.ask(
        f"{asked}{rng.choice([', and ', ' and ', '? And ', '? Also, '])}{script.phrase(other, second.name)}",
        first.name,
        second.name,
    )
    script.read(first, attribute)
    value = script.wanted(first, attribute)
    script.read(second, other, f"I have {value}. Now I look up {script.called(second)}.")
    more = script.wanted(second, other)
    script.finish(f"I have both: {value} and {more}.", f"{value} and {more}")


def _missing(script: Script) -> None:
    """The article is there, the fact is not."""
    if not script.kit.search:
        raise Unsuited
    subject, rng = script.world.subject(), script.rng
    if rng.random() < 0.4 and not script.world.held_out:
        absent = [one for one in phrases.ATTRIBUTES if one not in subject.facts and one != "country"]
        fitting = [one for one in absent if one in usual_facts(subject.kind)]
        attribute = rng.choice(fitting if fitting and rng.random() < 0.7 else absent)
        asked = script.phrase(attribute, subject.name)
        _not_told(script, subject, asked, _asked_word(subject, asked, phrases.ATTRIBUTES[attribute].word))
        return
    alike = {"planet": "space", "programming language": "language", "lake": "place"}
    kind = alike.get(subject.kind, subject.kind)
    lines = [one for one in phrases.MISSING if one.removeprefix("~").startswith(f"{kind}/")]
    if not lines or rng.random() < 0.3:
        lines = [one for one in phrases.MISSING if "/" not in one.partition("|")[0]]
    word, asked = script.one_of(lines).split("|")
    asked = asked.replace("{x}", subject.name)
    _not_told(script, subject, asked, _asked_word(subject, asked, word.rpartition("/")[2]))


def _asked_word(subject: Subject, asked: str, word: str) -> str:
    """The word to look up for a question: the chosen one, if it stands there, or the longest that does."""
    told = f"{subject.name} {subject.text}".casefold()
    others = (one for one in _CONTENT_WORD.findall(asked) if one not in told)
    return word if word.casefold() in asked.casefold() else max(others, key=len, default=word)


def _not_told(script: Script, subject: Subject, asked: str, word: str) -> None:
    """Search, look the word up where one can, and give up."""
    if word.casefold() in subject.text.casefold():
        raise Unsuited
    script.ask(asked, subject.name, word)
    name = script.called(subject)
    seen = script.act(f"I look up {name}.", script.kit.search, name.removeprefix("the "))
    if " may mean" in seen or subject.text[:30] not in seen:
        raise Unsuited
    if script.kit.lookup and "is not on the page" not in script.act(NOT_THERE, script.kit.lookup, word):
        raise Unsuited
    script.finish("The article does not tell this.", NOT_FOUND)


def _reading(script: Script) -> None:
    """A question written for one of the shipped articles, on what it tells or on what it does not."""
    if not script.kit.search:
        raise Unsuited
    pool = [one for one in script.world.real if one.reading]
    subject = script.rng.choice(pool)
    question, answer = script.rng.choice(subject.reading)
    if answer.startswith("-"):
        _not_told(script, subject, question, _asked_word(subject, question, answer[1:]))
        return
    script.ask(question, subject.name, answer)
    _told(script, subject, answer, f"I look up {script.called(subject)}.")


def _two_facts(script: Script) -> None:
    """A question written for two facts of shipped articles: one leads to the other, or both are needed."""
    titles = {one.title: one for one in script.world.real}
    line = script.rng.choice(chosen(phrases.TWO_FACTS, script.world.held_out))
    kind, first_title, second_title, question, left, right = line.split(" | ")
    first, second = titles[first_title], titles[second_title]
    left, right = first.as_here(left), second.as_here(right)
    if first.text.count(left) != 1 or second.text.count(right) != 1:
        raise Unsuited
    script.ask(first.as_here(question), first.name, *[second.name] if kind != "hop" else [], right)
    script.in_full = second if kind == "hop" and second is not first else None
    expression = (left, right)
    if kind not in ("hop", "both", "age") and _ordered(script, first, second)[0] is not first:
        first, second, left, right = second, first, right, left
        kind = {"more": "less", "less": "more"}.get(kind, kind)
    sentence = _opened(script, first, left, f"I look up {script.called(first)}.")
    if kind == "hop":
        _told(script, second, right, f"{sentence} Now I look up {script.called(second)}.")
        return
    if second is not first:
        said = f"{left} is {script.called(first)}" if kind not in ("age", "both") else f"I have {left}"
        _opened(script, second, right, f"{said}. Now I look up {script.called(second)}.")
    if kind == "both":
        left, right = _short(left, first), _short(right, second)
        script.finish(f"I have both: {left} and {right}.", f"{left} and {right}")
    elif kind == "age":
        then = "died on" if right == first.facts.get("died") else "then it was"
        _years_old(script, left, right, f"Born on {left}, {then} {right}: I calculate the age.")
    elif kind == "years":
        _years_apart(script, left, right)
    elif kind == "diff":
        _apart(script, left, right)
    elif kind == "sum":
        _joined(script, left, right, "+")
    elif kind == "times":
        _joined(script, *expression, "/")
    else:
        dates = [re.fullmatch(r"(?:.* )?(\d{4})", value) for value in (left, right)]
        values = (dates[0][1], dates[1][1]) if dates[0] and dates[1] else (left, right)
        if kind in ("more", "less"):
            _judge(script, (first, second), values, kind == "more")
            return
        found, wanted = _compare(script, (first, second), values, kind == "larger")
        _found(script, found, wanted)


def _told(script: Script, subject: Subject, answer: str, thought: str) -> None:
    """Open an article and finish with what a sentence of it says."""
    within = re.search("{(.+)}", answer)
    said = within[1] if within else _short(answer, subject)
    script.finish(_opened(script, subject, bare_of(answer), thought), said)


def _opened(script: Script, subject: Subject, answer: str, thought: str) -> str:
    """Open an article; the sentence of it that tells `answer`, if it is short enough for a thought."""
    plain = script.called(subject).removeprefix("the ")
    if not script.kit.search:
        raise Unsuited
    seen = script.act(thought, script.kit.search, plain)
    if " may mean" in seen and subject.title in seen and subject.title != plain:
        seen = script.act(f"I mean the {_told_apart(subject)}.", script.kit.search, subject.title)
    if answer not in seen:
        raise Unsuited
    script.look_in_vain(0.25)
    return _said(subject, answer)


def _said(subject: Subject, answer: str) -> str:
    """The sentence of an article that tells `answer`, if it is short enough for a thought."""
    sentence = next(one for one in sentences(subject.text) if answer in one)
    return sentence if len(sentence) < LONGEST else f"The article says {_short(answer, subject)}."


_MEASURES = "km²|km|m|cm|°C|g/cm³|percent|degrees|days|years|minutes|seconds|hours|tonnes|kg|light-years"


def _short(answer: str, subject: Subject) -> str:
    """An answer from an article, cut as all are: no article and no "about" before it, but "more than", and a
    unit of measure behind a number.
    """
    # A title has its "The" in mid-sentence, too.
    titled = answer == subject.title or re.search(rf"[\w,;] {re.escape(answer)}", subject.text)
    part = "(?! (?:half|third|quarter|fifth|eighth|tenth|few))"
    small = f"(?:{'the' if titled else '[Tt]he'}|[Aa]n?{part}|[Aa]bout)"
    bare = re.sub(rf"^(?:{small} )+(?=\S)", "", answer)
    if re.fullmatch(r"[\d.,]+(?: million| billion)?", bare):
        measured = re.search(rf"(?<![\w.,]){re.escape(bare)} (?:{_MEASURES})(?!\w)", subject.text)
        bare = measured[0] if measured else bare
    bound = re.search(rf"\b((?:more|less|fewer) than|over|almost|nearly) {re.escape(bare)}", subject.text)
    return f"{bound[1]} {bare}" if bound else bare


def _mentioned(script: Script) -> None:
    """A question on what has no article of its own: another one mentions it, and tells the answer or not."""
    if not script.kit.is_encyclopedia:
        raise Unsuited
    title, searched, question, answer = script.one_of(phrases.MENTIONED).split(" | ")
    subject = next(one for one in script.world.real if one.title == title)
    question, answer = subject.as_here(question), subject.as_here(answer)
    script.ask(question, searched, answer if answer != "-" else _asked_word(subject, question, "-"))
    searched = script.called(searched)
    seen = script.act(f"I look up {searched}.", script.kit.search, searched.removeprefix("the "))
    before, _, mention = seen.partition(f' Mentioned in {title}: "')
    if not mention or (answer != "-" and subject.text.count(answer) != 1):
        raise Unsuited
    if answer in re.split(" Mentioned in | Similar: ", mention)[0] and answer != "-":
        script.finish(_said(subject, answer), _short(answer, subject))
        return
    if " Mentioned in " in before:
        raise Unsuited
    if answer in (title, subject.name.removeprefix("the ")):
        script.finish(f"That is {subject.name}.", answer)
        return
    seen = script.act(f"The article on {title} may tell it.", script.kit.search, title)
    if subject.text not in seen:
        raise Unsuited
    if answer == "-":
        word = _asked_word(subject, question, "-")
        if script.kit.lookup and (word == "-" or word in subject.text.casefold()):
            raise Unsuited
        if script.kit.lookup:
            script.act(NOT_THERE, script.kit.lookup, word)
        script.finish("The article does not tell this.", NOT_FOUND)
    else:
        script.finish(_said(subject, answer), _short(answer, subject))


def _unknown(script: Script) -> None:
    """There is no such article; or its name was mistyped, and the right one is among the similar ones."""
    if not script.kit.search:
        raise Unsuited
    rng = script.rng
    if rng.random() < 0.5:
        kind = rng.choice(sorted(phrases.KINDS))
        name, attribute = script.words.title(kind), rng.choice(phrases.KINDS[kind])
        script.ask(script.phrase(attribute, name), name)
        name = script.called(name)
        seen = script.act(f"I look up {name}.", script.kit.search, name.removeprefix("the "))
        if "ould not find" not in seen and "No results" not in seen:
            raise Unsuited
        script.finish(f"There is no article on {name}.", NOT_FOUND)
        return
    subject, attribute = script.some_fact()
    plain = subject.name.removeprefix("the ")
    if len(plain) < 4:
        raise Unsuited
    wrong = _misspelt(plain, rng)
    if rng.random() < 0.4:
        wrong = wrong.lower()
    read = [pair for pair in subject.reading if plain in pair[0] and not pair[1].startswith("-")]
    question, answer = rng.choice(read) if read and rng.random() < 0.6 else ("", "")
    script.in_full = subject
    script.ask(question.replace(plain, wrong) or script.phrase(attribute, wrong), wrong, answer)
    wrong = script.called(wrong)
    thought, wrong = f"I look up {wrong}.", wrong.removeprefix("the ")
    seen = script.act(thought, script.kit.search, wrong)
    if "could not find" not in seen or subject.title not in seen or wrong == plain:
        raise Unsuited
    if " Did you mean " in seen and f" Did you mean {subject.title}?" not in seen:
        raise Unsuited
    if question:
        _told(script, subject, answer, f"{subject.title} must be meant.")
        return
    script.read(subject, attribute, f"{subject.title} must be meant.")
    script.finish(script.says(subject, attribute), script.wanted(subject, attribute))


def _knows_more(kit: Kit) -> bool:
    """Whether a tool may know what is in no encyclopedia: the user's notes, say, or the web."""
    if kit.search and not kit.is_encyclopedia:
        return True
    described = " ".join(f"{tool.name} {tool.description}" for tool, _ in kit.custom)
    own = r"\b(my|our|search\w*|find\w*|notes?|documents?|diary|mails?)\b"
    return bool(re.search(own, described, re.IGNORECASE))


def _out_of_reach(script: Script) -> None:
    if _knows_more(script.kit):
        raise Unsuited
    question = script.rng.choice(chosen(phrases.OUT_OF_REACH, script.world.held_out))
    script.ask(question)
    script.finish("No tool can tell this.", NOT_FOUND)


def _unfitting(script: Script) -> None:
    """A question for a tool that is not there."""
    if script.kit.search or _knows_more(script.kit):
        raise Unsuited
    try:
        tool, make, _ = custom_tool(script.world)
    except ToolError as error:
        raise Unsuited from error
    if tool.name in script.kit.executor.names:
        raise Unsuited
    described = script.kit.executor.describe().casefold()
    question = make()[0]
    rare = [
        word
        for word in re.findall("[a-z]{5,}", question.casefold())
        if word not in ("which", "please", "there", "where")
    ]
    if any(word in described for word in rare):
        raise Unsuited
    script.ask(question)
    script.finish("No tool can tell this.", NOT_FOUND)


def _talk(script: Script) -> None:
    if script.rng.random() < 0.5:
        question, answer = script.rng.choice(chosen(phrases.SMALL_TALK, script.world.held_out)).split("|")
        script.question = question
        script.finish("No tool is needed.", answer)
        return
    said, answered, question, answer = script.rng.choice(
        chosen(phrases.TALK_BEFORE, script.world.held_out)
    ).split("|")
    slots = {**script.words.slots(), "name": script.rng.choice([*phrases.FIRST, script.words.made()])}
    more = (("What is 6 * 7?", "42"),) if script.rng.random() < 0.4 else ()
    if script.rng.random() < 0.35:
        script.question = fill(said, slots)
        script.finish("No tool is needed.", fill(answered, slots))
        return
    script.conversation = ((fill(said, slots), fill(answered, slots)), *more)
    script.question = fill(question, slots)
    script.finish("The user told me before.", fill(answer, slots))


def _follow_up(script: Script) -> None:
    """ "And of K2?" after a question on another mountain."""
    first, second, attribute = _pair(
        script, ("height", "length", "capital", "population", "born", "author", "symbol", "released")
    )
    asked = script.phrase(attribute, first.name)
    script.conversation = ((asked, script.wanted(first, attribute)),)
    script.ask(script.one_of(phrases.COMPARED["FOLLOW_UP"]).replace("{y}", second.name), second.name)
    script.read(second, attribute)
    script.finish(script.says(second, attribute), script.wanted(second, attribute))


def _failing(script: Script) -> None:
    """A tool that fails at first, or for good."""
    if not script.kit.custom:
        raise Unsuited
    tool, make = script.rng.choice(script.kit.custom)
    question, given, result, answer = make()
    script.ask(question, given, *_kept(question, given))
    stub = script.kit.stubs[tool.name]
    stub.result = script.rng.choice(
        [
            ConnectionError("no connection"),
            TimeoutError("no result within 60 seconds"),
            RuntimeError("service busy"),
            KeyError(given),
            ValueError("not found"),
        ]
    )
    thought = f"{tool.name} can tell this."
    script.act(thought, tool.name, given)
    if isinstance(stub.result, TimeoutError) or script.rng.random() < 0.3:
        stub.result = result
        script.act("It failed; I try once more.", tool.name, given)
        script.finish("Now I know the answer.", answer)
    else:
        script.act("It failed; I try once more.", tool.name, given)
        script.finish("It failed again.", NOT_FOUND)


def _after_a_slip(script: Script) -> None:
    """A reply that could not be read, or a call with a wrong input, stands in the history."""
    rng, names = script.rng, script.kit.executor.names
    style = rng.random()
    if style < 0.7:
        plain = rng.choice([_fact, _sum, _tool])
        ask, reply = (
            script.ask,
            rng.choice(
                [
                    "I will look this up.",
                    "The answer is in the article.",
                    "Thought: I need to find this.",
                    f"Action: {rng.choice(names)}[",
                    "Action: Google[x]",
                    "Action: Browse[it]",
                    "Thought: I think.\nAction: Finish[]",
                    f"Thought: ok\nAction: {rng.choice(names)}",
                    "Thought: Let me see.\nAction: Ask the user for more",
                ]
            ),
        )

        def ask_and_slip(question: str, *kept: str) -> None:
            ask(question, *kept)
            script.slip(reply)

        script.ask = ask_and_slip  # type: ignore[method-assign]
        plain(script)
        return
    if not script.kit.calculator:
        raise Unsuited
    a, b = script.words.whole(2, 9999), script.words.whole(2, 999)
    script.ask(f"What is {a} plus {b}?", str(a), str(b))
    script.act(
        "I need to calculate.",
        script.kit.calculator,
        rng.choice([f"{a} plus {b}", f"what is {a} + {b}", f"{a} and {b}"]),
        learnt=False,
    )
    result = script.calculate("The input must be an expression.", f"{a} + {b}")
    script.finish(f"The result is {result}.", result)


PLANS: dict[str, tuple[Callable[[Script], None], float]] = {
    "fact": (_fact, 22),
    "reading": (_reading, 76),
    "two facts": (_two_facts, 50),
    "mentioned": (_mentioned, 44),
    "sum": (_sum, 80),
    "tool": (_tool, 84),
    "difference": (_difference, 11),
    "together": (_together, 6),
    "which": (_which, 20),
    "older": (_older, 7),
    "age": (_age, 9),
    "span": (_span, 5),
    "two hops": (_two_hops, 20),
    "with factor": (_with_factor, 6),
    "yes or no": (_yes_no, 8),
    "two intents": (_two_intents, 9),
    "described": (_described, 8),
    "missing": (_missing, 18),
    "unknown": (_unknown, 16),
    "out of reach": (_out_of_reach, 6),
    "unfitting": (_unfitting, 4),
    "talk": (_talk, 3),
    "follow-up": (_follow_up, 3),
    "failing": (_failing, 2),
    "after a slip": (_after_a_slip, 3),
}
"""The kinds of questions: how each is played, and how often."""
