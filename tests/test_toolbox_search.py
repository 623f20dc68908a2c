"""Web search against a real server on loopback: what is picked, what is told, no key shown."""

from __future__ import annotations

import doctest
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from hello_react.errors import ToolError
from hello_react.toolbox import search as module
from hello_react.toolbox.search import SerpApiSearch, best_answer, search
from tests.tool_servers import SerpApiServer, isolate

KEY = "serp-key-0123456789"
ROOT = Path(__file__).parents[1]
ORGANIC = [{"position": n, "title": f"Title {n}", "snippet": f"Snippet {n}."} for n in range(1, 6)]


@pytest.fixture(autouse=True)
def isolated(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    isolate(monkeypatch, tmp_path)


def refused(server: SerpApiServer, key: str = KEY, timeout: float = 10) -> str:
    """The message of a search that fails; no part of the error may hold the key."""
    with pytest.raises(ToolError) as caught:
        SerpApiSearch(key, server.url, timeout).search("kale")
    error: BaseException | None = caught.value
    while error is not None:
        assert key not in str(error) + repr(error)
        error = error.__cause__ or error.__context__
    message = str(caught.value)
    assert "\n" not in message
    assert server.url not in message
    return message


def test_docstring_examples() -> None:
    assert doctest.testmod(module).failed == 0


# What is sent


def test_settings_are_read_at_the_call(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with SerpApiServer({"answer_box": {"answer": "42"}}) as server:
        (tmp_path / ".env").write_text(f"SERPAPI_API_KEY={KEY}\nSERPAPI_BASE_URL={server.url}/\n")
        assert search(" meaning of life ") == "42"
        sent = server.requests[0].query
    assert sent["q"] == "meaning of life"
    assert (sent["hl"], sent["gl"], sent["output"]) == ("en", "us", "json")


def test_chinese_questions_get_the_chinese_locale() -> None:
    with SerpApiServer({"organic_results": ORGANIC}) as server:
        SerpApiSearch(KEY, server.url).search("华为最新的手机")
        SerpApiSearch(KEY, server.url, locale=("de", "at")).search("华为最新的手机")
        first, second = (one.query for one in server.requests)
    assert (first["q"], first["hl"], first["gl"]) == ("华为最新的手机", "zh-cn", "cn")
    assert (second["hl"], second["gl"]) == ("de", "at")


def test_the_key_is_trimmed() -> None:
    with SerpApiServer({"answer_box": {"answer": "42"}}) as server:
        assert SerpApiSearch(KEY + "\n", server.url).search("x") == "42"


@pytest.mark.parametrize("environ", [
    {}, {"SERPAPI_API_KEY": "your-api-key-here"}, {"SERPAPI_API_KEY": "two words"}, {"LLM_TIMEOUT": "soon"},
])
def test_not_configured_sends_nothing(monkeypatch: pytest.MonkeyPatch, environ: dict[str, str]) -> None:
    with SerpApiServer({"answer_box": {"answer": "42"}}) as server:
        for name, value in {"SERPAPI_BASE_URL": server.url, **environ}.items():
            monkeypatch.setenv(name, value)
        with pytest.raises(ToolError, match=r"nothing was searched\. (SERPAPI_API_KEY|LLM_TIMEOUT)"):
            search("kale")
        assert server.requests == []


def test_a_bad_address_and_an_empty_query() -> None:
    with pytest.raises(ToolError, match="SERPAPI_BASE_URL"):
        SerpApiSearch(KEY, "localhost:8000").search("kale")
    with pytest.raises(ToolError, match="query is empty"):
        search("  ")


# What is picked


@pytest.mark.parametrize(("data", "expected"), [
    ({"answer_box_list": ["One", "Two"]}, "One\nTwo"),
    ({"answer_box_list": [{"title": "A", "answer": "One"}, {"snippet": "Two"}, 3]}, "One\nTwo\n3"),
    ({"answer_box_list": [], "answer_box": {"answer": "42", "snippet": "no"}}, "42"),
    ({"answer_box": {"type": "calculator_result", "result": "1,386,528"}}, "1,386,528"),
    ({"answer_box": {"type": "organic_result", "title": "T", "snippet": "S.", "link": "e.com"}}, "S."),
    ({"answer_box": {"title": "Steps", "list": ["Boil", "Eat"]}}, "Boil\nEat"),
    ({"answer_box": {"snippet": "How to:", "list": [{"snippet": "Boil"}, "Eat"]}}, "How to:\nBoil\nEat"),
    ({"answer_box": {"answer": ["Ada", "Grace"]}}, "Ada\nGrace"),
    ({"answer_box": {"type": "weather_result", "temperature": 21, "weather": "Sunny", "wind": "9 km/h",
                     "thumbnail": "e.com/x.png"}}, "temperature: 21\nweather: Sunny\nwind: 9 km/h"),
    ({"answer_box": {"translation": {"target": {"text": "你好"}}}}, "target: text: 你好"),
    ({"answer_box": [{"answer": "in a list"}]}, "in a list"),
    ({"answer_box": {"type": "x"}, "knowledge_graph": {"title": "Kale", "description": "A cabbage."}},
     "Kale: A cabbage."),
    ({"knowledge_graph": {"description": "A cabbage."}, "organic_results": ORGANIC}, "A cabbage."),
    ({"knowledge_graph": {"title": "Kale"}, "organic_results": ORGANIC[:1]}, "[1] Title 1\nSnippet 1."),
    ({"organic_results": ORGANIC},
     "[1] Title 1\nSnippet 1.\n\n[2] Title 2\nSnippet 2.\n\n[3] Title 3\nSnippet 3."),
    ({"organic_results": [{"title": "Only"}, {"snippet": "Bare."}, {"link": "e.com"}, None, {"title": "D"}]},
     "[1] Only\n\n[2] Bare.\n\n[3] D"),
    ({"error": "Partly done.", "organic_results": ORGANIC[:1]}, "[1] Title 1\nSnippet 1."),
    ({"organic_results": {"0": "odd"}}, ""),
    ({"answer_box": None, "knowledge_graph": [], "organic_results": None}, ""),
])
def test_the_most_direct_answer(data: dict[str, Any], expected: str) -> None:
    assert best_answer(data) == expected


@pytest.mark.parametrize("data", [
    {"error": "Google hasn't returned any results for this query."},
    {"error": "Google hasn’t returned any results for this query.", "search_metadata": {"status": "Success"}},
    {"organic_results": []}, {},
])
def test_nothing_found_is_told_as_text(data: dict[str, Any]) -> None:
    with SerpApiServer(data) as server:
        assert SerpApiSearch(KEY, server.url).search("qwxz").startswith('No results for "qwxz".')


# What goes wrong


def test_a_refused_key() -> None:
    with SerpApiServer({}) as server:
        assert "SERPAPI_API_KEY" in refused(server, key="another-key-98765")


@pytest.mark.parametrize(("status", "error", "expected"), [
    (200, "Your account has run out of searches.", "used up for now: Your account has run out of searches."),
    (429, "", "used up for now: too many requests"), (200, f"Invalid API key: {KEY}", "refused its key"),
    (403, "Forbidden", "refused its key"),
    (200, f"Unsupported value {KEY}", r"failed \(HTTP 200\): Unsupported value \[key\]"),
    (500, "", r"failed \(HTTP 500\): no reason given"),
    (503, "Google hasn't returned any results for this query.", r"failed \(HTTP 503\)"),
])
def test_errors_of_the_service(status: int, error: str, expected: str) -> None:
    with SerpApiServer({"error": error}, status=status) as server, pytest.raises(ToolError, match=expected):
        SerpApiSearch(KEY, server.url).search("kale")
    with SerpApiServer({"error": error}, status=status) as server:
        assert refused(server)


def test_results_beside_an_error_status_are_not_taken() -> None:
    with SerpApiServer({"organic_results": ORGANIC}, status=500) as server:
        assert "HTTP 500" in refused(server)


@pytest.mark.parametrize(("fault", "expected"), [
    ("html", "no usable answer (HTTP 200)"), ("gateway", "no usable answer (HTTP 502)"),
    ("list", "no usable answer (HTTP 200)"), ("drop", "could not be reached"),
    ("stall", "did not answer within 0.2 seconds"), ("stall_body", "did not answer within 0.2 seconds"),
    (500, "failed (HTTP 500): fault 500"),
])
def test_faults_of_the_network(fault: str | int, expected: str) -> None:
    with SerpApiServer({"organic_results": ORGANIC}) as server:
        server.fault = fault
        assert expected in refused(server, timeout=0.2 if str(fault).startswith("stall") else 10)


def test_no_server_there() -> None:
    with SerpApiServer({}) as server:
        pass
    assert "could not be reached" in refused(server)


@pytest.mark.parametrize("both", [True, False])
def test_the_other_package_named_serpapi(tmp_path: Path, both: bool) -> None:
    """Installed over ours it replaces `serpapi/__init__.py`; alone it has no `google_search`."""
    package = tmp_path / "serpapi"
    package.mkdir()
    if both:
        import serpapi

        for path in Path(serpapi.__file__).parent.glob("*.py"):
            (package / path.name).write_text(path.read_text(encoding="utf-8"), encoding="utf-8")
    (package / "__init__.py").write_text("class Client: pass\n")
    code = ("from hello_react.errors import ToolError\nfrom hello_react.toolbox.search import search\n"
            "try: print(search('x'))\nexcept ToolError as error: print('refused:', error)")
    with SerpApiServer({"answer_box": {"answer": "42"}}) as server:
        environ = {**os.environ, "SERPAPI_API_KEY": KEY, "SERPAPI_BASE_URL": server.url,
                   "PYTHONPATH": os.pathsep.join([str(tmp_path), str(ROOT)])}
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environ,
                              check=True)
    if both:
        assert done.stdout == "42\n"
    else:
        assert "google-search-results" in done.stdout
        assert done.stdout.count("\n") == 1
        assert server.requests == []


def test_deep_answers_become_plain_words() -> None:
    class Deep(SerpApiServer):
        @staticmethod
        def _send(handler: Any, status: int, content_type: str, body: bytes) -> None:
            deep = b'{"answer_box": ' + b"[" * 100_000 + b"]" * 100_000 + b"}"
            SerpApiServer._send(handler, status, content_type, deep)

    with Deep({}) as server:
        assert "SerpApi gave no usable answer" in refused(server)
