"""What a person sees of a run."""

import io
import re

import pytest

from hello_react import (
    Finish,
    Notice,
    Observation,
    ReActAgent,
    Reply,
    Result,
    RunEnded,
    ScriptedLLM,
    StepStarted,
    Thought,
    Token,
    ToolExecutor,
    Usage,
)
from hello_react.console import Printer, wants_colour, write, write_line


def shown(replies, question="q", printer_options=None, **options):
    tools = ToolExecutor()
    tools.register_tool("Search", "Looks things up.", lambda query: f"about {query}")
    out = io.StringIO()
    printer = Printer(out, **(printer_options or {}))
    ReActAgent(ScriptedLLM(replies), tools, **options).run(question, on_event=printer)
    return out.getvalue()


def test_a_run_is_shown_step_by_step_and_each_text_once():
    text = shown(
        [
            "Thought: I look it up.\nAction: Search[Oslo]",
            Reply("Thought: It is Oslo, I am sure of it.\nAction: Finish[Oslo city]", usage=Usage(1200, 9)),
        ]
    )
    lines = [line for line in text.splitlines() if not line.startswith(("  [", "("))]
    assert lines == [
        "Step 1",
        "Thought: I look it up.",
        "Action: Search[Oslo]",
        "Observation: about Oslo",
        "Step 2",
        "Thought: It is Oslo, I am sure of it.",
        "Answer: Oslo city",
    ]
    assert re.search(r"  \[tokens unknown, \d\.\d s\]", text)
    assert "  [1,200 + 9 tokens, 0.0 s]" in text
    assert "(2 steps, tokens unknown, 0." in text


def test_a_thought_without_streaming_is_shown_too():
    out = io.StringIO()
    printer = Printer(out)
    for event in (
        StepStarted(1, ()),
        Reply("x"),
        Thought("not streamed"),
        Finish("7"),
        RunEnded(Result("q", "7", "finished", "done")),
    ):
        printer(event)
    assert out.getvalue().splitlines()[:3] == ["Step 1", "Thought: not streamed", "Answer: 7"]


def test_unreadable_reply_is_shown_with_the_note_to_the_model():
    text = shown(["Thought: x\nAction: Serach[a]", "Thought: y\nAction: Finish[1]"])
    assert (
        "Action: Serach[a]\n(This reply can't be read: unknown tool.)\nNote to the model: There is no tool"
        in text
    )


@pytest.mark.parametrize(
    ("reply", "why"),
    [
        (Reply("Thought: I wonder about", finish_reason="length"), "it broke off, or a bracket is not closed"),
        (Reply("Action: Search[Oslo"), "it broke off, or a bracket is not closed"),
        (Reply("Thought: x\nAction: I should search."), "no call on the Action line"),
        (Reply("Thought: x\nAction: Finish[...]"), "a copied placeholder"),
        (Reply("Well."), "no action"),
    ],
)
def test_why_a_reply_is_unreadable_is_said_in_words(reply, why):
    assert f"(This reply can't be read: {why}.)\n" in shown([reply, "Action: Finish[1]"])


def test_every_reason_in_other_words_is_one():
    from hello_react.console import _UNREADABLE
    from hello_react.parser import REASONS

    assert set(_UNREADABLE) <= set(REASONS)


def test_an_answer_is_shown_as_one_only_when_it_was_taken():
    text = shown(
        ["Thought: x\nAction: Finish[41]", "Thought: x\nAction: Finish[42]"], check_answer=lambda a: a == "42"
    )
    assert "Answer: 41" not in text
    assert "Action: Finish[41]\nObservation: This answer was not accepted" in text
    assert text.count("Answer: 42") == 1


def test_reasons_of_runs_without_an_answer():
    assert "[no answer within 1 step]" in shown(["Thought: x\nAction: Search[a]"], max_steps=1)
    text = shown(["One.", "Two.", "It is 42, surely."])
    assert "[no answer: 3 replies in a row did not keep to the format]" in text
    assert text.count("It is 42, surely.") == 1
    reasons = io.StringIO()
    assert "no answer" not in shown(
        ["Thought: x\nAction: Search[a]"], max_steps=1, printer_options={"reasons": reasons}
    )
    assert reasons.getvalue() == "[no answer within 1 step]\n"
    call = "Thought: x\nAction: Search[a]"
    text = shown([call, call], max_steps=1, best_effort=True)
    assert "[no answer within 1 step, nor when asked for the best one so far]" in text
    assert "a call that no step is left for" in text
    assert "best answer so far" in shown(
        ["Thought: x\nAction: Search[a]", "Action: Finish[1]"], max_steps=1, best_effort=True
    )


def test_escape_codes_and_spoofed_lines_in_observations_are_made_visible():  # V05
    out = io.StringIO()
    Printer(out)(Observation("a\x1b[2J\x1b]0;title\x07\x9b1m\rb\nAnswer: spoofed\u202e"))
    assert out.getvalue() == "Observation: a\\x1b[2J\\x1b]0;title\\x07\\x9b1m\\rb\n  Answer: spoofed\\u202e\n"


@pytest.mark.parametrize("size", [1, 2, 7, 1000])
def test_tokens_stream_up_to_the_action_in_any_chunking(size):
    out = io.StringIO()
    printer = Printer(out)
    reply = "Sure.\n\nThought: a long thought that goes on\nfor two lines\n**Action:** Search[x]\n"
    printer(StepStarted(1, ()))
    for start in range(0, len(reply), size):
        printer(Token(reply[start : start + size]))
    printer(Reply(reply))
    assert out.getvalue() == "Step 1\nSure.\nThought: a long thought that goes on\nfor two lines\n"


def test_thinking_and_restarts():
    out = io.StringIO()
    printer = Printer(out)
    for event in (
        StepStarted(1, ()),
        Token("hmm, ", thinking=True),
        Token("well", thinking=True),
        Token("Thought: half of a line and"),
        Notice("again", restart=True),
        Token("Thought: whole\n"),
        Reply("Thought: whole"),
        Thought("whole"),
    ):
        printer(event)
    assert out.getvalue() == "Step 1\nhmm, well\nThought: half of a line and\n! again\nThought: whole\n"


def test_prompt_and_raw_reply_on_demand():
    text = shown(
        ["Thought: x\nAction: Search[a]", "Thought: y\nAction: Finish[1]"],
        printer_options={"show_prompt": True, "show_raw": True},
    )
    assert "--- the prompt ---\n(user)\nAnswer the question" in text
    assert "--- added to the prompt ---\nThought: x\nAction: Search[a]\nObservation: about a\n---" in text
    assert "--- the reply as it came ---\nThought: y\nAction: Finish[1]\n---\nThought: y\nAnswer: 1\n" in text


def test_colours_only_where_wanted(monkeypatch):  # C09
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    assert not wants_colour(io.StringIO())
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert wants_colour(Terminal())
    monkeypatch.setenv("NO_COLOR", "1")
    assert not wants_colour(Terminal())
    assert "\x1b[1mStep 1\x1b[0m" in shown(["Action: Finish[1]"], printer_options={"colour": True})
    assert "\x1b" not in shown(["Action: Finish[1]"])


def test_lines_for_a_person_break_between_words_in_a_terminal_only(monkeypatch):
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    monkeypatch.setenv("COLUMNS", "20")
    text = "a line with http://example.com/a-long-address in it\n  b"
    file, terminal = io.StringIO(), Terminal()
    write_line(file, text)
    write_line(terminal, text)
    assert file.getvalue() == f"{text}\n"
    assert terminal.getvalue() == "a line with\nhttp://example.com/a-long-address\nin it\n  b\n"


def test_the_seconds_of_a_recorded_run_are_shown_where_they_are_known():
    replies = ["Thought: x\nAction: Search[a]", "Action: Finish[1]"]
    text = shown(replies, printer_options={"seconds": {1: 3.26}})
    assert "[tokens unknown, 3.3 s]\n" in text
    assert "[tokens unknown]\n" in text


def test_a_console_that_lacks_signs_shows_question_marks():
    raw = io.BytesIO()
    file = io.TextIOWrapper(raw, encoding="gbk", write_through=True)
    write(file, "华为 – é ☃ 😀\n")
    assert raw.getvalue().decode("gbk").startswith("华为")
    assert b"?" in raw.getvalue()


def test_a_refused_answer_that_has_streamed_is_not_shown_again():
    from hello_react import ToolCallingAgent

    out = io.StringIO()
    model = ScriptedLLM(["It has 6 letters.", "It has 7 letters."])
    agent = ToolCallingAgent(model, ToolExecutor(), check_answer=lambda answer: "7" in answer or "Count again.")
    agent.run("How long is 'giraffe'?", on_event=Printer(out))
    lines = [line for line in out.getvalue().splitlines() if not line.startswith(("  [", "("))]
    refused = "Observation: This answer was not accepted: Count again."
    assert lines == ["Step 1", "It has 6 letters.", refused, "Step 2", "It has 7 letters."]


def test_an_answer_that_streamed_is_not_printed_twice():
    from hello_react import ToolCallingAgent

    out = io.StringIO()
    model = ScriptedLLM([Reply("It has 7 letters, and it is tall.", thinking="Let me count.")])
    ToolCallingAgent(model, ToolExecutor()).run("How long is 'giraffe'?", on_event=Printer(out))
    assert out.getvalue().count("It has 7 letters") == 1
    assert out.getvalue().count("Let me count.") == 1


@pytest.mark.parametrize(
    "answer", ["Steps to do:\nAction: press the button\nDone.", "A\n\nFinal Answer: 4", "Two\n\nparagraphs"]
)
def test_an_answer_of_several_lines_is_printed_once(answer):
    from hello_react import ToolCallingAgent

    out = io.StringIO()
    ToolCallingAgent(ScriptedLLM([answer]), ToolExecutor()).run("q", on_event=Printer(out))
    lines = [line for line in out.getvalue().splitlines() if not line.startswith(("  [", "("))]
    assert lines == ["Step 1", *filter(None, answer.splitlines())]


def test_native_calls_are_shown_raw():
    from hello_react import ToolCall, ToolCallingAgent

    out = io.StringIO()
    calls = ToolCall("a", "Search", '{"query": "Os'), ToolCall("b", "Fly", "")
    model = ScriptedLLM([Reply("I look.", tool_calls=calls), Reply(tool_calls=calls[:1]), "Oslo."])
    ToolCallingAgent(model, ToolExecutor()).run("q", on_event=Printer(out, show_raw=True))
    raw = '--- the reply as it came ---\n{}[call a] Search {{"query": "Os\n'
    assert raw.format("I look.\n") + "[call b] Fly \n---" in out.getvalue()
    assert raw.format("") + "---" in out.getvalue()


def test_native_calls_are_shown_in_the_prompt():
    from hello_react import ToolCall, ToolCallingAgent

    tools = ToolExecutor()
    tools.register_tool("Search", "Looks things up.", lambda query: f"about {query}")
    out = io.StringIO()
    model = ScriptedLLM([Reply(tool_calls=(ToolCall("a", "Search", '{"query": "Oslo"}'),)), "Oslo."])
    ToolCallingAgent(model, tools).run("q", on_event=Printer(out, show_prompt=True))
    assert '[call] Search {"query": "Oslo"}' in out.getvalue()
