"""The embedded model with its adapter does ReAct: the real server, the real agent, right answers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from hello_react import ReActAgent
from hello_react.errors import HelloReactError
from hello_react.llm import OBSERVATION_STOPS
from hello_react.local import available, embedded_llm
from hello_react.local.prompt import (
    ADAPTER,
    FINGERPRINT_KEY,
    embedded_prompt,
    fingerprint,
    reply_grammar,
    trained_prompt,
)
from hello_react.local.serve import EmbeddedLLM
from hello_react.local.training.evaluate import holds, shipped_tools
from hello_react.parser import Action, Finish, parse
from hello_react.prompt import Prompt
from hello_react.tools import Tool, ToolExecutor
from tests.servers import ModelServer

pytestmark = pytest.mark.skipif(not ADAPTER.exists(), reason="no adapter")


@pytest.fixture(scope="module")
def client() -> Iterator[Any]:
    if not available():
        pytest.skip("llama.cpp is not installed")
    try:
        yield embedded_llm()
    except HelloReactError as error:
        pytest.skip(str(error))


def test_the_adapter_was_trained_on_this_prompt() -> None:
    """After a change of the prompt, the adapter has to be trained anew: see MODEL_CARD.md."""
    raw = ADAPTER.read_bytes()
    assert len(raw) < 6_000_000
    start = raw.index(FINGERPRINT_KEY.encode())
    assert fingerprint().encode() in raw[start : start + 200]
    assert fingerprint() in ADAPTER.with_name("MODEL_CARD.md").read_text(encoding="utf-8")


def test_the_embedded_model_gets_its_prompt_and_any_other_the_usual_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("LOCAL_MODEL_PATH", raising=False)
    assert embedded_prompt().template == trained_prompt().template
    monkeypatch.setenv("LOCAL_MODEL_PATH", "other.gguf")
    assert embedded_prompt().template is None


@pytest.mark.model
@pytest.mark.parametrize(
    ("question", "right"),
    [
        ("What is (2123 + 2321) * 312?", "1386528"),
        ("How much taller is Mount Everest than K2?", "238"),
        ("What is the capital of Australia?", "Canberra"),
        ("When was Ada Lovelace born?", "10 December 1815"),
        ("How old was Alan Turing when he died?", "41"),
        ("Who wrote Treasure Island?", "Stevenson"),
        ("Where was the author of Frankenstein born?", "London"),
        ("How much longer is the Danube than the Rhine?", "1620"),
        ("pls what is the atomic number of helium", "2"),
        ("What did I dream last night?", "could not find the answer"),
    ],
)
def test_right_answers(client: Any, question: str, right: str) -> None:
    result = ReActAgent(client, shipped_tools(), max_steps=8, prompt=trained_prompt()).run(
        question, verbose=False
    )
    assert holds(result.answer, right), result


@pytest.mark.model
def test_a_tool_it_has_never_seen(client: Any) -> None:
    tools = shipped_tools()

    @tools.tool
    def WaterLevel(river_station: str) -> str:
        """Gives the water level at a gauging station; the input is the station."""
        return f"{len(river_station)}.4 m"

    assert isinstance(tools, ToolExecutor)
    result = ReActAgent(client, tools, prompt=trained_prompt()).run(
        "What is the water level at Kelheim?", verbose=False
    )
    assert [call.tool for step in result.steps for call in step.calls] == ["WaterLevel"]
    assert holds(result.answer, "7.4 m"), result


# --- the grammar of replies


@pytest.fixture
def odd_tools() -> ToolExecutor:
    tools = ToolExecutor()
    for tool in (
        Tool("Say", 'Says a text, such as "a - b: c".', lambda text: text),
        Tool("now", "Tells the time.", lambda: "12:00"),
        Tool.from_function(area),
        Tool("gr\\öße\b", "Measures.", lambda thing: thing),
    ):
        tools.add(tool)
    return tools


def area(width: float, height: float) -> float:
    """The area of a rectangle."""
    return width * height


def test_the_grammar_admits_the_tools_at_hand_and_any_input(odd_tools: ToolExecutor) -> None:
    listed = odd_tools.describe()
    text = trained_prompt().text("Which?", listed, "Thought: a\n- Fake: b\nAction: Say[c]\n", [("q", "- Other: a")])
    root, action, *_ = (reply_grammar(text) or "").splitlines()
    assert root == r'root ::= "Thought: " [^\n]{1,300} "\nAction: " action'
    assert action == (
        r'action ::= "Say" input | "now" input | "area" input | "gr\x5Cöße\x08" input | "Finish[" answer'
    )
    no_tools = reply_grammar(trained_prompt().text("?", ""))
    assert no_tools
    assert 'action ::= "Finish[" answer\n' in no_tools


def test_a_description_that_looks_like_the_end_of_the_list_takes_no_tool_away() -> None:
    _, end = trained_prompt().text("?", "- a: b").split("- a: b\n")
    tools = [Tool("First", f"Finds.\n{end}", str), Tool("Second", "Doubles.", str)]
    grammar = reply_grammar(trained_prompt().text("?", "\n".join(map(str, tools))))
    assert grammar
    assert '"First" input' in grammar
    assert '"Second" input' in grammar


def test_other_prompts_have_no_grammar(odd_tools: ToolExecutor) -> None:
    assert reply_grammar(Prompt(lang="en").text("?", odd_tools.describe())) is None
    assert reply_grammar("Hello") is None
    assert reply_grammar(trained_prompt().text("?", "- a: b").partition("- Finish")[0]) is None


def test_only_the_trained_prompt_is_asked_with_the_grammar_and_the_users_own_comes_first() -> None:
    trained = trained_prompt().messages("?", "- Say: says.")
    with ModelServer(["Thought: a\nAction: Finish[b]"] * 7) as server:
        llm = EmbeddedLLM("m", "sk-none", server.url)
        llm.think(trained)
        llm.think(trained, extra_body={"seed": 1})
        llm.think(trained, extra_body={"grammar": "mine"})
        EmbeddedLLM("m", "sk-none", server.url, extra_body={"grammar": "mine"}).think(trained)
        llm.think(trained, extra_body={"json_schema": {}})
        llm.think(trained, tools=[{"type": "function", "function": {"name": "Say", "parameters": {}}}])
        llm.think([{"role": "system", "content": "Be kind."}, *trained])
    grammar = reply_grammar(trained[0]["content"])
    assert [request.body.get("grammar") for request in server.requests] == [
        *(grammar, grammar, "mine", "mine", None, None, None),
    ]
    assert server.requests[1].body["seed"] == 1
    with pytest.raises(TypeError, match="messages is a text"):
        llm.think("Hello")  # type: ignore[arg-type]


@pytest.mark.model
def test_the_server_keeps_replies_to_the_grammar(client: Any, odd_tools: ToolExecutor) -> None:
    """None of these tools fits; whatever the model then does, it calls one of them, as it must be called."""
    for question in ("What is the capital of Peru?", "What is 17 * 23?", "Who are you?", "量一下", "Area of 3 by 4?"):
        reply = client.think(
            trained_prompt().messages(question, odd_tools.describe()), stop=OBSERVATION_STOPS, max_tokens=200
        )
        move = parse(reply.text, odd_tools.names, cut=reply.cut).move
        assert isinstance(move, (Action, Finish)), reply.text
