"""Sentences, and Search and Lookup over a page of text."""

from __future__ import annotations

import doctest
import time

import pytest

from hello_react.toolbox import page as module
from hello_react.toolbox.page import Page, sentences

TEXT = "Kale is a cabbage. It is green. Some KALE is purple. It costs $3.50 (or more). Eat kale!"


def test_docstring_examples() -> None:
    assert doctest.testmod(module).failed == 0


@pytest.mark.parametrize("expected", [
    ["He lived in the U.S.", "The war ended."],
    ["The U.S. Navy won.", "In Washington, D.C., he rested."],
    ["Dr. John F. Kennedy met Mrs. Smith in St. Louis.", "J. R. R. Tolkien wrote."],
    ["It was 3.5 million.", "Version 2.0 came."],
    ['He said "Go."', "Then he left."],
    ["Really?!", "Yes.", "(It was so.)", "Good"],
    ["Vitamin C.", "It is good."],
    ["World War I.", "The end."],
    ["Apple Inc. is big.", "He works for Apple Inc.", "She does not."],
    ["See e.g. this one.", "It opens at 5 p.m. daily.", "They left at 5 p.m.", "We stayed."],
    ["He was born on Jan. 3, 1990.", "No. 5 is alive.", "No.", "Smith et al. found it on p. 5."],
    ["Wait... what?", "Hmm...", "Then he left."],
    ["他说：“走吧。”", "然后离开了。", "真的吗？", "是！", "《红楼梦》是小说。"],
    ["圆周率约为3.14。", "OK。"],
    ["Visit example.com or a.b.c today.", "Done."],
    [".", "A."],
    ["no stop at all"],
    ["Dr."],
])
def test_sentences(expected: list[str]) -> None:
    assert sentences(" ".join(expected)) == expected


def test_line_ends_end_sentences_and_blanks_are_made_one() -> None:
    assert sentences("One line\nanother   line.\n\n \tThird.\r\n") == ["One line", "another line.", "Third."]
    assert sentences("") == []


def test_hostile_text_takes_linear_time() -> None:
    started = time.perf_counter()
    for part in (".", "a.", "A. ", '!"', "。", " ", "Dr. "):
        sentences(part * 100_000)
    assert time.perf_counter() - started < 20


def test_summary() -> None:
    assert Page("Kale", TEXT).summary(2) == "Kale is a cabbage. It is green."
    assert Page("Empty", "").summary() == ""
    assert len(Page("Long", "One. " * 9).summary().split()) == 5


def test_lookup_goes_on_and_ends() -> None:
    page = Page("Kale", TEXT)
    assert page.lookup("kale") == "(Result 1 / 3) Kale is a cabbage."
    assert page.lookup("green") == "(Result 1 / 1) It is green."
    assert page.lookup(" KALE ") == "(Result 2 / 3) Some KALE is purple."
    assert page.lookup("kale") == "(Result 3 / 3) Eat kale!"
    for _ in range(2):
        assert page.lookup("kale") == 'No more results for "kale" on the page "Kale".'


def test_lookup_is_literal() -> None:
    page = Page("Kale", TEXT)
    assert page.lookup("$3.50 (or") == "(Result 1 / 1) It costs $3.50 (or more)."
    assert "not on the page" in page.lookup(".*")
    assert "not on the page" in page.lookup("(k|K)")
    assert "needs a keyword" in page.lookup("  ")


@pytest.mark.parametrize(("keyword", "nearest"), [
    ("curency", "currency"), ("POPULATON", "population"), ("Pretorria", "Pretoria"), ("rand's", "rand"),
])
def test_a_word_spelt_wrong_is_told_the_nearest_one(keyword: str, nearest: str) -> None:
    page = Page("South Africa", "Its currency is the rand. Pretoria is a capital. The population was 63 million.")
    assert page.lookup(keyword) == (
        f'"{keyword}" is not on the page "South Africa"; the nearest word there is "{nearest}". '
        "Look up another word, or search for another page.")
    assert "nearest" not in page.lookup("mayor") + page.lookup("x" * 100_000)


def test_pages_share_nothing() -> None:
    first, second = Page("A", "One two."), Page("A", "One two.")
    assert first.lookup("one") == second.lookup("one") == "(Result 1 / 1) One two."
