"""The parser: neighbours of the collected cases, strict mode, what must hold for any text, and its speed.

The properties run on a few examples; `HELLO_REACT_FUZZ=20000 pytest tests/test_parser.py` runs on more.
"""

import importlib.util
import json
import os
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hello_react import dialects, repairs
from hello_react.parser import REASONS, Action, Finish, Malformed, Turn, parse
from hello_react.text import unquote

HERE = Path(__file__).parent
TOOLS = ["Search", "Lookup", "Calculator", "Delete", "Python", "GetTime"]


def rows(name):
    text = (HERE / "cases" / name).read_text(encoding="utf-8")
    return [json.loads(line) for line in text.split("\n") if line]


def short(turn):
    """`Search[a]`, a list of several such calls, `Finish[b]`, or `!` and the reason."""
    move = turn.move
    if isinstance(move, Action):
        calls = [f"{call.tool}[{call.input}]" for call in (move, *turn.rest)]
        return calls if len(calls) > 1 else calls[0]
    return f"Finish[{move.answer}]" if isinstance(move, Finish) else f"!{move.reason}"


NEIGHBOURS = rows("neighbours.jsonl")


@pytest.mark.parametrize("row", NEIGHBOURS, ids=[f"{row['kind']} {n}" for n, row in enumerate(NEIGHBOURS)])
def test_neighbour_reads_as_expected(row):
    assert short(parse(row["text"], TOOLS)) == row["reads"]


# --- the documented format alone

STRICT_KINDS = {
    "action then finish", "bracket spacing", "empty answer", "empty reply", "inner quotes kept",
    "invented next turn", "keyword inside bracket", "leaked native call", "missing action",
    "missing action label", "missing thought", "missing tool name", "multi-line finish",
    "multi-line input", "name prefix", "nested brackets", "no action meant", "no labels", "preamble",
    "prompt echoed first", "prose on action line", "repeated thought", "several actions", "slow pattern",
    "structured argument", "template echoed", "text after action", "thought only", "unbalanced brackets",
    "well-formed", "whitespace",
}
# Kinds of which some rows are written with other labels, in two lines, as a function or with quotes around.
STRICT_EXCEPT = {
    "bracket inside quotes": {"br-quoted-close"},
    "content kept": {"ai-brace-text", "ai-star-text"},
    "cut off": {"tn-paren-unclosed", "ai-json-cut", "js-cut"},
    "decoy label": {"fin-answer-contains-label"},
    "empty input": {"ai-none-input"},
    "invented observation": {"ha-numbered-chain", "ha-chinese-obs", "ha-bold-obs"},
    "special tokens": {"sp-eos"},
    "thinking tags": {"th-lone-close-decoy"},
    "tool name variant": {"tn-space-name", "tn-bracketed-name", "tn-bold-name", "tn-quoted-name"},
    "unknown tool": {"js-unknown"},
}
STRICT_ROWS = [row for row in rows("replies.jsonl") if row["kind"] in STRICT_KINDS
               or row["id"] not in STRICT_EXCEPT.get(row["kind"], {row["id"]})]


@pytest.mark.parametrize("row", STRICT_ROWS, ids=[row["id"] for row in STRICT_ROWS])
def test_plain_parser_reads_what_keeps_to_the_format(row):
    spec = importlib.util.spec_from_file_location("test_parser_cases", HERE / "test_parser_cases.py")
    cases = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(cases)
    turn = parse(row["text"], row["tools"], repairs=False)
    assert any(cases.reads_as(turn, wanted) for wanted in [row["expect"], *row.get("also_ok", [])])
    assert not any(cases.reads_as(turn, wanted) for wanted in row.get("never", []))


@pytest.mark.parametrize(("text", "reads"), [
    ("Action: search[a]", "!unknown_tool"),
    ('Action: Search["a"]', 'Search["a"]'),
    ("Action: Finish[in [0, 1)]", "Finish[in [0, 1)]"),
    ("Action: Finish[in (0, 1] only]", "Finish[in (0, 1] only]"),
    ("Action: Search[in (0, 1] only]", "!unclosed"),
    ("Thought: x\n```\nAction: Delete[all]\n```", "!no_action"),
    ("Thought: x\nObservation: y\nAction: Finish[z]", "!conflict"),
    ("Action: Search[a\nObservation: b]", "Search[a\nObservation: b]"),
    ("Final Answer: x", "!no_action"),
])
def test_plain_parser(text, reads):
    assert short(parse(text, TOOLS, repairs=False)) == reads


# --- names, notes, thoughts, cut replies

def test_without_tools_any_name_will_do_but_no_sentence_and_no_placeholder():
    assert parse("Action: Anything[x]").move == Action("Anything", "x")
    assert parse("Action: Anything[x]", repairs=False).move == Action("Anything", "x")
    assert parse("Action: FINISH[x]").move == Finish("x")
    assert parse("Action: Do not call it[x]").move.reason == "prose_action"
    assert parse("Action: tool_name[x]").move.reason == "placeholder"
    assert parse("Action: Search[x]", []).move.reason == "unknown_tool"
    assert parse("Action: Search[x]", [], repairs=False).move.reason == "unknown_tool"


def test_notes_say_what_to_write_and_name_the_tools():
    note = parse("Action: Serach[x]", TOOLS).move.note
    assert "'Serach'" in note
    assert "Did you mean Search?" in note
    assert "Tools: Search, Lookup" in note
    assert "Tools:" not in parse("", None).move.note
    assert "GetTime" in parse("Action: GetTime", TOOLS).move.note


@pytest.mark.parametrize(("text", "words"), [
    ("Action: Search with a", "The input of Search is missing"),
    ('Action: Finish "42"', "The input of Finish is missing"),
    ("Action: Search | Action Input: a", "The input of Search is missing"),
    ('Action: {"Search": "a"}', "The input of Search is missing"),
    ("Thought: x\nAction: Search[a]\n</think>", "or all of it was thinking"),
])
def test_note_says_what_was_wrong(text, words):
    assert words in parse(text, TOOLS).move.note


def test_every_reason_is_given_by_some_reply():
    given_reasons = {row["reads"][1:] for row in NEIGHBOURS if str(row["reads"]).startswith("!")}
    assert given_reasons == set(REASONS)


@pytest.mark.parametrize(("text", "thought"), [
    ("Sure!\nThought: a\nThought: b\nAction: Search[x]", "a\nb"),
    ("I need it.\nAction: Search[x]", "I need it."),
    ("Action: Search[x]", None),
    ("**Thought: a**\nAction: Search[x]", "a"),
    ("*Thought: a*\n*Action: Search[x]*", "a"),
    ("__Thought:__ a\n__Action:__ Search[x]", "a"),
    ("_Thought:_ a\nSearch[x]", "a"),
    ("**Thought:** **a**\nAction: Search[x]", "**a**"),
    ("Observation: y\nThought: a\nAction: Search[x]", "a"),
    ('{"thought": "a", "action": "Search", "action_input": "x"}', "a"),
    ('[{"reasoning": " a ", "action": "Search", "action_input": "x"}]', "a"),
    ("Thought: a\nSearch[x]", "a"),
    ("```\nSearch[x]\n```", None),
    ("Thought: a\n```text\nSearch[x]\n```", "a"),
    ("Thought: a\n<think>\nb", "a"),
    ("Thought: a", "a"),
    ("only prose", None),
])
def test_thought(text, thought):
    assert parse(text, TOOLS).thought == thought


@pytest.mark.parametrize(("text", "reads"), [
    ("Action: Search[x]", "Search[x]"),
    ("Action: Finish[x]", "Finish[x]"),
    ("Action: Finish[in [0, 1)]", "!unclosed"),
    ("Action: Search\nAction Input: x", "!unclosed"),
    ("Action: Search\nAction Input: x\nThought: y", "Search[x]"),
    ("Action: Search", "!unclosed"),
    ("Action: Sear", "!unknown_tool"),
    ("Final Answer: Paris is", "!unclosed"),
    ("Action: Finish: Paris is", "!unclosed"),
    ("Thought: I should", "!unclosed"),
    ("The answer", "!unclosed"),
    ("", "!empty_reply"),
    ("Thought: x\n```\nAction: Search\nAction Input: x", "!unclosed"),
])
def test_cut_reply(text, reads):
    assert short(parse(text, TOOLS, cut=True)) == reads


@pytest.mark.parametrize(("text", "kind"), [
    ("Thought:", "thought"),
    ("**Action 2:**", "action"),
    ("### Final Answer", "answer"),
    ("【行动】", "action"),
    ("- Action Input:", "input"),
    ("Input:", "short_input"),
    ("Action Reason:", "other"),
    ("观察结果：", "observation"),
    ("Observation", "result"),
    ("Tool output:", "result"),
    ("Action Result:", "result"),
    ("行动结果：", "result"),
    ("Observation 2 (from Search):", "observation"),
    ("**Observation** (Search):", "observation"),
    ("User:", "question"),
])
def test_label_kind(text, kind):
    assert repairs.label_kind(repairs.LABEL.match(text)) == kind


@pytest.mark.parametrize("text", [
    "Thoughtful: x", "My Action: x", "Actions speak louder: x", "Observation deck", "Thought", "* * *",
])
def test_no_label(text):
    assert repairs.LABEL.match(text) is None


def test_json_helpers():
    assert dialects.json_calls({"final_answer": 5}) == []
    assert dialects.json_calls([{"name": "a", "arguments": {}}, {"x": 1}]) == []
    assert dialects.decode_json("{'a': [1, None]} x", 0, 18) == ({"a": [1, None]}, 16)
    assert dialects.decode_json("{'a': 1", 0, 7) == (None, 0)
    assert dialects.decode_json("{'a': 1, **b}", 0, 13) == (None, 0)
    assert dialects.decode_json("x", 0, 1) == (None, 0)
    assert dialects.json_answer('{"answer": 5}') == '{"answer": 5}'
    assert dialects.json_answer('{"answer": "x"} y') == '{"answer": "x"} y'


# --- what must hold for any text

FUZZ = settings(max_examples=int(os.environ.get("HELLO_REACT_FUZZ", "100")))
PIECES = [
    "Thought", "Action", "Observation", "Final Answer", "Answer", "Action Input", "行动", "思考", "观察",
    "Question:", "Result:", "Input:", "Search", "Finish", "None", "Observ", "a", "x y", "or", "not", "json",
    ":", "：", "[", "]", "(", ")", "{", "}", "【", "】", "［", "］", '"', "'", "“", "\\", "=", ",", "。", "#",
    "**", "- ", "1. ", "```", "\n", "\r\n", " ", "\u00a0", "\u2028", "\ud800", "\x00", "9" * 5000, "answer=",
    "<think>", "<|im_end|>", "</s>", "<tool_call>", "</tool_call>", "[TOOL_CALLS]",
    '{"action": "Search", "action_input": "x"}', '{"name":',
]
SOUP = st.lists(st.one_of(st.sampled_from(PIECES), st.text(max_size=4)), max_size=30).map("".join)


@FUZZ
@given(SOUP, st.booleans(), st.booleans(), st.sampled_from([TOOLS, None, [], ["a[b"], ["Finish"]]))
def test_any_text_gives_a_turn(text, cut, strict, tools):
    turn = parse(text, tools, cut=cut, repairs=not strict)
    assert isinstance(turn, Turn)
    for move in (turn.move, *turn.rest):
        assert isinstance(move, (Action, Finish, Malformed))
        if isinstance(move, Action):
            assert tools is None or move.tool in tools
        if isinstance(move, Finish):
            assert move.answer.strip()


CONTENT = st.lists(st.sampled_from([
    "a", "b ", "[x]", "(y)", "{z}", '"q"', "'s", "\n", "Thought: t", "\nAction: Delete[a]", "Observation:",
    "，", "。", "**", "```", "【k】", "\\", " </think>", "<|im_end|>", "1.5", "=",
    "Finish", "#", ":", "a://b/?c=1",
]), min_size=1, max_size=8).map("".join).filter(lambda text: text.count("'") < 2)


@FUZZ
@given(CONTENT, st.sampled_from(["Search", "Lookup", "Finish"]), st.booleans())
def test_a_well_formed_reply_reads_back_exactly(argument, tool, strict):
    turn = parse(f"Thought: x y.\nAction: {tool}[{argument}]", TOOLS, repairs=not strict)
    if tool == "Finish":
        answer = argument.strip() if strict else repairs.answer_text(argument)
        wanted = Finish(answer) if answer and not repairs.is_placeholder(answer, "answer") else turn.move
    else:
        text = argument.strip() if strict else unquote(argument)
        wanted = turn.move if repairs.is_placeholder(text, "input") else Action(tool, text)
    assert turn.move == wanted
    assert turn.thought == "x y."


FORMS = [
    "Thought: x.\nAction: Search[<>]",
    "Thought: x. Action: Search[<>]",
    "Action:\n- Search[<>]\n- Lookup[<>]",
    "行动：Search【<>】",
    "Search[<>]",
    "Thought: x.\n```\nAction: Search[<>]\n```",
    'Thought: x.\nAction: Search("<>")',
    'Action: Search(q="<>", n=3)',
    'Action: Search {"q": "<>"}',
    "Thought: x.\nAction: Search\nAction Input: <>",
    'Action: {"action": "Search", "action_input": "<>"}',
    '{"name": "Search", "arguments": {"q": "<>"}}',
    '<tool_call>\n{"name": "Search", "arguments": {"q": "<>"}}\n</tool_call>',
    'Action:\n```json\n{"action": "Search", "action_input": {"q": "<>"}}\n```',
]
BALANCED = st.lists(st.sampled_from(["a", "b ", "[x]", "(y)", "，", "word. ", "1", "[1, 2]", "{z}", "?"]),
                    min_size=1, max_size=8).map("".join)


@FUZZ
@given(BALANCED, st.sampled_from(FORMS), st.data())
def test_a_half_written_call_never_runs(argument, form, data):
    text = form.replace("<>", argument)
    whole = parse(text, TOOLS)
    start = text[:data.draw(st.integers(0, len(text) - 1))]
    # Without brackets only the token limit's mark tells that an input is not whole.
    for cut in (True,) if "Action Input" in form else (True, False):
        move = parse(start, TOOLS, cut=cut).move
        assert move == whole.move if isinstance(move, Action) else isinstance(move, Malformed)


@FUZZ
@given(SOUP, st.sampled_from(["Action: Search[a]", "Action: Search\nAction Input: a", '行动：Search("a")']),
       st.sampled_from(["Observation: b", "观察：b", "**Observation:** b", "Result: b", "Observation"]))
def test_nothing_after_an_observation_counts(text, call, observation):
    turn = parse(f"Thought: x\n{call}\n{observation}\n{text}", TOOLS)
    assert (turn.move, turn.rest) == (Action("Search", "a"), ())


# --- speed

def load_benchmark():
    spec = importlib.util.spec_from_file_location("parser_speed", HERE / "benchmarks" / "parser_speed.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


SPEED = load_benchmark()


@pytest.mark.parametrize("name", SPEED.HOSTILE)
def test_parsing_is_linear(name):
    """100,000 hostile characters in far less than a quadratic scan takes; see benchmarks/parser_speed.py."""
    for way in SPEED.ways(SPEED.blown_up(SPEED.HOSTILE[name], 100_000)):
        began = time.process_time()
        way()
        assert time.process_time() - began < 2.0


@pytest.mark.parametrize(("before", "repeated"), [
    ("Action: ", "[]"),
    ("Action: ", "{}"),
    ("Action: ", "{'a': 1}\n"),
    ("", "[{}]\n"),
    ("Thought: x\n", "[{}]\n"),
    ("", '{"a": 1}\n'),
    ("<tool_call>", '{"a": 1}\n'),
    ("Thought: ", ". Action: Search(x) no "),
    ("Action: Search('x')", " + Search('x')"),
    ("Action: Search('x')", " + Search('"),
    ("**Final Answer: ", "** x "),
    ("Action: Search[x]\nObservation ", "_# "),
])
def test_a_megabyte_is_read_in_far_less_than_a_quadratic_scan_takes(before, repeated):
    for way in SPEED.ways(SPEED.blown_up((before, repeated, ""), 1_000_000)):
        began = time.process_time()
        way()
        assert time.process_time() - began < 2.0


@pytest.mark.parametrize("answer", ["", "\0", "\u2003", "\ufeff\u200b \u2060", "\0\u200b"])
@pytest.mark.parametrize("with_repairs", [True, False])
def test_an_answer_that_no_reader_sees_is_none(answer, with_repairs):
    assert short(parse(f"Thought: x\nAction: Finish[{answer}]", TOOLS, repairs=with_repairs)) == "!empty_answer"
