"""A program written for the book's chapter runs here with only its imports changed."""

import subprocess
import sys

import pytest

from tests.servers import ModelServer
from tests.tool_servers import SerpApiServer

PROGRAM = """
from hello_react import HelloAgentsLLM, ReActAgent, ToolExecutor, search

if __name__ == "__main__":
    llm_client = HelloAgentsLLM()
    executor = ToolExecutor()
    executor.registerTool("Search", "网页搜索，适合查时事、事实和新近的消息。", search)
    print(executor.getAvailableTools())
    print(executor.getTool("Search")("华为"))
    agent = ReActAgent(llm_client=llm_client, tool_executor=executor, max_steps=5)
    agent.run("华为最新的手机是哪一款？它的主要卖点是什么？")
"""

SCRIPT = [
    "Thought: 需要查最新的手机。\nAction: Search[华为最新手机 卖点]",
    "Thought: 已经知道了。\nAction: Finish[最新的是 Mate 70。\n主要卖点：\n1. 影像\n2. 续航]",
]


@pytest.fixture
def both_servers(monkeypatch):
    with (
        ModelServer(SCRIPT) as model,
        SerpApiServer({"answer_box": {"answer": "Mate 70，影像出色，续航长"}}) as serpapi,
    ):
        for name, value in {
            "LLM_MODEL_ID": "m",
            "LLM_API_KEY": "k1234567",
            "LLM_BASE_URL": model.url,
            "SERPAPI_API_KEY": serpapi.key,
            "SERPAPI_BASE_URL": serpapi.url,
        }.items():
            monkeypatch.setenv(name, value)
        yield model, serpapi


def test_the_books_main_program_runs_with_its_imports_changed(
    both_servers, nothing_of_this_machine, monkeypatch
):
    model, serpapi = both_servers
    (nothing_of_this_machine / "main.py").write_text(PROGRAM, encoding="utf-8")
    monkeypatch.setenv("PYTHONIOENCODING", "utf-8")
    run = subprocess.run([sys.executable, "main.py"], capture_output=True, encoding="utf-8", timeout=60)
    assert run.returncode == 0, run.stderr
    for line in (
        "- Search: 网页搜索，适合查时事、事实和新近的消息。",
        "Step 1",
        "Thought: 需要查最新的手机。",
        "Action: Search[华为最新手机 卖点]",
        "Observation: Mate 70，影像出色，续航长",
        "Step 2",
        "Answer: 最新的是 Mate 70。",
        "1. 影像",
    ):
        assert f"{line}\n" in run.stdout
    assert "可用的工具" in model.bodies[0]["messages"][0]["content"]
    assert len(serpapi.requests) == 2


def test_client_options_have_the_books_names_too():
    from hello_react import HelloAgentsLLM

    client = HelloAgentsLLM("m", apiKey="k1234567", baseUrl="http://127.0.0.1:9/v1", timeout=5)
    assert (client.model, client.base_url, client.timeout) == ("m", "http://127.0.0.1:9/v1", 5)
    with pytest.raises(ValueError, match="LLM_API_KEY"):
        HelloAgentsLLM("m")
