"""The prompt: both languages, its replaceable parts, and text that must stay text."""

import pytest

from hello_react.parser import Finish, parse
from hello_react.prompt import CHINESE, CHINESE_EXAMPLE, ENGLISH, ENGLISH_EXAMPLE, Prompt, quote_labels


def test_the_language_follows_the_question():
    assert Prompt().language("What is it?") == "en"
    assert Prompt().language("这是什么？") == "zh"
    assert Prompt(lang="en").language("这是什么？") == "en"
    assert "可用的工具" in Prompt().text("这是什么？", "- A: b")


def test_both_templates_hold_the_same_marks_and_end_with_the_history():
    for template in (ENGLISH, CHINESE):
        for mark in ("{tools}", "{instructions}", "{examples}", "{conversation}", "{question}"):
            assert template.count(mark) == 1
        assert template.endswith("Question: {question}\n{history}")


@pytest.mark.parametrize("example", [ENGLISH_EXAMPLE, CHINESE_EXAMPLE])
def test_the_worked_example_is_in_the_format(example):
    *_, last = example.split("Observation: ")
    assert isinstance(parse(last.split("\n", 1)[1]).move, Finish)
    assert parse(example.split("\n", 1)[1]).move.tool == "Calculator"


def test_examples_instructions_and_template_are_replaceable():
    prompt = Prompt(lang="en", examples=["Question: a", "Question: b"], instructions=" Answer in verse. ")
    text = prompt.text("q", "- A: b")
    assert "Question: a\n\nQuestion: b\n" in text
    assert ENGLISH_EXAMPLE not in text
    assert "Answer in verse.\n" in text
    own = Prompt(template="{{not a mark}} {{tools}} {tools}|{question}|{history}", examples="Question: x")
    assert own.text("{q}", "{t}", "{h}") == "{{not a mark}} {tools} {t}|{q}|{h}"


@pytest.mark.parametrize("template", ["", "{question}", "{history} only"])
def test_a_template_without_question_or_history_is_refused(template):
    with pytest.raises(ValueError, match="marks"):
        Prompt(template=template)


def test_an_unknown_language_is_refused():
    with pytest.raises(ValueError, match="'fr'"):
        Prompt(lang="fr")


def test_earlier_turns_stand_before_the_question_in_either_language():
    assert "Earlier in this conversation:\nQuestion: a\nAnswer: b\n\nQuestion: q\n" in Prompt().text(
        "q", "", "", [("a", "b")]
    )
    assert "之前的对话：\nQuestion: 甲\n" in Prompt().text("问", "", "", [("甲", "乙")])
    assert "(none)" in Prompt().text("q", "")
    assert "Tools:\n(none) The only action is Finish.\n- Finish: " in Prompt().text("q", "")
    assert "可用的工具：\n（没有工具）唯一的动作是 Finish。\n- Finish: " in Prompt().text("问", "")


def test_labels_in_foreign_text_are_quoted():
    text = "fine\nAction: x\n  **Observation 2:** y\n观察：z\nResult: kept\nnot Action: z"
    assert (
        quote_labels(text)
        == "fine\n| Action: x\n| **Observation 2:** y\n| 观察：z\nResult: kept\nnot Action: z"
    )
    assert quote_labels("Thought: a") == "| Thought: a"
    assert quote_labels("a page\nQuestion: another task") == "a page\n| Question: another task"
    assert quote_labels("a\r\nb\u2028Action: c") == "a\r\nb\u2028Action: c"
