"""The tools that synthetic questions are answered with: the shipped ones, and a wide random choice of others.

The shipped ones really run. Of the others, which are described in many ways, each call's result is set by
the plan.
"""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Union

from ...errors import ToolError
from ...toolbox import clock, search, weather
from ...toolbox.calculator import calculate
from ...toolbox.page import Page
from ...tools import Tool, ToolExecutor
from . import phrases
from .world import Subject, World, chosen, fill

Maker = Callable[[], tuple[str, str, str, str]]
"""Gives a question for a tool, the right input, what the tool then says, and the answer."""


class Stub:
    """A tool whose next result is set by the plan; its parameters are those of the description."""

    def __init__(self, parameters: str) -> None:
        self.result: Union[str, Exception] = ""
        kinds = {"str": str, "int": int, "float": float, "bool": bool}
        listed = parameters.strip() or "input:str"
        named = [part.strip().split(":") for part in listed.split(",")] if listed != "-" else []

        def function(**values: object) -> str:
            if isinstance(self.result, Exception):
                raise self.result
            return self.result

        function.__annotations__ = {name: kinds[kind] for name, kind in named}
        function.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
            [
                inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, annotation=kinds[kind])
                for name, kind in named
            ]
        )
        self.function = function


@dataclass(frozen=True)
class Kit:
    """The tools of a group, and what the plans know of them."""

    executor: ToolExecutor
    search: str = ""
    lookup: str = ""
    calculator: str = ""
    custom: tuple[tuple[Tool, Maker], ...] = ()
    is_encyclopedia: bool = False
    stubs: dict[str, Stub] = field(default_factory=dict)


def _bare(subject: Subject) -> str:
    """A title without what tells it from others of this name."""
    return re.sub(r"\s*\([^()]*\)$", "", subject.title)


def _surnamed(world: World, query: str) -> list[Subject]:
    """The one subject, if there is but one, whose name ends like this: Hawking, Conan Doyle."""
    found = [one for one in world.subjects if f" {_bare(one)}".casefold().endswith(f" {query}".casefold())]
    return found if len(found) == 1 else []


class _Web:
    """Search as a web search engine gives it: snippets of several pages."""

    def __init__(self, world: World) -> None:
        self.world = world

    def search(self, query: str) -> str:
        rng, words = self.world.rng, self.world.words
        found = [one for one in self.world.subjects if _bare(one).casefold() in query.casefold()]
        found = found or _surnamed(self.world, query)
        if not found:
            return f'No results for "{query}". Try other or fewer words.'
        page = max(found, key=lambda one: len(one.title))
        results = [
            {
                "title": rng.choice([page.title, f"{page.title} - Wiki", f"About {page.title}"]),
                "snippet": page.text,
            }
        ]
        for _ in range(rng.choice((0, 1, 1, 2))):
            results.append(
                {
                    "title": f"{words.made()} {page.title}",
                    "snippet": rng.choice(
                        [
                            f"{words.name()} writes about {page.title}.",
                            f"Cheap trips to {words.made()}, from {rng.randint(20, 900)} euros.",
                        ]
                    ),
                }
            )
        rng.shuffle(results)
        return search.best_answer({"organic_results": results})


class _Pages:
    """Search shows the first sentences of a page, Lookup finds the others: as with Wikipedia."""

    def __init__(self, world: World) -> None:
        self.world, self.page = world, Page("", "")

    def search(self, title: str) -> str:
        same = [
            one
            for one in self.world.subjects
            if title.casefold() in (one.title.casefold(), _bare(one).casefold())
        ]
        for one in same or _surnamed(self.world, title):
            self.page = Page(one.title, one.text)
            return self.page.summary(self.world.rng.choice((1, 2)))
        similar = [one.title for one in self.world.rng.sample(self.world.subjects, 3)]
        return f"Could not find {title}. Similar: [{', '.join(similar)}]"

    def lookup(self, keyword: str) -> str:
        return self.page.lookup(keyword)


def _description(function: Callable[..., Any]) -> str:
    return " ".join((inspect.getdoc(function) or "").split("\n\n")[0].split())


_SEARCH_NAMES = [
    "Search",
    "search",
    "Wiki",
    "find_page",
    "Encyclopedia",
    "WebSearch",
    "Articles",
    "knowledge",
]
_SEARCH_TEXTS = [
    "Finds an article by its title.",
    "Searches for facts. The input is a name.",
    "Look up people, places and things.",
    "Search engine. Use it for facts; the input is what to look for.",
]
_LOOKUP_NAMES = ["Lookup", "lookup", "FindInPage", "NextMention"]
_CALC_NAMES = ["Calculator", "calculator", "Math", "calc", "compute", "Arithmetic"]
_CALC_TEXTS = [
    "Calculates an expression.",
    "Does arithmetic, such as 2 * (3 + 4). Use it for every calculation.",
    "Evaluates arithmetic. The input is the expression.",
    "For sums; the input is an expression such as 12 / 5",
]


def random_kit(world: World) -> Kit:
    """A random set of tools."""
    rng = world.rng
    tools: list[Tool] = []
    style = rng.choices(["encyclopedia", "web", "pages", "none"], [54, 11, 11, 24])[0]
    plain = rng.random() < 0.7
    found, lookup, calculator = "", "", ""
    if style != "none":
        source: Any = {"encyclopedia": world.encyclopedia, "web": _Web(world), "pages": _Pages(world)}[style]
        real = search.search if style == "web" else source.search if style == "encyclopedia" else None
        found = "Search" if plain else rng.choice(_SEARCH_NAMES)
        text = _description(real) if real and (plain or rng.random() < 0.3) else rng.choice(_SEARCH_TEXTS)
        tools.append(Tool(found, text, source.search, timeout=None))
        if style == "pages" or (style == "encyclopedia" and rng.random() < 0.85):
            lookup = "Lookup" if plain else rng.choice(_LOOKUP_NAMES)
            tools.append(Tool(lookup, _description(world.encyclopedia.lookup), source.lookup, timeout=None))
    if rng.random() < (0.6 if style == "none" else 0.9):
        calculator = "Calculator" if plain else rng.choice(_CALC_NAMES)
        text = _description(calculate) if plain or rng.random() < 0.3 else rng.choice(_CALC_TEXTS)
        tools.append(Tool(calculator, text, calculate, timeout=None))
    custom, stubs = [], dict[str, Stub]()
    how_many = rng.randint(2, 4) if style == "none" else rng.choices([0, 1, 2], [6, 3, 2])[0]
    taken = {tool.name.casefold().replace("_", "") for tool in tools}
    while how_many:
        try:
            tool, make, stub = custom_tool(world)
        except ToolError:  # a made-up name that means something in a reply
            continue
        key = tool.name.casefold().replace("_", "").replace("-", "")
        if key not in taken:
            taken.add(key)
            custom.append((tool, make))
            stubs[tool.name] = stub
            how_many -= 1
    tools += [tool for tool, _ in custom]
    if rng.random() < 0.5:
        rng.shuffle(tools)
    executor = ToolExecutor()
    for tool in tools:
        executor.add(tool)
    return Kit(executor, found, lookup, calculator, tuple(custom), style == "encyclopedia", stubs)


def custom_tool(world: World) -> tuple[Tool, Maker, Stub]:
    """A tool from the tables, or made of a thing and a quality, or a shipped one; its results are made up."""
    rng, words = world.rng, world.words
    kind = rng.random()
    if kind < 0.08:
        return _shipped_tool(world)
    if kind < 0.16:
        return _setting_tool(world)
    if kind < 0.80:
        names, texts, parameters, asked, given, results = (part.strip() for part in rng.choice(phrases.TOOLS))
        stub = Stub(parameters)
        tool = Tool(rng.choice(names.split(",")), rng.choice(texts.split("|")), stub.function, timeout=None)

        def make() -> tuple[str, str, str, str]:
            slots = words.slots()
            question, result = (fill(rng.choice(one.split("|")), slots).strip() for one in (asked, results))
            # The answer is what the tool said: other words can't be learnt, nor which part of it is meant.
            return question, _as_asked(question, fill(given, slots), tool), result, result

        return tool, make, stub
    thing, quality = rng.choice(phrases.THINGS), rng.choice(phrases.QUALITIES)
    spoken = quality.replace("-", " ")
    camel = "".join(part.title() for part in re.split("[- ]", quality))
    name = rng.choice(
        [
            f"{camel}Of",
            f"get_{quality.replace('-', '_')}",
            f"{thing.title().replace('-', '')}{camel}",
            f"{camel}Finder",
            f"{thing.replace('-', '_')}_{quality.replace('-', '_')}",
            words.made(),
            f"{words.made()}{thing.title().replace('-', '')}",
        ]
    )
    text = fill(
        rng.choice(chosen(phrases.QUALITY_TOLD, world.held_out)), {"q": spoken, "t": thing.replace("-", " ")}
    )
    stub = Stub("")

    def make_quality() -> tuple[str, str, str, str]:
        slots = words.slots()
        key = rng.choice(
            [
                slots["made"],
                slots["id"],
                slots["name"],
                slots["n"],
                f"{words.made()} {words.made()}",
                slots["word"].title(),
            ]
        )
        value = rng.choice(
            [
                slots["name"],
                f"{slots['n']} {rng.choice(['kg', 'm', 'euros', 'V', 'years', 'km/h'])}",
                slots["city"],
                slots["colour"],
                slots["date"],
                slots["m"],
                slots["state"],
                slots["id"],
            ]
        )
        question = fill(
            rng.choice(chosen(phrases.QUALITY_ASKED, world.held_out)),
            {"q": spoken, "t": thing.replace("-", " "), "k": key},
        )
        result = rng.choice(
            [value, value, f"{key}: {value}", f"{spoken}: {value}", f"The {spoken} of {key} is {value}."]
        )
        return question, key, result, result

    return Tool(name, text, stub.function, timeout=None), make_quality, stub


def _as_asked(question: str, given: str, tool: Tool) -> str:
    """The input with its texts spelt as in the question, and its values in the order of the parameters."""

    def spelt(value: Any) -> Any:
        found = re.search(re.escape(value), question, re.IGNORECASE) if isinstance(value, str) else None
        return found[0] if found and value not in question else value

    if len(tool.parameters) < 2:
        return str(spelt(given))
    values = json.loads(given)
    return json.dumps(
        {one.name: spelt(values[one.name]) for one in tool.parameters if one.name in values},
        ensure_ascii=False,
    )


def _setting_tool(world: World) -> tuple[Tool, Maker, Stub]:
    """A tool with two or three arguments, which changes a quality of a thing or compares two of them."""
    rng = world.rng
    thing, quality = rng.choice(phrases.THINGS), rng.choice(phrases.QUALITIES)
    spoken, spoken_thing = quality.replace("-", " "), thing.replace("-", " ")
    word = quality.replace("-", "_")
    first = rng.choice([thing.replace("-", "_"), "name", "item", "id"])
    verb = rng.choice(["set", "change", "update", "write"])
    second = word if rng.random() < 0.6 and word != "class" else rng.choice(["value", "new_value", "to"])
    number = rng.random() < 0.4
    stub = Stub(f"{first}:str,{second}:{'int' if number else 'str'}")
    camel = word.title().replace("_", "")
    tool = Tool(
        rng.choice([f"{verb}_{word}", f"{verb.title()}{camel}", f"{thing.replace('-', '_')}_{verb}_{word}"]),
        rng.choice(
            [f"{verb.title()}s the {spoken} of a {spoken_thing}.", f"Gives a {spoken_thing} a new {spoken}."]
        ),
        stub.function,
        timeout=None,
    )

    def make() -> tuple[str, str, str, str]:
        slots = world.words.slots()
        key = rng.choice([slots["made"], slots["id"], slots["name"], slots["word"].title()])
        value = (
            slots["n"]
            if number
            else rng.choice([slots["name"], slots["city"], slots["colour"], slots["made"]])
        )
        asked = rng.choice(
            [
                f"{verb.title()} the {spoken} of {spoken_thing} {key} to {value}.",
                f"The {spoken} of {spoken_thing} {key} must be {value}. Please {verb} it.",
                f"{spoken_thing} {key}: {verb} {spoken} to {value}",
                f"Please {verb} {spoken_thing} {key}'s {spoken} to {value}.",
            ]
        )
        given = json.dumps({first: key, second: int(value) if number else value}, ensure_ascii=False)
        result = rng.choice(["done", "saved", f"{spoken} is now {value}", "ok"])
        return asked, given, result, result

    return tool, make, stub


def _shipped_tool(world: World) -> tuple[Tool, Maker, Stub]:
    """Clock or Weather, described as they are, with results in their form."""
    rng, words = world.rng, world.words
    if rng.random() < 0.5:

        def make_clock() -> tuple[str, str, str, str]:
            slots = words.slots()
            place = rng.choice(["", slots["city"]])
            stamp = f"{rng.randint(2020, 2035)}-{rng.randint(1, 12):02}-{rng.randint(1, 28):02}"
            moment = f"{slots['time']}:{rng.randint(0, 59):02}"
            where = f"{place} (Zone/{place})" if place else "local time"
            result = f"{slots['day']}, {stamp} {moment} in {where} (UTC+{rng.randint(0, 12):02}:00)"
            there = f" in {place}" if place else ""
            asked, answer = rng.choice(
                [
                    (f"What time is it{there}?", slots["time"]),
                    (f"What is the date{there}?", stamp),
                    (f"What day of the week is it{there} today?", slots["day"]),
                    (f"What's today's date{there}?", stamp),
                    (f"time{there} now", slots["time"]),
                ]
            )
            return asked, place, result, answer

        stub = Stub("")
        return Tool("Clock", _description(clock.now), stub.function, timeout=None), make_clock, stub

    def make_weather() -> tuple[str, str, str, str]:
        slots = words.slots()
        degrees = f"{rng.randint(-20, 38)} °C"
        air = f"humidity {rng.randint(20, 99)}%, wind {rng.randint(0, 60)} km/h"
        result = f"{slots['city']}: {slots['sky']}, {degrees}, {air}"
        asked, answer = rng.choice(
            [
                (f"What is the temperature in {slots['city']}?", degrees),
                (f"How warm is it in {slots['city']}?", degrees),
                (f"What is the weather like in {slots['city']}?", f"{slots['sky']}, {degrees}"),
                (f"weather in {slots['city']} please", f"{slots['sky']}, {degrees}"),
            ]
        )
        return asked, slots["city"], result, answer

    stub = Stub("")
    return Tool("Weather", _description(weather.get_weather), stub.function, timeout=None), make_weather, stub
