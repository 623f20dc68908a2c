"""Tools and their registry: what a model's input becomes, and what comes of everything that can go wrong."""

import asyncio
import contextlib
import contextvars
import datetime
import decimal
import enum
import functools
import itertools
import json
import os
import pathlib
import re
import subprocess
import sys
import threading
import time
import typing
import uuid
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated, Literal

import pydantic
import pytest
import typing_extensions

from hello_react import HelloAgentsLLM, ToolExecutor, background
from hello_react.arguments import json_schema
from hello_react.background import MOST_IDLE
from hello_react.errors import ToolError
from hello_react.parser import Action, parse
from hello_react.settings import Settings
from hello_react.tools import Tool


def run(function, text, name="Tool", **options):
    tools = ToolExecutor()
    tools.register_tool(name, "A tool.", function, **options)
    return tools.execute(name, text)


def test_a_key_that_a_tool_returns_is_masked(monkeypatch, tmp_path):
    lines = "LLM_API_KEY=sk-0123456789abcdef\nSERPAPI_API_KEY=serp-0123456789abcdef\nLLM_MODEL_ID=gpt-x\n"
    (tmp_path / ".env").write_text(lines)
    monkeypatch.setenv("LLM_API_KEY", "sk-another-0123456789")
    assert "0123456789abcdef" in run(lambda path: lines, ".env").text
    Settings.load(folder=tmp_path)
    masked = "LLM_API_KEY=[key]\nSERPAPI_API_KEY=[key]\nLLM_MODEL_ID=gpt-x\n"
    assert run(lambda path: lines, ".env").text == masked
    assert run(lambda name: os.environ[name], "LLM_API_KEY").text == "[key]"
    HelloAgentsLLM("gpt-x", "sk-given-0123456789", "http://127.0.0.1:9/v1")
    assert run(lambda text: text, "it is sk-given-0123456789").text == "it is [key]"


def test_a_key_that_is_just_a_word_is_not_masked(monkeypatch):
    monkeypatch.setenv("LLM_API_KEY", "ollama")
    Settings.load()
    assert run(lambda text: f"{text} runs models", "ollama").text == "ollama runs models"


# --- the registry


def test_registered_tool_is_described_found_and_run():
    tools = ToolExecutor()
    tools.register_tool("Search", "Looks things up.", lambda query: f"about {query}")
    assert tools.get_available_tools() == "- Search: Looks things up."
    assert tools.get_tool("Search")("x") == "about x"
    assert tools.get_tool("Nothing") is None
    assert tools.execute("Search", "Oslo").text == "about Oslo"
    assert (tools.names, len(tools), [tool.name for tool in tools]) == (("Search",), 1, ["Search"])


def test_the_books_names_work():
    tools = ToolExecutor()
    tools.registerTool("Search", "Looks things up.", str.upper)
    assert tools.getTool("Search") is str.upper
    assert tools.getAvailableTools() == tools.describe()


def test_second_registration_is_called_out_and_replaces():
    tools = ToolExecutor()
    tools.register_tool("Search", "One.", lambda text: "1")
    with pytest.warns(UserWarning, match="'Search' was registered before"):
        tools.register_tool("Search", "Two.", lambda text: "2")
    assert tools.execute("Search", "x").text == "2"


@pytest.mark.parametrize("other", ["search", "SEARCH", "Se_arch", "se-arch", "s earch"])
def test_names_that_tolerant_reading_would_confuse_are_refused(other):  # T11
    tools = ToolExecutor()
    tools.register_tool("Search", "One.", str.upper)
    with pytest.raises(ToolError, match="too much alike"):
        tools.register_tool(other, "Two.", str.upper)


@pytest.mark.parametrize(
    "name",
    ["", " ", "a[b", "a]", "a(b", "a:b", "a：b", "a\nb", " a", "a ", "-a", "x" * 61, None, 3, "`a`", "a{b}"],
)
def test_names_that_no_reply_could_hold_are_refused(name):
    with pytest.raises(ToolError, match="name"):
        Tool(name, "A tool.", str.upper)


@pytest.mark.parametrize(
    ("name", "better"),
    [
        ("搜索（网络）", "搜索_网络"),
        ("x【y】", "x_y"),
        ("List<int>", "List_int"),
        ("Wiki.", "Wiki"),
        ("查询。", "查询"),
        ("Search >", "Search"),
        ("A•", "A"),
        ("3. Search", "3_Search"),
        ("a[b]", "a_b"),
        ("-a", "a"),
    ],
)
def test_for_a_name_that_a_text_reply_can_not_call_another_is_proposed(name, better):
    with pytest.raises(ToolError, match=f"no brackets, .*{re.escape(repr(name))} can't be one. Try '{better}'"):
        Tool(name, "A tool.", str.upper)
    assert parse(f"Action: {better}[x]", [better]).move == Action(better, "x")


@pytest.mark.parametrize(
    "name",
    [
        "Finish",
        "finish",
        "FINISH",
        "Final Answer",
        "Action",
        "thought",
        "Observation",
        "None",
        "行动",
        "答案",
        "完成",
    ],
)
def test_names_with_a_meaning_of_their_own_are_refused(name):
    with pytest.raises(ToolError, match="meaning of its own"):
        Tool(name, "A tool.", str.upper)


@pytest.mark.parametrize(
    "name", ["FinishOrder", "web-search", "wiki.search", "Python REPL", "add2", "搜索", "Acting", "C++", "2 go", "a, b", "x-"]
)
def test_other_names_are_fine(name):
    assert Tool(name, "A tool.", str.upper).name == name
    assert parse(f"Action: {name}[x]", [name]).move == Action(name, "x")


@pytest.mark.parametrize(
    ("description", "function", "message"),
    [
        ("", str.upper, "description"),
        ("  ", str.upper, "description"),
        (str.upper, "text", "description"),
        ("A tool.", "text", "function"),
        ("A tool.", None, "function"),
    ],
)
def test_wrong_registration_says_what_is_missing(description, function, message):
    with pytest.raises(ToolError, match=message):
        Tool("Search", description, function)


def test_decorator_takes_name_docstring_and_types_and_returns_the_function():
    tools = ToolExecutor()

    @tools.tool
    def add(x: int, y: int = 2) -> int:
        """Adds two numbers.

        Not part of the description.
        """
        return x + y

    @tools.tool(name="Shout", timeout=None)
    def anything(text):
        "Says it loudly."
        return text.upper()

    assert add(1, 1) == 2
    assert tools.describe().splitlines() == [
        '- add: Adds two numbers. Input: a JSON object with "x" (whole number), "y" (whole number, optional).',
        "- Shout: Says it loudly.",
    ]
    assert tools.execute("Shout", "hi").text == "HI"


@pytest.mark.parametrize(
    "options",
    [{"retries": value} for value in (-1, 1.5, None, "2", True)]
    + [{"timeout": value} for value in (0, -1, float("nan"), float("inf"), "60", True)],
)
def test_options_that_make_no_sense_are_refused_at_registration(options):
    with pytest.raises(ToolError, match=f"'Search' needs a .*{next(iter(options))}"):
        ToolExecutor().register_tool("Search", "Looks things up.", str.upper, **options)


def test_python_without_docstrings_is_named():
    code = "from hello_react.tools import Tool\ndef f(): 'Does it.'\nTool.from_function(f)"
    done = subprocess.run([sys.executable, "-OO", "-c", code], capture_output=True, text=True, timeout=60)
    assert "python -OO drops docstrings" in done.stderr


def test_function_without_docstring_is_refused_with_the_reason():
    def silent(text):
        return text

    with pytest.raises(ToolError, match="needs a description"):
        ToolExecutor().tool(silent)


@pytest.mark.parametrize(
    ("register", "told"),
    [
        (lambda tools: tools.add(str.upper), "add takes a Tool, .* there is register_tool"),
        (lambda tools: tools.add(Tool.from_function(3)), "made from a function, not from 3"),
        (lambda tools: tools.register_tool("Up", str.upper, "Writes it large."), "order is: name, description"),
        (lambda tools: tools.register_tool("Up", "Writes it large.", "upper"), "needs a function, not str"),
        (lambda tools: tools.register_tool("a[b]", "Writes it large.", str.upper), r"no brackets.*'a\[b\]' can't"),
    ],
)
def test_what_is_no_tool_is_refused_with_what_to_do(register, told):
    with pytest.raises(ToolError, match=told):
        register(ToolExecutor())


# --- input


@pytest.mark.parametrize(
    "text", ["Oslo", "", " two words ", '{"a": 1}', "[1]", 'q="x"', "a\nb", "{x}", "%s", "答案"]
)
def test_one_text_parameter_takes_the_text_as_it_stands(text):
    assert run(lambda query: f"<{query}>", text).text == f"<{text}>"


@pytest.mark.parametrize("text", ['{"query": "Oslo"}', 'query="Oslo"', "query='Oslo'"])
def test_an_object_with_only_the_parameters_name_is_unwrapped(text):
    assert run(lambda query: query, text).text == "Oslo"


def test_one_typed_parameter_is_converted():
    def square(n: int) -> int:
        return n * n

    assert run(square, "12").text == "144"
    assert run(square, '{"n": 12}').text == "144"
    wrong = run(square, "twelve")
    assert (wrong.ok, wrong.error) == (False, "bad_input")
    assert "'n'" in wrong.text
    assert "whole number" in wrong.text


def test_one_list_or_object_parameter_takes_json():
    def total(values: list[int]) -> int:
        return sum(values)

    def keys(data: dict[str, int]) -> str:
        return ",".join(data)

    assert run(total, "[1, 2, 3]").text == "6"
    assert run(total, '{"values": [1, 2]}').text == "3"
    assert run(keys, '{"a": 1, "b": 2}').text == "a,b"
    assert run(total, "many").error == "bad_input"


@pytest.mark.parametrize(
    "text", ['{"a": 1, "b": 2}', '{"a": "1", "b": 2.0}', "a=1, b=2", "1, 2", "[1, 2]", '{"b": 2, "a": 1}']
)
def test_several_parameters_take_an_object_keywords_or_values_in_order(text):
    def add(a: int, b: int) -> int:
        return a + b

    assert run(add, text).text == "3"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("1", "not a JSON object"),
        ("one and two", "not a JSON object"),
        ('{"a": 1}', "'b' is missing"),
        ('{"a": 1, "c": 2}', "'c' is unknown"),
        ('{"a": "x", "b": 2}', "'a'"),
        ("1, 2, 3", "not a JSON object"),
        ('{"a": 1, "b": ', "not a JSON object"),
        ('{"a": null, "b": 1}', "'a'"),
        ("a=1, b=__import__('os')", "not a JSON object"),
        ("", "not a JSON object"),
        ("[" * 100_000, "not a JSON object"),
        ("a=" + "(" * 3_000, "not a JSON object"),
    ],
)
def test_wrong_arguments_are_answered_with_what_was_expected(text, words):
    called = []

    def add(a: int, b: int) -> int:
        called.append(1)
        return a + b

    seen = run(add, text, "add")
    assert (seen.ok, seen.error, called) == (False, "bad_input", [])
    assert words in seen.text
    assert 'add[{"a": 1, "b": 1}]' in seen.text


def test_plain_text_goes_to_the_only_required_parameter():
    def search(query: str, top: int = 3) -> str:
        return f"{query}/{top}"

    assert run(search, "Mate 70").text == "Mate 70/3"
    assert run(search, '{"query": "Mate 70", "top": 5}').text == "Mate 70/5"
    assert run(search, 'query="Mate 70", top=5').text == "Mate 70/5"


@pytest.mark.parametrize(
    ("text", "seen"),
    [
        ("'Oslo', 5", "Oslo/5"),
        ('"Oslo", 5', "Oslo/5"),
        ("{'city': 'Oslo', 'days': 5}", "Oslo/5"),
        ('{"city": "Oslo", "days": 5,}', "Oslo/5"),
        ('["Oslo"]', "Oslo/3"),
        ('["Oslo", 5]', "Oslo/5"),
        ('```json\n{"city": "Oslo", "days": 5}\n```', "Oslo/5"),
        ('{"city": "Oslo", "days": null}', "Oslo/3"),
        ("{'city': 'Oslo', 'days': None}", "Oslo/3"),
        ("Oslo", "Oslo/3"),
        ("Oslo, Norway", "Oslo, Norway/3"),
        ("the 'old' town, 5", "the 'old' town, 5/3"),
        ("[1] of 'Oslo'", "[1] of 'Oslo'/3"),
        ("a = b", "a = b/3"),
        ("{“city”: “Oslo”, “days”: 5}", "Oslo/5"),
        ("“Oslo”, 5", "Oslo/5"),
        ("city=“Oslo”, days=5", "Oslo/5"),
        ('{"city": "“Oslo”"}', "“Oslo”/3"),
        ('("Oslo", 5)', "Oslo/5"),
        ('(city="Oslo", days=5)', "Oslo/5"),
        ('"Oslo", days=5', "Oslo/5"),
        ("'Oslo', days=5", "Oslo/5"),
        ('`{"city": "Oslo"}`', "Oslo/3"),
        ('json\n{"city": "Oslo"}', "Oslo/3"),
        ("“Oslo”, the town", "“Oslo”, the town/3"),
        ('("Oslo" or "Rome")', '("Oslo" or "Rome")/3'),
        ("(Oslo) and (Rome)", "(Oslo) and (Rome)/3"),
        ("Oslo, 5", "Oslo, 5/3"),
        ("city: Oslo", "city: Oslo/3"),
        ("json [1]", "json [1]/3"),
        ("get(city, days=5)", "get(city, days=5)/3"),
        ("a TV, size=55in", "a TV, size=55in/3"),
        ("Oslo, days=5", None),
        ("city: Oslo, days: 5", None),
        ("city：Oslo，days：5", None),
        ("{“city”：“Oslo”，“days”：5}", None),
        ("{‘city’: ‘Oslo’}", None),
        ("{city=Oslo}", None),
        ('"city": "Oslo", "days": 5', None),
        ('("Oslo", 5, 6)', None),
        ('("Oslo", five)', None),
        ("(city=Oslo)", None),
        ('"Oslo", city="Rome"', None),
        ('"Oslo", 5, days=6', None),
        ('city="Oslo", city="Rome"', None),
        ('city="Oslo", **{}', None),
        ("city=Oslo, days=5", None),
        ("{city: 'Oslo'}", None),
        ('{"city": "Oslo", "city": "Rome"}', None),
        ('{"city": "Oslo"', None),
        ('["Oslo", 5, 6]', None),
        ('```json\n{"city": Oslo}\n```', None),
    ],
)
def test_what_is_written_like_an_object_is_never_taken_as_plain_text(text, seen):
    def opt(city: str, days: int = 3) -> str:
        return f"{city}/{days}"

    result = run(opt, text)
    assert (result.text, result.error) == (seen, "") if seen else result.error == "bad_input"


def test_values_before_keywords_are_checked_like_the_others():
    def two(a: int, b: int = 1):
        return [a, b]

    assert run(two, '"1", b=2').text == "[1, 2]"
    assert "'a' input should be a valid integer" in run(two, '"x", b=2').text


@pytest.mark.parametrize(
    ("text", "path"),
    [
        (r'path="C:\data\docs"', r"C:\data\docs"),
        (r'path="C:\new\table.txt"', r"C:\new\table.txt"),
        (r"path='C:\\new\\table.txt'", r"C:\new\table.txt"),
        (r'path=r"C:\new\table.txt"', r"C:\new\table.txt"),
        (r'path=".\users\x"', r".\users\x"),
        (r'path="\d+\w"', r"\d+\w"),
        (r'path="\\d+"', r"\d+"),
        (r'path="a\nb\"\u00e9"', 'a\nb"é'),
        (r'path="C:\data", size=55in', r'path="C:\data", size=55in'),
    ],
)
def test_backslashes_in_keywords_are_escapes_only_where_they_can_be_meant(text, path):
    assert run(lambda path: path, text).text == path


@pytest.mark.parametrize(
    ("first", "other", "text", "seen"),
    [
        (list[int], int, "[1, 2, 3]", [[1, 2, 3], None]),
        (list[int], int, "[1, 2]", [[1, 2], None]),
        (list[int], int, "[1]", [[1], None]),
        (list[int], int, "[[1], 2]", [[1], 2]),
        (list[int], int, '["a", "b"]', "'xs' [0] input should be a valid integer"),
        (list[int], int, '[[1], "b"]', "'other' input should be a valid integer"),
        (list[int], int, "1, 2", "'xs' input should be a valid list"),
        (list[str], str, '["a"]', [["a"], None]),
        (list[str], str, '["a", "b", "c"]', [["a", "b", "c"], None]),
        (list[list[int]], int, "[[1], [2]]", [[[1], [2]], None]),
        (tuple[int, int], int, "[1, 2]", [[1, 2], None]),
        (list, list, '["a", "b"]', [["a", "b"], None]),
        (list, list, '[["a"], ["b"]]', [["a"], ["b"]]),
        (int, int, '["a", 2]', "'xs' input should be a valid integer"),
    ],
)
def test_a_list_for_the_first_parameter_is_taken_whole(first, other, text, seen):
    def keep(xs, other=None):
        return [xs, other]

    keep.__annotations__ = {"xs": first, "other": other}
    result = run(keep, text)
    if isinstance(seen, str):
        assert seen in result.text
    else:
        assert result.text == json.dumps(seen)


def test_places_of_positional_parameters_that_were_left_out_are_kept():
    def positional(a, b=1, c=2, /):
        return [a, b, c]

    for given in ({"a": 1, "c": 5}, {"a": 1, "b": None, "c": 5}, '{"a": 1, "c": 5}'):
        assert run(positional, given).text == "[1, 1, 5]"
    assert run(positional, {"a": 1}).text == "[1, 1, 2]"


def test_any_number_of_typed_values_is_a_list():
    def total(*numbers: float):
        return sum(numbers)

    def ordered(a: int = 1, *rest: int, key: str = "k"):
        return [a, rest, key]

    schema = json_schema(Tool("Total", "Adds.", total).parameters)
    assert schema["properties"]["numbers"] == {"type": "array", "items": {"type": "number"}}
    assert run(total, {"numbers": [1, 2.5]}).text == "3.5"
    assert run(total, "[1, 2.5]").text == "3.5"
    assert run(total, {"numbers": "many"}).error == "bad_input"
    assert run(ordered, {"rest": [2, 3], "key": "x"}).text == '[1, [2, 3], "x"]'
    assert run(ordered, {"a": 4}).text == '[4, [], "k"]'
    with pytest.raises(ToolError, match="name its parameters"):
        Tool("Any", "Takes any.", lambda **options: options)


def test_a_partial_keeps_types_and_description_and_what_it_has_filled_in():
    class Server:
        pass

    def mail(server: Server, to: str, copies: int = 1, urgent: bool = False):
        """Sends a mail."""
        return [to, copies, urgent]

    tool = Tool.from_function(functools.partial(mail, Server(), urgent=True))
    assert str(tool) == (
        '- mail: Sends a mail. Input: a JSON object with "to" (text), "copies" (whole number, optional).'
    )
    tools = ToolExecutor()
    tools.add(tool)
    assert tools.execute("mail", '{"to": "ada", "copies": "2"}').text == '["ada", 2, true]'
    assert tools.execute("mail", '{"to": "ada", "copies": "two"}').error == "bad_input"
    assert tools.execute("mail", {"to": "ada", "urgent": False}).error == "bad_input"
    assert run(functools.partial(mail, Server(), "ada", copies=2), "").ok


def test_lone_surrogates_do_not_reach_a_tool():
    for text in ("phone \ud83d", '{"query": "phone \\ud83d"}', {"query": "phone \ud83d"}):
        assert run(lambda query: query.encode(), text).text == "phone \ufffd"


def test_no_parameters_take_empty_input_only():
    for text in ("", " ", "{}", "None"):
        assert run(lambda: "12:00", text).text == "12:00"
    seen = run(lambda: "12:00", "Oslo", "Clock")
    assert seen.error == "bad_input"
    assert "Clock[]" in seen.text


def test_optional_only_parameters_may_be_left_out():
    assert run(lambda place="here": place, "").text == "here"
    assert run(lambda a="x", b="y": a + b, "").text == "xy"
    assert run(lambda a="x", b="y": a + b, "z").text == "zy"


def test_rich_types_are_validated_and_described():
    class Unit(enum.Enum):
        C = "C"
        F = "F"

    class Place(pydantic.BaseModel):
        city: str
        country: str = "Norway"

    def weather(
        place: Place,
        unit: Unit,
        days: Annotated[int, pydantic.Field(ge=1)] = 1,
        mode: Literal["a", "b"] = "a",
        note: str | None = None,
        tags: list[str] = [],
    ):
        return f"{place.city},{place.country},{unit.value},{days},{mode},{note},{tags}"

    text = '{"place": {"city": "Oslo"}, "unit": "F", "tags": ["x"]}'
    assert run(weather, text).text == "Oslo,Norway,F,1,a,None,['x']"
    assert "'days'" in run(weather, '{"place": {"city": "Oslo"}, "unit": "F", "days": 0}').text
    assert "'unit'" in run(weather, '{"place": {"city": "Oslo"}, "unit": "K"}').text
    assert "city" in run(weather, '{"place": {}, "unit": "F"}').text
    assert 'Tool[{"place": {"city": "text"}, "unit": "C"}]' in run(weather, "{}").text
    usage = str(Tool("Weather", "The weather.", weather))
    assert '"unit" (one of "C", "F")' in usage
    assert '"tags" (list of text, optional)' in usage
    schema = json_schema(Tool("Weather", "The weather.", weather).parameters)
    assert schema["required"] == ["place", "unit"]
    assert schema["properties"]["mode"]["enum"] == ["a", "b"]


class Colour(str, enum.Enum):
    red = "red"
    blue = "blue"


class Place(pydantic.BaseModel):
    x: int
    y: int


class Tree(pydantic.BaseModel):
    colour: Colour = Colour.red
    branches: list["Tree"] = []


Nested = typing_extensions.TypeAliasType("Nested", "list[Nested] | int")


@pytest.mark.parametrize(
    ("annotation", "words"),
    [
        (list[Place], 'list of object with "x", "y"'),
        (Place | None, 'object with "x", "y"'),
        (Colour | None, 'one of "red", "blue"'),
        (list[Colour], 'list of one of "red", "blue"'),
        (Tree, 'object with "colour", "branches"'),
        (Place | Tree, 'object with "x", "y" or object with "colour", "branches"'),
        (Nested, "list of the same or whole number"),
        (Literal["a"], 'one of "a"'),
        (datetime.date, "date such as 2026-01-31"),
        (datetime.time | None, "time such as 09:30:00"),
        (datetime.datetime, "date-time such as 2026-01-31T09:30:00"),
        (datetime.timedelta, "duration such as PT1H30M"),
        (uuid.UUID, "uuid such as 123e4567-e89b-12d3-a456-426614174000"),
        (decimal.Decimal, "number or text"),
        (pathlib.Path, "text"),
    ],
)
def test_types_are_told_in_words(annotation, words):
    def one(value):
        return value

    one.__annotations__ = {"value": annotation}
    assert str(Tool("One", "Takes it.", one)) == f"- One: Takes it. Input: {words}."


def test_the_samples_of_texts_in_a_form_of_their_own_fit():
    def keep(value, other):
        return str(value)

    for annotation in (datetime.date, datetime.time, datetime.datetime, datetime.timedelta, uuid.UUID):
        keep.__annotations__ = {"value": annotation, "other": str}
        sample = run(keep, "soon").text.rpartition("Tool[")[2].rstrip("]")
        assert run(keep, sample).ok


class Stars(enum.Enum):
    one = 1
    two = 2


@pytest.mark.parametrize("annotation", [Literal[1, 2, 3], Literal[1, 2] | None, Stars, Literal[2.0, True]])
@pytest.mark.parametrize("text", ["2", '{"stars": "2"}', '{"stars": 2}', 'stars="2"'])
def test_a_choice_of_numbers_takes_text(annotation, text):
    def rate(stars):
        return getattr(stars, "value", stars)

    rate.__annotations__ = {"stars": annotation}
    assert run(rate, text).text in ("2", "2.0")
    assert run(rate, "4").error == run(rate, "two").error == "bad_input"


def test_an_annotation_that_is_not_known_leaves_the_others_alone():
    def add(a: int, b: "int", c: "NoSuchType" = 0) -> "NoSuchType":  # noqa: F821
        """Adds."""
        return a + b

    assert [one.is_text for one in Tool.from_function(add).parameters] == [False, False, True]
    assert run(add, '{"a": "1", "b": "2"}').text == "3"
    assert run(add, '{"a": "1", "b": "two"}').error == "bad_input"


def test_a_class_has_the_types_of_what_makes_it():
    class Box:
        n: str = "of the class"

        def __init__(self, n: "int"):
            self.n = n

        def __str__(self):
            return f"Box {self.n!r}"

    class Smaller(Box):
        pass

    class Pair(typing.NamedTuple):
        a: "int"
        b: "NoSuchType" = 0  # noqa: F821

    for made in (Box, Smaller):
        assert run(made, "3").text == "Box 3"
        assert run(made, "three").error == "bad_input"
    assert run(Pair, '{"a": "1"}').text == "[1, 0]"


def test_parameter_types_that_no_text_can_fill_are_refused_at_registration():
    class Engine:
        pass

    def start(engine: Engine) -> str:
        return "on"

    with pytest.raises(ToolError, match="'engine' has a type"):
        ToolExecutor().register_tool("Start", "Starts it.", start)


class Cat(pydantic.BaseModel):
    kind: Literal["cat"]


class Dog(pydantic.BaseModel):
    kind: Literal["dog"]


def test_a_schema_names_no_definition_that_is_not_there():
    def adopt(pet: Annotated[Cat | Dog, pydantic.Field(discriminator="kind")]) -> str:
        return pet.kind

    assert "#/$defs" not in str(json_schema(Tool("Adopt", "Adopts.", adopt).parameters))
    assert run(adopt, '{"kind": "dog"}').text == "dog"
    assert str(Tool("Adopt", "Adopts.", adopt)).endswith('Input: object with "kind" or object with "kind".')


def test_fields_named_like_the_words_of_a_schema_stay_in_it():
    class Mapped(pydantic.BaseModel):
        mapping: dict[str, int]
        propertyName: str
        discriminator: Cat
        oneOf: Dog

    def keep(value: Mapped):
        return "kept"

    schema = json_schema(Tool("Keep", "Keeps.", keep).parameters)["properties"]["value"]
    assert list(schema["properties"]) == schema["required"] == list(Mapped.model_fields)


def test_two_classes_of_one_name_that_hold_themselves_keep_their_own_schema():
    def node(of: type) -> type:
        class Node(pydantic.BaseModel):
            value: of  # type: ignore[valid-type]
            children: list["Node"] = []

        Node.model_rebuild(_types_namespace={"Node": Node})
        return Node

    def graft(a, b):
        return "done"

    graft.__annotations__ = {"a": node(int), "b": node(str)}
    schema = json_schema(Tool("Graft", "Grafts.", graft).parameters)
    kinds = {name: one["properties"]["value"]["type"] for name, one in schema["$defs"].items()}
    assert kinds == {"Node": "integer", "Node_b": "string"}
    assert schema["properties"]["b"]["properties"]["children"]["items"] == {"$ref": "#/$defs/Node_b"}
    assert schema["$defs"]["Node_b"]["properties"]["children"]["items"] == {"$ref": "#/$defs/Node_b"}


@pytest.mark.parametrize(
    ("annotation", "given", "wanted"),
    [
        (list[str], '["a", "b"]', ["a", "b"]),
        (dict[str, int], ' {"a": 1}', {"a": 1}),
        (Cat, '{"kind": "cat"}', Cat(kind="cat")),
        (str, '["a"]', '["a"]'),
        (str | list[str], '["a"]', '["a"]'),
    ],
)
def test_json_in_quotes_is_read_where_the_type_takes_no_text(annotation, given, wanted):
    got = []

    def keep(value, other=""):
        got.append(value)

    keep.__annotations__ = {"value": annotation}
    tools = ToolExecutor()
    tools.register_tool("Keep", "Keeps.", keep)
    assert tools.execute("Keep", {"value": given}).ok
    assert got == [wanted]


@pytest.mark.parametrize("annotation", [str, str | None, Annotated[str, pydantic.Field(description="a note")]])
def test_text_may_come_as_a_number_or_stand_in_brackets(annotation):
    def note(text):
        return text

    note.__annotations__ = {"text": annotation}
    registry = ToolExecutor()
    registry.register_tool("Note", "Notes.", note)
    assert str(Tool("Note", "Notes.", note)) == "- Note: Notes."
    for number in (12345, 1.5):
        assert registry.execute("Note", {"text": number}).text == str(number)
    for text in ("[1, 2]", '{"a": 1}', "x"):
        assert registry.execute("Note", text).text == text
    assert registry.execute("Note", {"text": ["a"]}).error == "bad_input"


def test_items_of_an_iterable_are_checked_before_the_tool_runs():
    done = []

    def delete(ids: Iterable[int], really: bool = True):
        done.extend(ids)
        return "deleted"

    assert "'ids' [2] input should be a valid integer" in run(delete, '{"ids": [1, 2, "x"]}').text
    assert (run(delete, '{"ids": [1, "2"]}').text, done) == ("deleted", [1, 2])


def test_a_typed_dict_is_taken_or_refused_with_the_way_out():
    class Point(typing.TypedDict):
        x: int

    def draw(point: Point) -> str:
        return repr(point)

    if sys.version_info >= (3, 12):
        assert run(draw, '{"x": "1"}').text == "{'x': 1}"
    else:
        with pytest.raises(ToolError, match="take TypedDict from typing_extensions"):
            Tool("Draw", "Draws.", draw)


def test_strict_types_take_what_json_can_hold():
    class Visit(pydantic.BaseModel):
        model_config = pydantic.ConfigDict(strict=True)
        day: datetime.date

    def book(visit: Visit) -> str:
        """Books a visit."""
        return visit.day.isoformat()

    tools = ToolExecutor()
    tools.tool(book)
    assert tools.execute("book", {"visit": {"day": "2026-03-01"}}).text == "2026-03-01"
    assert "2026-01-31" in tools.execute("book", {"visit": {"day": "soon"}}).text  # the sample is a date


@pytest.mark.parametrize("annotation", [typing.Callable, type, {"type": "string"}, re.Match, 3])
def test_types_without_a_json_schema_are_refused_at_registration(annotation):
    def start(engine):
        return "on"

    start.__annotations__["engine"] = annotation
    with pytest.raises(ToolError, match="'engine' has a type"):
        Tool("Start", "Starts it.", start)


def test_an_annotation_that_is_prose_is_no_type():
    def look(city: "the city") -> str:  # noqa: F722
        return city

    assert run(look, "Oslo").text == "Oslo"


def test_functions_without_a_readable_signature_take_text():
    assert run(len, "abc").text == "3"
    assert run(lambda *words: "+".join(words), "abc").text == "abc"
    assert run(lambda text, *more, **other: text, "abc").text == "abc"
    assert run(str, "abc").text == "abc"


def test_unresolvable_annotations_are_taken_as_text():
    def look(query: "NoSuchType") -> str:  # noqa: F821
        return query

    assert run(look, "x").text == "x"


def test_callable_objects_and_bound_methods_are_tools():
    class Notes:
        def __init__(self):
            self.kept = []

        def add(self, text: str) -> str:
            self.kept.append(text)
            return f"{len(self.kept)} notes"

        def __call__(self, text: str) -> str:
            return text[::-1]

    notes = Notes()
    assert run(notes.add, "a").text == "1 notes"
    assert run(notes, "ab").text == "ba"


# --- results


@dataclass
class Point:
    x: int
    y: int


class Row(pydantic.BaseModel):
    name: str


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("plain {x} %s", "plain {x} %s"),
        (3, "3"),
        (0, "0"),
        (False, "False"),
        (2.5, "2.5"),
        ({"a": "北京"}, '{"a": "北京"}'),
        ([1, "b"], '[1, "b"]'),
        ((1, 2), "[1, 2]"),
        ({3}, "[3]"),
        (Point(1, 2), '{"x": 1, "y": 2}'),
        (Row(name="x"), '{"name": "x"}'),
        (b"caf\xc3\xa9", "café"),
        (b"\xff", "\ufffd"),
        (None, "The tool gave no result."),
        ("", "The tool gave an empty text."),
        (" \n", "The tool gave an empty text."),
        ({(1, 2): 3}, "{(1, 2): 3}"),
        ("phone \ud83d", "phone \ufffd"),
        ("a\x00b", "ab"),
        ([Point(1, 2)], '[{"x": 1, "y": 2}]'),
        ([Row(name="x"), {"a": {Row(name="y").name}}, b"z"], '[{"name": "x"}, {"a": ["y"]}, "z"]'),
        (Point(Row(name="x"), datetime.date(2024, 1, 2)), '{"x": {"name": "x"}, "y": "2024-01-02"}'),
    ],
)
def test_results_of_any_type_become_readable_text(value, text):  # T03
    assert run(lambda: value, "").text == text


def test_generator_is_run_to_its_end():
    def lines():
        yield "a"
        yield "b"

    assert run(lines, "").text == '["a", "b"]'


def test_iterators_of_every_kind_are_read():
    async def later():
        yield "a"
        yield "b"

    async def promised():
        return later()

    for iterator in (lambda: map(str.lower, "AB"), lambda: iter("ab"), lambda: filter(None, "ab"), later, promised):
        for timeout in (60.0, None):
            assert run(iterator, "", timeout=timeout).text == '["a", "b"]'
    assert run(lambda: zip("a", [1], strict=True), "").text == '[["a", 1]]'


async def _forever():
    while True:
        yield "x"


@pytest.mark.parametrize("endless", [lambda: itertools.repeat("x"), _forever])
def test_of_an_endless_iterator_the_first_items_are_read(endless):
    tools = ToolExecutor()
    tools.register_tool("Endless", "Never ends.", endless, timeout=None)
    value = tools.execute("Endless", "").value
    assert value == ["x"] * 10_000 + ["[cut: the first 10,000 items shown]"]


def test_a_generator_is_not_read_on_when_time_is_out():
    ended = threading.Event()

    def slow():
        try:
            while True:
                time.sleep(0.01)
                yield "x"
        finally:
            ended.set()

    assert run(slow, "", timeout=0.05).error == "timed_out"
    assert ended.wait(20)


def test_a_plain_function_may_return_an_awaitable_inside_a_running_loop():
    async def slow(text: str) -> str:
        await asyncio.sleep(0)
        return text.upper()

    async def main():
        return run(lambda text: slow(text), "in a loop", timeout=None).text

    assert asyncio.run(main()) == "IN A LOOP"


def test_result_that_holds_itself_is_no_crash():
    value = []
    value.append(value)
    assert run(lambda: value, "").text == "[[...]]"


def test_long_results_are_cut_with_a_note():
    seen = run(lambda: "x" * 10_000, "")
    assert seen.text == "x" * 4_000 + "\n[cut: 4,000 of 10,000 characters shown]"
    assert len(seen.value) == 10_000


def test_async_tools_are_awaited_also_inside_a_running_loop():
    async def slow(text: str) -> str:
        await asyncio.sleep(0)
        return text.upper()

    async def main():
        return run(slow, "in a loop").text, run(slow, "no limit", timeout=None).text

    assert run(slow, "hi").text == "HI"
    assert asyncio.run(main()) == ("IN A LOOP", "NO LIMIT")


# --- what goes wrong


def test_unknown_tool_lists_the_names_and_suggests_the_nearest():
    tools = ToolExecutor()
    tools.register_tool("Search", "Looks things up.", str.upper)
    seen = tools.execute("Serach", "x")
    assert (seen.ok, seen.error) == (False, "unknown_tool")
    assert seen.text == "There is no tool named 'Serach'. Did you mean Search? Tools: Search."
    assert ToolExecutor().execute("Search", "x").text == "There is no tool named 'Search'. Tools: none."


@pytest.mark.parametrize(
    "error",
    [
        ValueError("bad"),
        KeyError("k"),
        Exception(),
        RecursionError(),
        SystemExit(3),
        GeneratorExit(),
        MemoryError(),
        asyncio.CancelledError(),
    ],
)
def test_a_tool_may_raise_anything(error):
    def broken(text):
        raise error

    for timeout in (60.0, None):
        seen = run(broken, "x", "Broken", timeout=timeout)
        assert (seen.ok, seen.error) == (False, "raised")
        assert seen.text.startswith(f"Broken failed: {type(error).__name__}")


def test_tool_error_speaks_to_the_model_in_its_own_words():
    def refuse(text):
        raise ToolError("Give a city, such as Oslo.")

    assert run(refuse, "x", retries=3).text == "Give a city, such as Oslo."


def test_result_whose_text_raises_is_no_failed_call():
    class Odd:
        def __str__(self):
            raise ValueError("no text")

    calls = []
    seen = run(lambda: calls.append(1) or Odd(), "", retries=3)
    assert (seen.ok, seen.text, len(calls)) == (True, "Odd", 1)


@pytest.mark.parametrize("base", [ValueError, ToolError, TimeoutError])
def test_an_error_whose_text_raises_is_told_by_its_type(base):
    class Broken(base):
        def __str__(self):
            raise RuntimeError("no text")

    def fail(text):
        raise Broken

    seen = run(fail, "x")
    assert not seen.ok
    assert "Broken" in seen.text


def test_a_timeout_that_a_tool_raises_shows_no_key():
    def fail(text):
        raise TimeoutError("GET /?api_key=abcdef123456")

    assert run(fail, "x").text.startswith("Tool timed out (GET /?api_key=[key])")


def test_a_timeout_without_a_text_is_told_without_brackets():
    def fail(text):
        raise TimeoutError

    assert run(fail, "x").text == "Tool timed out. Try another input or another tool."


def test_ctrl_c_in_a_tool_is_not_swallowed():
    def stop(text):
        raise KeyboardInterrupt

    for timeout in (60.0, None):
        with pytest.raises(KeyboardInterrupt):
            run(stop, "x", timeout=timeout)


def test_slow_tool_times_out():  # T12
    released = threading.Event()
    seen = run(lambda: released.wait(30), "", "Slow", timeout=0.05)
    released.set()
    assert (seen.ok, seen.error) == (False, "timed_out")
    assert "Slow timed out" in seen.text
    tools = ToolExecutor()
    tools.register_tool("Slow", "Slow.", lambda: released.wait(30) and time.sleep(5), timeout=None)
    assert tools.execute("Slow", "", timeout=0.05).error == "timed_out"


def test_without_a_time_limit_a_tool_runs_in_the_callers_thread():
    assert (
        run(lambda: threading.current_thread().name, "", timeout=None).text == threading.current_thread().name
    )
    assert run(lambda: threading.current_thread().name, "", "Clock").text == "tool Clock"


def test_threads_serve_one_call_after_another_and_few_are_kept():
    tools, together = ToolExecutor(), threading.Barrier(2 * MOST_IDLE)
    tools.register_tool("Who", "Tells its thread.", lambda: threading.current_thread().name)
    tools.register_tool("Wait", "Waits for the others.", lambda: together.wait(30) >= 0)
    before = {thread for thread in threading.enumerate() if thread.name.startswith("hello_react idle")}
    for _ in range(50):
        assert tools.execute("Who", "").text == "tool Who"
    callers = [threading.Thread(target=tools.execute, args=("Wait", "")) for _ in range(2 * MOST_IDLE)]
    for thread in callers:
        thread.start()
    for thread in callers:
        thread.join()
    for _ in range(1_000):  # the last ones may still be on their way out
        ours = [one for one in threading.enumerate() if one.name.startswith(("tool ", "hello_react idle"))]
        if len(set(ours) | before) <= MOST_IDLE + len(before):
            break
        time.sleep(0.01)
    assert len(set(ours) | before) <= MOST_IDLE + len(before)
    assert tools.execute("Who", "").text == "tool Who"


def test_a_thread_that_serves_again_has_the_new_callers_context():
    seen = contextvars.ContextVar("seen", default="nothing")

    def note(text):
        found = seen.get()
        seen.set(text)
        return found

    assert [run(note, word).text for word in ("a", "b", "c")] == ["nothing"] * 3


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs a fork")
def test_tools_run_after_a_fork():
    code = """
import os
from hello_react import ToolExecutor
tools = ToolExecutor()
tools.register_tool("Up", "Capitals.", str.upper)
assert tools.execute("Up", "a").text == "A"
child = os.fork()
if not child:
    os._exit(0 if tools.execute("Up", "b", timeout=20).text == "B" else 1)
assert os.waitpid(child, 0)[1] == 0
"""
    subprocess.run([sys.executable, "-W", "ignore", "-c", code], check=True, timeout=60)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs a fork")
def test_the_child_of_a_tool_that_forks_ends_with_it():
    code = """
import os, signal, sys, time
from hello_react import ToolExecutor
def fork():
    child = os.fork()
    if not child:
        sys.exit()
    for _ in range(1_000):
        if os.waitpid(child, os.WNOHANG)[0]:
            return "ended"
        time.sleep(0.01)
    os.kill(child, signal.SIGKILL)
    return "hangs"
tools = ToolExecutor()
tools.register_tool("Fork", "Forks.", fork)
assert tools.execute("Fork", "", timeout=30).text == "ended"
"""
    subprocess.run([sys.executable, "-W", "ignore", "-c", code], check=True, timeout=60)


def test_a_thread_that_serves_again_has_no_event_loop_of_the_call_before():
    async def found():
        return threading.current_thread()

    def old_style():
        try:
            loop = asyncio.get_event_loop()
        except RuntimeError:
            loop = asyncio.new_event_loop()
            asyncio.set_event_loop(loop)
        with contextlib.closing(loop):
            served.append(loop.run_until_complete(found()))

    served = []
    for _ in range(20):
        assert run(old_style, "").ok
        for _ in range(1_000):  # until the thread is idle
            if not served[-1].name.startswith("tool "):
                break
            time.sleep(0.001)
    assert len(set(served)) < 20


def test_ctrl_c_while_a_thread_starts_does_not_leave_it_waiting_for_ever(monkeypatch):
    class NoneIdle(list):
        pop = [].pop

    def start(thread, real=threading.Thread.start):
        real(thread)
        started.append(thread)
        raise KeyboardInterrupt

    started = []
    monkeypatch.setattr(background, "_idle", NoneIdle())
    monkeypatch.setattr(threading.Thread, "start", start)
    with pytest.raises(KeyboardInterrupt):
        run(lambda: None, "")
    for _ in range(1_000):
        if started[0].name == "hello_react idle":
            break
        time.sleep(0.01)
    assert started[0].name == "hello_react idle"


def test_retries_help_against_passing_faults():
    tries = []

    def flaky(text):
        tries.append(1)
        if len(tries) < 3:
            raise OSError("busy")
        return "done"

    assert run(flaky, "x", retries=2).text == "done"
    tries.clear()
    assert run(flaky, "x", retries=1).error == "raised"
    assert len(tries) == 2


def test_retries_end_with_the_time_that_is_left():
    tries, released = [], threading.Event()

    def fail(text):
        tries.append(1)
        raise OSError("busy")

    tools = ToolExecutor()
    tools.register_tool("Fail", "Fails.", fail, retries=20)
    tools.register_tool("Slow", "Is slow.", lambda text: released.wait(60), retries=3, timeout=100)
    began = time.monotonic()
    assert tools.execute("Fail", "x", timeout=0.3).text.startswith("Fail failed: OSError: busy. ")
    assert len(tries) <= 2
    seen = tools.execute("Slow", "x", timeout=0.5)
    released.set()
    assert seen.text.startswith("Slow timed out (no result within 0.5 seconds). ")
    assert time.monotonic() - began < 20


def test_a_retry_has_the_tools_own_time_limit_again():
    tries, released = [], threading.Event()

    def slow(text):
        tries.append(1)
        return "done" if len(tries) == 2 else released.wait(60)

    assert run(slow, "x", retries=1, timeout=2.0).text == "done"
    released.set()


@pytest.mark.parametrize(
    "text",
    [
        "403 for https://example.com/search?q=Oslo&api_key=abcdef123456",
        "Authorization: Bearer abcdef123456",
        "key sk-abcdef123456",
        "{'api_key': 'abcdef123456'}",
        "appid=abcdef123456",
        "token: abcdef123456",
    ],
)
def test_keys_in_a_tools_error_are_masked(text):  # V04
    def broken(query):
        raise OSError(text)

    seen = run(broken, "x")
    assert "abcdef" not in seen.text
    assert "[key]" in seen.text


# --- one run


def test_tools_that_keep_state_are_fresh_in_every_run():
    class Page:
        def __init__(self):
            self.opened = 0

        def for_run(self):
            return Page()

        def open(self, text: str) -> int:
            self.opened += 1
            return self.opened

        def count(self) -> int:
            return self.opened

    page = Page()
    tools = ToolExecutor()
    tools.register_tool("Open", "Opens.", page.open)
    tools.register_tool("Count", "Counts.", page.count)
    one, two = tools.for_run(), tools.for_run()
    assert [one.execute("Open", "x").text, one.execute("Open", "x").text, one.execute("Count", "").text] == [
        "1",
        "2",
        "2",
    ]
    assert two.execute("Count", "").text == "0"
    assert page.opened == 0


def test_methods_in_disguise_are_renewed_too():
    def unnamed(method):
        def wrapper(self, *args):
            return method(self, *args)

        return wrapper

    class Notes(list):
        def for_run(self):
            return Notes()

        @unnamed
        def count(self, *args):
            return len(self)

        def add(self, kind, text):
            self.append((kind, text))
            return len(self)

        @classmethod
        def about(cls, text):
            return "notes"

    notes, tools = Notes(), ToolExecutor()
    tools.register_tool("Keep", "Keeps.", notes.append)
    tools.register_tool("Add", "Adds.", functools.partial(functools.partial(notes.add, "a")))
    tools.register_tool("Count", "Counts.", notes.count)
    tools.register_tool("About", "Tells.", notes.about)
    tools.register_tool("Class", "Makes some.", Notes)
    one, two = tools.for_run(), tools.for_run()
    assert [one.execute("Keep", "x").ok, one.execute("Add", "y").text, one.execute("Count", "").text] == [
        True, "2", "2",
    ]
    assert (two.execute("Count", "").text, len(notes), one.execute("About", "x").text) == ("0", 0, "notes")


def test_callable_object_with_for_run_is_renewed():
    class Counter:
        def __init__(self):
            self.n = 0

        def for_run(self):
            return Counter()

        def __call__(self) -> int:
            self.n += 1
            return self.n

    tools = ToolExecutor()
    tools.register_tool("Next", "Counts.", Counter())
    assert tools.for_run().execute("Next", "").text == tools.for_run().execute("Next", "").text == "1"


def test_context_variables_reach_the_tool():
    import contextvars

    user = contextvars.ContextVar("user", default="nobody")
    user.set("Ada")
    assert run(lambda: user.get(), "").text == "Ada"


@pytest.mark.skipif(sys.version_info < (3, 10), reason="needs 3.10")
def test_many_threads_share_one_registry():
    tools = ToolExecutor()
    tools.register_tool("Double", "Doubles.", lambda text: text * 2)
    results = []
    threads = [
        threading.Thread(
            target=lambda i=i: results.append(tools.execute("Double", str(i)).text == str(i) * 2)
        )
        for i in range(50)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(results)
    assert len(results) == 50
