"""What synthetic questions are about: the articles of the shipped encyclopedia, and invented ones.

The facts of real articles are found by patterns, after their numbers were changed at random, so that they
have to be read and can't be learnt by heart. Invented articles are put together from the sentences of
`phrases.txt`.
"""

from __future__ import annotations

import json
import random
import re
import shutil
import tempfile
import weakref
from dataclasses import dataclass, field, replace
from pathlib import Path

from ...toolbox import encyclopedia
from ...toolbox.page import sentences
from . import phrases


@dataclass(frozen=True)
class Subject:
    """Something that a passage is about."""

    title: str
    kind: str
    facts: dict[str, str]
    text: str
    told: dict[str, str] = field(default_factory=dict)
    """The sentence of the text that tells each fact."""
    reading: tuple[tuple[str, str], ...] = ()
    """Questions on this article from `phrases.READING`, with their answers."""
    changes: dict[str, str] = field(default_factory=dict)
    """Numbers of the shipped article, and what stands in their place here."""

    def as_here(self, text: str) -> str:
        """Words about the shipped article, with the numbers that it has here."""
        return _NUMBER.sub(lambda match: self.changes.get(match[0], match[0]), text)

    @property
    def name(self) -> str:
        """What a question calls it."""
        bare = re.sub(r"\s*\([^()]*\)$", "", self.title)
        return f"the {bare}" if self.text.startswith(f"The {bare} ") and not bare.startswith("The ") else bare


# --- facts


_DAY = r"\d{1,2} [A-Z][a-z]+ \d{4}"
_WORD = r"(?:[A-Z]\.|[A-ZÀ-ÞŁŚŽ][\w'-]+)"
_NAME = rf"{_WORD}(?: (?:de |van |von |da )?{_WORD}){{1,3}}"
_NAMES = rf"{_NAME}(?:(?:, {_NAME}){{0,3}} and {_NAME})?"
_PLACE = rf"{_WORD}(?: (?:(?:de|der|la|am|upon) ){{0,2}}{_WORD}){{0,2}}"
_BORN = r"^[^,]+, (?:born|baptised) "  # not of two people
_MADE = "made|received|applied|tested|showed|built|sent|ran|presented|gave|pulled|designed it"
_INVENTED = "invented|patented|discovered|proposed|introduced|finished"
_AMOUNT = r"[\d.,]*\d(?: million| billion)?"
_IN_YEAR = r"(?:on \d+ \w+ |in [A-Z]\w+ |in )(\d{4})"
_REAL_FACTS = {
    "height": r"([\d.,]+ m) (?:high|tall)(?! when new)|(?:mountain|volcano)\b[^.]*, ([\d,]+ m) above the sea",
    "length": r"([\d.,]+ km) long|a length of ([\d.,]+ km)",
    "capital": r"its capital is ([^,;]+(?:, D\.C\.)?)[,;]",
    "area": rf"(?:area (?:[\w ]+ )?is|of|covers|,) about ({_AMOUNT} km²)",
    "population": rf"population (?:was|is|of) (?:estimated at )?(?:about |more than )?({_AMOUNT})",
    "language": r"([A-Z][a-z]+) is the (?:official language|main language|language in use)"
    r"|((?:[A-Z][a-z]+, )*[A-Z][a-z]+ and [A-Z][a-z]+) are (?:its|the) official languages"
    r"|(?:official|national) languages? (?:in practice )?(?:is|are) "
    r"((?:[A-Z][\w ]+, )*(?:[A-Z]\w+ )?[A-Z]\w+(?: and [A-Z]\w+)?)",
    "currency": r"[Tt]he currency is the ([^.,]+?)(?:[.,]| and )",
    "born": rf"{_BORN}(?:{_NAME} )?(?<!baptised )on ({_DAY})",
    "birthplace": rf"{_BORN}(?:{_NAME} )?(?:on {_DAY}|(?:about|in) \d+(?: BC)?) in ((?:the )?{_PLACE})",
    "died": rf"{_BORN}[^.;]* (?:died|beheaded) (?:there |in an? [a-z ]+)?on ({_DAY})",
    "author": rf" (?:by|ascribed to) ({_NAMES})(?:,| in )",
    "year": rf"(?:published|printed) (?:as a book )?(?:in (?:the )?{_PLACE}(?: and {_PLACE})? )?{_IN_YEAR}",
    "symbol": r"with symbol (\w+)",
    "number": r"atomic number (\d+)",
    "melting": r"melting point (?:of [\w ]+ )?is (?:about )?(-?[\d.,]+ °C)",
    "boiling": r"boiling point (?:is )?(?:about )?(-?[\d.,]+ °C)",
    "density": r"density (?:is |of )?([\d.,]+ g/\w+[³]?)",
    "diameter": rf"diameter of (?:about )?({_AMOUNT} km)"
    rf"|({_AMOUNT} (?:km|cm|light-years)) (?:across|in diameter)",
    "distance": rf" distance of ({_AMOUNT} (?:km|light-years))|({_AMOUNT} km) from the Earth",
    "period": r"(?:goes around (?:the )?\w+ in|comes back) (?:about )?(?:every )?([\d.,]+ \w+)",
    "designer": rf"(?:designed|written|begun) (?:in \d{{4}} )?by ({_NAMES})",
    "released": rf"(?:released|and published) {_IN_YEAR}",
    "discovered": rf"(?:discovered|isolated|first made) (?:(?:on|in) [^,.;]*?)?by "
    rf"(?:the brothers )?((?:\w+ and )?{_NAMES})|({_NAMES}) (?:discovered it|saw it first)",
    "architect": rf"({_NAMES}|{_WORD}(?: and {_WORD})?)(?: of [\w, ]+)? "
    r"(?:was its architect|were its architects|designed (?:it|them))",
    "opened": rf"[Oo]pened (?:on ({_DAY})|in (\d{{4}}))",
    "mouth": rf"(?:flows (?:[^.;]+ )?into|reaches|joins) (the {_PLACE}(?: of {_WORD})?)",
    "ascent": r"(?:(?:reached (?:its|the) summit|climbed it)(?: [A-Z]\w+)?(?: first)?"
    rf"|the first recorded ascent),?(?: alone[\w ]*,)? on ({_DAY})",
    "climber": rf"({_NAMES})(?: of [\w ]+| and \w+ guides)? "
    r"(?:(?:reached (?:its|the) summit|climbed it)(?: [A-Z]\w+)? (?:first|on)|is credited with the first)",
    "capital of": rf"is the capital of ((?:the )?{_PLACE})",
    "inventor": rf"(?:; (?:an engine of )?|\. |^)({_NAMES}|the \w+ brothers) (?:{_MADE})\b"
    rf"|(?:{_INVENTED})[\w ]*? by ({_NAMES})",
    "invented": rf"\b(?:{_MADE}|{_INVENTED})\b(?:[^.;]*?) (?:on|in|about) "
    rf"({_DAY}|[A-Z]\w+ \d{{4}}|\d{{4}}|\d+ AD)\b",
    "moons": r"ha[sd] (?:about |more than )?(\w+) (?:known |small )?moons?\b",
    "depth": r"([\d.,]+ m) deep\b|deepest point[^.;]*? ([\d.,]+ m) (?:below|down)",
    "place": r"(?: in| on| above|(?:river|mountain) of) ((?:the (?:border|harbour|province|island) of )?"
    rf"(?:the )?(?:(?:northern|southern|eastern|western|central) )?{_PLACE}"
    rf"(?: (?:in|of|on the border of) (?:the )?{_PLACE}){{0,2}}(?: and {_PLACE})?)",
    "what": r"^(?:[^.;,]|(?<=\b[A-Z])\.|, D\.C\.,|, also called [\w ]+,)*? (?:is|was|are|were) "
    # to the end of the clause: points of initials, numbers and the commas of a list belong to it
    r"((?:a|an|the) (?:[^,.;]|(?<=\b[A-Z])\.|[.,](?=\d)|,(?= \w+ country)"
    r"|,(?= (?:[\w-]+(?: [A-Z][\w-]+)*, )*[\w-]+(?: [A-Z][\w-]+)* and \w))+)(?<! and)(?=[,.;]| and,)",
    "prize": r"^(?!.*Nobel Prize in [A-Z].*Nobel Prize in [A-Z]).*?Nobel Prize in \w+(?: of|,? in) (\d{4})",
}
_WHICH = {
    "mountain": ("height", "place", "ascent", "climber"),
    "river": ("length", "place", "mouth"),
    "building": ("height", "length", "place", "architect", "opened"),
    "person": ("born", "died", "birthplace", "prize"),
    "country": ("capital", "area", "population", "language", "currency"),
    "city": ("population", "capital of"),
    "book": ("author", "year"),
    "element": ("symbol", "number", "melting", "boiling", "density", "discovered"),
    "space": ("diameter", "distance", "period", "discovered", "moons"),
    "language": ("designer", "released"),
    "invention": ("inventor", "invented"),
    "place": ("area", "population", "height", "length", "depth"),
}


def usual_facts(kind: str) -> tuple[str, ...]:
    """The facts that an article on this kind of thing may tell."""
    return (*_WHICH.get(kind, ()), *phrases.KINDS.get(kind, ()))


_NUMBER = re.compile(r"(?<![\w,.])\d[\d,.]*\d|(?<![\w,.])\d")


def _other_numbers(text: str, rng: random.Random) -> dict[str, str]:
    """For each number in `text`, another one to write in its place."""
    changes = dict[str, str]()
    for match in _NUMBER.finditer(text):
        digits = match[0]
        if text[match.end() : match.end() + 1] == "s":  # the 1990s
            continue
        if len(digits) == 4 and "1000" <= digits < "2100":  # a year stays in its century
            changes[digits] = digits[:2] + f"{rng.randrange(100):02}"
        elif text[match.end() : match.end() + 1] == " " and digits.isdigit() and int(digits) <= 31:
            changes[digits] = str(rng.randint(1, 28))
        else:
            first = str(rng.randint(1, 9)) if digits[0] != "0" else "0"
            changes[digits] = first + re.sub(r"\d", lambda _: str(rng.randrange(10)), digits[1:])
    return changes


def bare_of(answer: str) -> str:
    """The piece of an article that holds an answer: `answer` without the braces around what is said of it."""
    return re.sub("[{}]", "", answer)


def _real_subjects(rng: random.Random, held_out: bool) -> list[Subject]:
    questions: dict[str, list[tuple[str, str]]] = {}
    for one in chosen(phrases.READING, held_out):
        title, question, answer = one.split(" | ")
        questions.setdefault(title, []).append((question, answer))
    subjects = []
    for line in encyclopedia.Encyclopedia().path.read_text(encoding="utf-8").splitlines():
        entry = json.loads(line)
        changes = _other_numbers(entry["text"], rng) if rng.random() < 0.6 else {}
        bare = Subject(entry["title"], entry["kind"], {}, entry["text"], changes=changes)
        text, facts, told = bare.as_here(bare.text), dict[str, str](), dict[str, str]()
        for attribute in (*_WHICH[entry["kind"]], "what"):
            if found := re.search(_REAL_FACTS[attribute], text):
                place = found.start(found.lastindex or 0)
                facts[attribute] = next(filter(None, found.groups()))
                told[attribute] = next(one for one in sentences(text) if text.index(one) + len(one) > place)
        asked = [(bare.as_here(one), bare.as_here(answer)) for one, answer in questions.get(bare.title, ())]
        reading = tuple(
            pair for pair in asked if pair[1].startswith("-") or text.count(bare_of(pair[1])) == 1
        )
        subjects.append(replace(bare, facts=facts, text=text, told=told, reading=reading))
    return subjects


_CONSONANTS = re.findall(r"\w+", "b c d f g h j k l m n p r s t v w z ch sh th br tr kl st sk gr qu ph ll ss")
_VOWELS = [*"aeiouaeioäöüéøáã", "ie", "ou", "ea"]


class Words:
    """Random names, numbers and dates."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng

    def made(self) -> str:
        rng = self.rng
        if rng.random() < 0.35:  # letter by letter, so that nothing but copying helps
            pairs = rng.choice((2, 2, 3, 3, 4))
            letters = [rng.choice(_CONSONANTS) + rng.choice(_VOWELS) for _ in range(pairs)]
            return ("".join(letters) + rng.choice(("", "", "n", "s", "rt", "ck", "x", "y"))).capitalize()
        return "".join(rng.choices(phrases.SYLLABLES, k=rng.choice((2, 2, 3, 3, 4)))).capitalize()

    def name(self) -> str:
        first = self.rng.choice(phrases.FIRST) if self.rng.random() < 0.7 else self.made()
        last = self.rng.choice(phrases.LAST) if self.rng.random() < 0.6 else self.made()
        return f"{first} {last}"

    def date(self, low: int = 1500, high: int = 2030) -> str:
        return f"{self.rng.randint(1, 28)} {self.rng.choice(phrases.MONTHS)} {self.rng.randint(low, high)}"

    def grouped(self, low: int, high: int) -> str:
        return f"{self.whole(low, high):,}"

    def whole(self, low: int, high: int) -> int:
        """Small numbers as often as large ones."""
        digits = self.rng.randint(len(str(low)), len(str(high)))
        return self.rng.randint(max(low, 10 ** (digits - 1)), min(high, 10**digits - 1))

    def title(self, kind: str) -> str:
        made, pick = self.made(), self.rng.choice
        return str(
            {
                "mountain": lambda: pick([made, f"Mount {made}", f"{made} Peak"]),
                "river": lambda: pick([made, f"{made} River"]),
                "lake": lambda: pick([f"Lake {made}", f"{made} Lake"]),
                "country": lambda: made + pick(["ia", "land", "", "istan"]),
                "person": lambda: self.name(),
                "book": lambda: pick(
                    [
                        f"The {pick(phrases.WORDS).title()} of {made}",
                        f"{made} and the {pick(phrases.WORDS).title()}",
                        f"The {pick(phrases.WORDS).title()} {pick(phrases.WORDS).title()}",
                    ]
                ),
                "element": lambda: f"{made}ium",
                "programming language": lambda: pick([made, f"{made}Script", made.upper()[:4]]),
                "building": lambda: f"{made} {pick(['Tower', 'Palace', 'Hall', 'Bridge'])}",
                "company": lambda: f"{made} {pick(['Ltd', 'Works', 'Group', phrases.WORDS[0].title()])}",
            }.get(kind, lambda: made)()
        )

    def value(self, attribute: str) -> str:
        pick, million = self.rng.choice, f"{self.rng.randint(11, 999) / 10:g} million"
        people = pick([million, self.grouped(1000, 999_999)])
        return str(
            {
                "height": lambda: f"{self.grouped(80, 9000)} m",
                "length": lambda: f"{self.grouped(60, 7000)} km",
                "depth": lambda: f"{self.grouped(10, 5000)} m",
                "area": lambda: f"{pick([million, self.grouped(100, 900_000)])} km²",
                "population": lambda: people,
                "born": lambda: self.date(1600, 1930),
                "died": lambda: self.date(1931, 2020),
                "birthplace": lambda: pick(phrases.CITIES),
                "capital": lambda: pick([self.made(), pick(phrases.CITIES)]),
                "country": lambda: self.made() + pick(["ia", "land", ""]),
                "currency": lambda: self.made().lower(),
                "language": lambda: self.made() + "ish",
                "symbol": lambda: self.made()[:2],
                "number": lambda: str(self.rng.randint(3, 150)),
                "melting": lambda: f"{self.rng.randint(-200, 3500)} °C",
                "boiling": lambda: f"{self.rng.randint(-200, 5500)} °C",
                "density": lambda: f"{self.rng.randint(5, 230) / 10} g/cm³",
                "diameter": lambda: f"{self.grouped(900, 150_000)} km",
                "distance": lambda: f"{self.rng.randint(50, 9000)} million km",
                "period": lambda: f"{self.rng.randint(20, 900)} days",
                "year": lambda: str(self.rng.randint(1500, 2024)),
                "released": lambda: str(self.rng.randint(1955, 2024)),
                "founded": lambda: str(self.rng.randint(1200, 2024)),
                "employees": lambda: self.grouped(20, 90_000),
            }.get(attribute, self.name)()
        )

    def slots(self) -> dict[str, str]:
        """Values for the marks of `phrases.TOOLS` and others; the same mark is the same value."""
        pick, rng = self.rng.choice, self.rng
        city, city2 = rng.sample(phrases.CITIES, 2)
        cur, cur2 = rng.sample(["USD", "EUR", "CHF", "JPY", "SEK", "GBP", "PLN", "INR", "CNY"], 2)
        letters = "".join(rng.choices("ABCDEFGHKLMNPRSTXZ", k=rng.randint(1, 3)))
        return {
            "name": self.name(),
            "city": city,
            "city2": city2,
            "cur": cur,
            "cur2": cur2,
            "made": self.made(),
            "id": f"{letters}{pick(['', '-'])}{self.whole(10, 99999)}",
            "n": str(self.whole(10, 2000)),
            "word": pick(phrases.WORDS),
            "m": f"{self.whole(10, 90000) / pick([1, 10, 100]):g}",
            "digit": str(rng.randint(1, 9)),
            "big": self.grouped(1000, 999_999),
            "phone": f"{rng.randint(10, 99)}{rng.randint(100, 999)} {rng.randint(1000, 9999)}",
            "lang": pick(["French", "German", "Italian", "Spanish", "Swedish", "Polish", "Turkish", "Greek"]),
            "date": self.date(2020, 2035),
            "time": f"{rng.randint(0, 23):02}:{rng.randint(0, 59):02}",
            "sky": pick(["sunny", "rain", "cloudy", "snow", "fog", "light rain", "clear sky", "storm"]),
            "state": pick(["sent", "paid", "cancelled", "in preparation", "delivered", "on hold"]),
            "day": pick(["Monday", "Tuesday", "Wednesday", "Thursday", "Friday"]),
            "animal": pick(phrases.ANIMALS),
            "dish": pick(
                ["pea soup", "noodles", "fried fish", "vegetable curry", "pizza", "rice with beans"]
            ),
            "room": pick(["kitchen", "hall", "bedroom", "office", "cellar", "bathroom"]),
            "subject": pick(["history", "maths", "biology", "music", "physics"]),
            "colour": pick(phrases.COLOURS),
        }


def fill(template: str, slots: dict[str, str]) -> str:
    """`template` with its slots filled in."""
    return re.sub(r"\{(\w+)\}", lambda mark: slots.get(mark[1], mark[0]), template)


def chosen(options: list[str], held_out: bool) -> list[str]:
    """The options for training, or the held-out ones (all of them where none is marked)."""
    kept = [one.removeprefix("~") for one in options if one.startswith("~") == held_out]
    return kept or [one.removeprefix("~") for one in options]


class World:
    """Subjects, and an encyclopedia of them."""

    def __init__(self, rng: random.Random, held_out: bool) -> None:
        self.rng, self.held_out, self.words = rng, held_out, Words(rng)
        self.real = _real_subjects(rng, held_out)
        self.invented = [self._invented(kind) for kind in phrases.KINDS for _ in range(20)]
        for twin in rng.sample(self.invented, 12):  # some names mean two things
            other = self._invented(
                rng.choice([kind for kind in phrases.KINDS if kind != twin.kind]), twin.title
            )
            self.invented.remove(twin)
            first = replace(twin, title=f"{twin.title} ({twin.kind})")
            self.invented += [first, other]
        self.subjects = [one for one in self.real + self.invented if one.facts]
        known = {
            json.loads(line)["title"]: json.loads(line).get("aliases", [])
            for line in encyclopedia.Encyclopedia().path.read_text(encoding="utf-8").splitlines()
        }
        path = Path(tempfile.mkdtemp()) / "encyclopedia.jsonl"
        path.write_text(
            "\n".join(
                json.dumps({"title": one.title, "aliases": known.get(one.title, []), "text": one.text})
                for one in self.real + self.invented
            ),
            encoding="utf-8",
        )
        self.encyclopedia = encyclopedia.Encyclopedia(path)
        weakref.finalize(self.encyclopedia, shutil.rmtree, path.parent, ignore_errors=True)

    def subject(self, *attributes: str, kind: str = "") -> Subject:
        """A random subject that has all these facts; half of them are invented."""
        pool = self.invented if self.rng.random() < 0.45 else self.real
        found = [
            one
            for one in pool
            if set(attributes) <= one.facts.keys() and one.facts and kind in ("", one.kind)
        ]
        return self.rng.choice(found or [one for one in self.subjects if set(attributes) <= one.facts.keys()])

    def _invented(self, kind: str, title: str = "") -> Subject:
        rng, twin = self.rng, bool(title)
        title = title or self.words.title(kind)
        wanted = phrases.KINDS[kind]
        wanted = rng.sample(wanted, rng.randint(max(1, len(wanted) - 2), len(wanted)))
        facts = {attribute: self.words.value(attribute) for attribute in wanted}
        # A noun and a value that no table knows, told in a plain way.
        told = {
            attribute: fill(
                rng.choice(chosen(phrases.ATTRIBUTES[attribute].told, self.held_out)),
                {"x": title, "v": value},
            )
            for attribute, value in facts.items()
        }
        slots = {**self.words.slots(), "n": str(rng.randint(1200, 2024))}
        aside = rng.sample(chosen(phrases.FILLER, self.held_out), rng.choice((0, 0, 1, 1, 2)))
        lines = [*told.values(), *(fill(one, slots) for one in aside)]
        rng.shuffle(lines)
        article = "An" if kind[0] in "aeiou" else "A"
        opening = rng.choice(
            [f"{title} is {article.lower()} {kind}.", f"{article} {kind}.", f"{title} ({kind})."]
        )
        text = " ".join([opening, *lines] if rng.random() < 0.8 else lines)
        return Subject(f"{title} ({kind})" if twin else title, kind, facts, text, told)
