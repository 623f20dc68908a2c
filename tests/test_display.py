"""A run as a notebook shows it: what is in the views, and that no text from outside acts in them."""

import html
import re
from dataclasses import replace
from html.parser import HTMLParser

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from hello_react import (
    Action,
    ModelError,
    Observation,
    ReActAgent,
    Reply,
    Result,
    ScriptedLLM,
    Step,
    ToolCall,
    ToolCallingAgent,
    ToolExecutor,
)
from hello_react.display import steps, summary, table

HOSTILE = (
    '<script>alert(1)</script> <img src=x onerror=alert(1)> ![x](http://evil.test/x.png) [a](javascript:alert(1)) '
    "| a | b | `code` *bold* __init__ ~~no~~ $x$ \\(y\\) https://evil.test www.evil.test a@evil.test &lt; \x1b[2J"
    "\n# heading\n- item\n1. one\n> quote\n```\nfence\n```\n---\n</pre></div>\n\n| a |\n|---|\n"
)


def tools():
    executor = ToolExecutor()
    executor.register_tool("Search", "finds pages", lambda text: f"{text}: {HOSTILE}")
    executor.register_tool("length", "counts letters", lambda word: len(word))
    return executor


def run(*replies, **options):
    return ReActAgent(ScriptedLLM(list(replies)), tools(), **options).run("How high is K2?", verbose=False)


FINISH = "Thought: I know it.\nAction: Finish[8,611 m]"


def test_the_steps_as_text():
    result = run("Thought: I need it.\nAction: length[K2]", "no format at all", FINISH)
    assert repr(steps(result)) == (
        "Question: How high is K2?\n"
        "Step 1\n"
        "  Thought: I need it.\n"
        "  Action: length[K2]\n"
        "  Observation: 2\n"
        "Step 2\n"
        "  Reply: no format at all\n"
        f"  Note to the model: {result.steps[1].observations[0].text}\n"
        "Step 3\n"
        "  Thought: I know it.\n"
        "  Finish: 8,611 m"
    )
    assert str(steps(result)) == repr(steps(result))


def test_the_table():
    result = run("Thought: I need it.\nAction: length[K2]", FINISH)
    assert repr(table(result)) == (
        "Step  Thought     Action           Observation\n"
        "1     I need it.  length[K2]       2\n"
        "2     I know it.  Finish[8,611 m]"
    )
    assert table(result)._repr_markdown_() == (
        "| Step | Thought | Action | Observation |\n"
        "|---:|---|---|---|\n"
        "| 1 | I need it. | <code>length&#91;K2&#93;</code> | <code>2</code> |\n"
        "| 2 | I know it. | <code>Finish&#91;8,611 m&#93;</code> |  |"
    )


def test_the_short_form_of_a_result():
    result = run("Thought: I need it.\nAction: length[K2]", FINISH)
    assert result._repr_markdown_() == (
        "**Answer:** 8,611 m\n\n"
        "Step 1<br>\n**Thought** I need it.<br>\n**Action** <code>length&#91;K2&#93;</code><br>\n"
        "**Observation** <code>2</code>\n\n"
        "Step 2<br>\n**Thought** I know it.<br>\n**Finish**"
    )


def test_each_view_has_the_form_that_suits_it():
    result = run(FINISH)
    assert steps(result)._repr_markdown_() is None
    assert steps(result)._repr_html_().startswith("<div>")
    assert table(result)._repr_html_() is None
    assert table(result)._repr_markdown_().startswith("| Step |")


def test_seconds_only_when_asked_for():
    result = run("Action: length[K2]", FINISH)
    result = replace(result, seconds=9.87, steps=tuple(replace(step, seconds=9.87) for step in result.steps))
    for view in (steps, table):
        assert "9.9" not in view(result).plain + view(result).html + view(result).markdown
    assert "9.9" not in summary(result)
    assert "Step 1 (9.9 s)\n" in repr(steps(result, seconds=True))
    assert "Step 1 (9.9 s)<" in steps(result, seconds=True).html
    assert repr(table(result, seconds=True)).splitlines()[0].endswith("Observation  Seconds")
    assert table(result, seconds=True).markdown.splitlines()[-1].endswith("| 9.9 |")


def test_several_calls_in_a_step():
    calls = [ToolCall("1", "length", '{"word": "one"}'), ToolCall("2", "length", '{"wrd": "two"}')]
    model = ScriptedLLM([Reply("Two at once.", tool_calls=tuple(calls)), "Both are short."])
    result = ToolCallingAgent(model, tools()).run("How long?", verbose=False)
    rows = table(result).markdown.splitlines()[2:]
    assert [row.split(" | ")[0] for row in rows] == ["| 1", "| ", "| 2"]
    text = repr(steps(result))
    assert text.index('length[{"word": "one"}]') < text.index("Observation: 3") < text.index('length[{"wrd"')
    assert "#b02525" in steps(result).html  # the call that failed
    assert "Both are short." in summary(result)


@pytest.mark.parametrize(
    ("result", "words"),
    [
        (run("Action: length[a]", max_steps=1), "no answer within 1 step"),
        (run("a", "b", "c"), "3 replies in a row"),
        (run("Action: length[a]", FINISH, max_steps=1, best_effort=True), "best answer so far"),
        (run(FINISH, "Action: Finish[no]", max_steps=1, check_answer=lambda answer: "no unit"), "no answer"),
    ],
)
def test_a_run_that_did_not_finish_says_why(result, words):
    for shown in (repr(steps(result)), steps(result).html, summary(result)):
        assert words in shown
        assert "Ended" in shown
    assert f"<code>{html.escape(result.status)}".replace("_", "&#95;") in summary(result)


def test_a_refused_answer_shows_the_reply_and_what_the_model_was_told():
    result = run(FINISH, "Action: Finish[8,611 metres]", check_answer=lambda text: "metres" in text)
    assert "Reply: Thought: I know it." in repr(steps(result))
    assert "Note to the model: This answer was not accepted" in repr(steps(result))
    assert repr(steps(result)).endswith("Finish: 8,611 metres")


def test_a_run_without_steps():
    with pytest.raises(ModelError) as caught:
        run(ModelError("no server"))
    result = caught.value.result
    assert "no server" in repr(steps(result))
    assert "no server" in summary(result)
    assert repr(table(result)) == "Step  Thought  Action  Observation"
    assert table(result).markdown.count("\n") == 1


def test_long_texts_are_clipped():
    result = run(f"Thought: {'long ' * 2_000}\nAction: Search[{'k' * 5_000}]", f"Action: Finish[{'9' * 5_000}]")
    assert "[cut: 1,000 of 9,999 characters shown]" in repr(steps(result))
    assert len(steps(result).html) < 10_000
    assert len(table(result).markdown) < 2_000
    assert max(map(len, repr(table(result)).splitlines())) < 220
    assert len(summary(result)) < 3_000
    assert "…" in table(result).markdown


def test_chinese_columns_line_up():
    result = run("Thought: 我需要高度。\nAction: length[珠穆朗玛峰]", "Thought: ok\nAction: Finish[8848 米]")
    lines = repr(table(result)).splitlines()

    def columns(line, text):
        return sum(2 if ord(sign) > 0x2E80 else 1 for sign in line[: line.index(text)])

    assert columns(lines[1], "length") == columns(lines[2], "Finish") == columns(lines[0], "Action")


class Tags(HTMLParser):
    """What a browser would find in a piece of HTML: elements with their attributes, and the text."""

    def __init__(self, source):
        super().__init__()
        self.found, self.text = set(), ""
        self.feed(source)
        self.close()

    def handle_starttag(self, tag, attributes):
        self.found.add((tag, *(name for name, _ in attributes)))

    def handle_data(self, data):
        self.text += data


def result_of(text):
    calls, seen = (Action(text, text),), (Observation(text, ok=False),)
    steps = (Step(1, text, calls, seen, Reply(text), 0), Step(2, text, (), seen, Reply(text), 0))
    return Result(text, text, "best_effort", text, steps)


def assert_harmless(result):
    tags = Tags(steps(result).html)
    assert tags.found == {("div",), ("div", "style"), ("b",), ("b", "style"), ("pre", "style")}
    for source in (table(result).markdown, summary(result)):
        assert Tags(source).found <= {("code",), ("br",), ("span",)}
        bare = re.sub(r"&#\d+;", "·", re.sub(r"</?(?:code|br|span)>", "", source))
        ours = re.sub(r"\*\*(?:Answer:|Ended:|Thought|Action|Observation|Reply|Note to the model|Finish)\*\*", "", bare)
        assert not re.search(r"[<>&`*_\[\]!~@$\\]|://|www\.", ours)
    lines = table(result).markdown.splitlines()
    assert [line.count("|") for line in lines] == [5] * 4
    starts = r"\*\*(?:Answer|Ended|Thought|Action|Observation|Reply|Note|Finish)|Step \d+<br>$"
    assert all(re.match(starts, line) for line in summary(result).splitlines() if line)
    for plain in (repr(steps(result)), repr(table(result))):
        assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f]", plain)


def test_text_from_outside_is_only_text():
    assert_harmless(result_of(HOSTILE))
    assert HOSTILE.replace("\x1b", "\\x1b") in Tags(steps(result_of(HOSTILE)).html).text
    result = run(f"Thought: {HOSTILE.splitlines()[0]}\nAction: Search[K2]", FINISH)
    assert "<script" not in steps(result).html + table(result).markdown + summary(result)


@example("/:/")  # in a call the escaped bracket stands between two of them
@given(st.text(alphabet=st.sampled_from(list("ab 1\n\r\t<>&`*_[]()!|~$\\@#-+.:/\u2028\x85\x1b\ud800中")), max_size=60))
def test_whatever_the_text(text):
    assert_harmless(result_of(text))
