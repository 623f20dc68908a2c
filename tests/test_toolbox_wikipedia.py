"""Wikipedia against a real server on loopback that plays its API."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hello_react.errors import SettingsError, ToolError
from hello_react.toolbox.wikipedia import Wikipedia
from tests.tool_servers import Request, WikipediaServer, isolate

KALE = ("Kale is a cabbage. It is green. It is old. It is good. It is eaten. It is sold.\n\n"
        "== History ==\nKale is Greek.")


@pytest.fixture(autouse=True)
def isolated(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    isolate(monkeypatch, tmp_path)


@pytest.fixture
def server() -> Iterator[WikipediaServer]:
    with WikipediaServer(
        pages={"Kale": KALE, "Kali": "Kali is a goddess.", "Empty": "", "Ada Lovelace": "Ada wrote programs.",
               "北京": "北京是中国的首都。它很大。", "IPad": "It is flat."},
        redirects={"Borecole": "Kale"},
        choices={"Mercury": ["Freddie", "Mercury (element)", "Mercury (planet)"],
                 "Many": [f"Many {n}" for n in range(50)]},
        similar={"Kalle": ["Kale", "Kali"], "ada lovelace": ["Ada", "Ada Lovelace"], "a b": ["Kale"]},
    ) as running:
        yield running


def test_search_opens_the_exact_page(server: WikipediaServer) -> None:
    wikipedia = Wikipedia(base_url=server.url)
    expected = "Kale is a cabbage. It is green. It is old. It is good. It is eaten."
    assert wikipedia.search("Kale") == expected
    assert wikipedia.search(" kale\n") == expected
    assert wikipedia.search("Kali") == "Kali is a goddess."
    assert wikipedia.search("北京") == "北京是中国的首都。 它很大。"
    assert "hello-react" in server.requests[0].headers["User-Agent"]
    assert len(server.requests) == 4


def test_lookup(server: WikipediaServer) -> None:
    wikipedia = Wikipedia(base_url=server.url)
    assert "search for a page first" in wikipedia.lookup("kale")
    wikipedia.search("Kale")
    assert wikipedia.lookup("KALE") == "(Result 1 / 2) Kale is a cabbage."
    assert wikipedia.lookup("kale") == "(Result 2 / 2) Kale is Greek."
    assert "No more results" in wikipedia.lookup("kale")
    assert "not on the page" in wikipedia.lookup("History")  # headings are no sentences


def test_a_redirect_is_said(server: WikipediaServer) -> None:
    said = Wikipedia(base_url=server.url).search("Borecole")
    assert said.startswith("(Borecole leads to the page Kale.) Kale is a cabbage.")


def test_another_case_of_a_title_is_the_same_title(server: WikipediaServer) -> None:
    assert Wikipedia(base_url=server.url).search("ada lovelace") == "Ada wrote programs."


def test_no_such_page(server: WikipediaServer) -> None:
    wikipedia = Wikipedia(base_url=server.url)
    wikipedia.search("Kale")
    assert wikipedia.search("Kalle") == "Could not find Kalle. Similar: [Kale, Kali]"
    assert "search for a page first" in wikipedia.lookup("kale")
    assert wikipedia.search("Qwxz") == "Could not find Qwxz, and nothing similar. Try another name."


@pytest.mark.parametrize("title", ["a|b", "a#b", "[a] {b}"])
def test_signs_that_no_title_has(server: WikipediaServer, title: str) -> None:
    Wikipedia(base_url=server.url).search(title)
    assert [request.query.get("list") for request in server.requests] == ["search"]
    assert Wikipedia(base_url=server.url).search("a|b") == "Could not find a|b. Similar: [Kale]"


@pytest.mark.parametrize("title", ["Empty", "fr:Kale", "|#"])
def test_what_is_no_article(server: WikipediaServer, title: str) -> None:
    assert Wikipedia(base_url=server.url).search(title).startswith("Could not find")


def test_disambiguation_lists_choices(server: WikipediaServer) -> None:
    wikipedia = Wikipedia(base_url=server.url)
    said = wikipedia.search("Mercury")
    assert said.endswith("Search for one of: [Mercury (element), Mercury (planet), Freddie]")
    assert "search for a page first" in wikipedia.lookup("Mercury")
    assert wikipedia.search("Many").count(",") == 19


def test_runs_share_no_page(server: WikipediaServer) -> None:
    first = Wikipedia("en", server.url, 5)
    first.search("Kale")
    second = first.for_run()
    assert (second.lang, second.base_url, second.timeout) == ("en", server.url, 5)
    assert "search for a page first" in second.lookup("kale")
    second.search("Kale")
    assert first.lookup("green") == second.lookup("green") == "(Result 1 / 1) It is green."


def test_address_from_the_settings(server: WikipediaServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WIKIPEDIA_BASE_URL", server.url + "/")
    assert Wikipedia("zh").search("Kali") == "Kali is a goddess."
    monkeypatch.setenv("WIKIPEDIA_BASE_URL", "wiki.example")
    with pytest.raises(ToolError, match=r"WIKIPEDIA_BASE_URL .*https:// is missing"):
        Wikipedia().search("Kali")


def test_what_can_not_be_asked(server: WikipediaServer) -> None:
    with pytest.raises(SettingsError, match="no language"):
        Wikipedia("en.evil.example/")
    with pytest.raises(ToolError, match="title is empty"):
        Wikipedia(base_url=server.url).search(" ")
    assert server.requests == []


@pytest.mark.parametrize(("fault", "expected"), [
    ("html", "no usable answer"), ("gateway", "HTTP 502"), ("list", "no usable answer"),
    ("drop", "could not be reached"),
    ("stall", "did not answer within 0.2 seconds"), ("stall_body", "did not answer within 0.2 seconds"),
    (429, "exceeded your rate limit"), (200, "exceeded your rate limit"),
])
def test_faults(server: WikipediaServer, fault: str | int, expected: str) -> None:
    server.fault = fault
    with pytest.raises(ToolError, match=expected) as caught:
        Wikipedia(base_url=server.url, timeout=0.2 if str(fault).startswith("stall") else 10).search("Kale")
    assert "\n" not in str(caught.value)


def test_an_address_that_is_no_wiki(server: WikipediaServer) -> None:
    with pytest.raises(ToolError, match="Unrecognized value"):
        Wikipedia(base_url=server.url + "/mirror").search("Kale")


@pytest.mark.parametrize("query", [
    {"pages": ["x"]}, {"pages": 5}, {"pages": {}, "search": []}, {"pages": [{"title": "A", "pageprops": None}]},
    {"pages": [{"title": "A", "pageprops": {"disambiguation": ""}, "links": None}]},
    {"pages": [{"title": None, "pageprops": {"disambiguation": ""}, "links": [{}]}]},
    {"pages": [{"extract": 5}]}, {"search": None}, {"search": [None]},
])
def test_odd_answers_become_plain_words(query: dict[str, Any]) -> None:
    class Odd(WikipediaServer):
        def answer(self, request: Request) -> Any:
            return 200, {"query": query}

    with Odd({}) as odd:
        wikipedia = Wikipedia(base_url=odd.url)
        if query == {"pages": {}, "search": []}:
            assert "nothing similar" in wikipedia.search("Kale")
            return
        with pytest.raises(ToolError, match="Wikipedia gave an answer in an unknown form"):
            wikipedia.search("Kale")
