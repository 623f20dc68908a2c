"""The embedded model with its adapter does ReAct: the real server, the real agent, right answers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from hello_react import ReActAgent
from hello_react.errors import HelloReactError
from hello_react.local import available, embedded_llm
from hello_react.local.prompt import FINGERPRINT_KEY, embedded_prompt, fingerprint, trained_prompt
from hello_react.local.serve import ADAPTER
from hello_react.local.training.evaluate import holds, shipped_tools
from hello_react.tools import ToolExecutor

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
