"""The offline encyclopedia: its data, how names are found, and Lookup on the open page."""

from __future__ import annotations

import doctest
import json
import re
import sqlite3
import sys
import types
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from datetime import date
from pathlib import Path

import pytest

from hello_react.errors import ToolError
from hello_react.toolbox import encyclopedia as module
from hello_react.toolbox.encyclopedia import Encyclopedia
from hello_react.toolbox.page import sentences

DATA = Path(module.__file__).with_name("encyclopedia.jsonl")
ARTICLES = [json.loads(line) for line in DATA.read_text(encoding="utf-8").splitlines()]
TEXTS = {article["title"]: article["text"] for article in ARTICLES}
KINDS = {article["title"]: article["kind"] for article in ARTICLES}
MONTHS = ["January", "February", "March", "April", "May", "June", "July", "August", "September", "October",
          "November", "December"]
DATE = rf"(\d{{1,2}}) ({'|'.join(MONTHS)}) (\d{{3,4}})"
AMBIGUOUS = {"mercury", "java", "amazon", "victoria", "swift", "pascal", "ada", "eiffel", "curie", "bronte",
             "diesel", "armstrong"}


def opened(query: str) -> str:
    """The title of the article that a search opens."""
    return Encyclopedia().search(query).split(": ")[0]


def test_docstring_examples() -> None:
    assert doctest.testmod(module).failed == 0


# The data


def test_every_article_is_well_formed_and_the_file_sorted() -> None:
    assert len(ARTICLES) >= 500
    assert DATA.stat().st_size < 250_000
    assert [(a["kind"], a["title"]) for a in ARTICLES] == sorted((a["kind"], a["title"]) for a in ARTICLES)
    for article in ARTICLES:
        assert list(article) == ["title", "aliases", "kind", "text"], article["title"]
        for text in (article["title"], *article["aliases"], article["text"]):
            assert text == " ".join(text.split()), text
            assert ";" not in article["title"]
        assert article["text"].endswith("."), article["title"]
        assert 2 <= len(sentences(article["text"])) <= 7, article["title"]
        assert len(article["text"]) <= 700, article["title"]


def test_enough_of_each_kind() -> None:
    counts = Counter(KINDS.values())
    least = {"country": 45, "city": 45, "mountain": 20, "river": 20, "person": 60, "element": 25, "space": 12,
             "book": 25, "language": 18, "building": 10, "place": 20, "invention": 12}
    assert {kind: counts[kind] for kind in least if counts[kind] < least[kind]} == {}
    chinese = [a for a in ARTICLES if re.search("[\u4e00-\u9fff]", " ".join(a["aliases"]))]
    assert len(chinese) >= 120


def test_no_sentence_runs_into_the_next() -> None:
    for title, text in TEXTS.items():
        for sentence in sentences(text):
            inside = re.sub(r"D\.C\.|\b[FGHJKR]\. ", "", sentence)
            assert not re.search(r"\. [A-Z]", inside), (title, sentence)


def test_names_are_unique_but_for_the_ambiguous_ones() -> None:
    owners: dict[str, set[str]] = {}
    for article in ARTICLES:
        names = [article["title"], re.sub(r" \(.*\)$", "", article["title"]), *article["aliases"]]
        assert len(set(article["aliases"])) == len(article["aliases"]), article["title"]
        for name in names:
            owners.setdefault(module._key(name), set()).add(article["title"])
    assert {name for name, titles in owners.items() if len(titles) > 1} == AMBIGUOUS
    titles = [module._key(article["title"]) for article in ARTICLES]
    assert len(set(titles)) == len(titles)


def test_every_text_names_its_subject_first() -> None:
    for title, text in TEXTS.items():
        name = module._key(re.sub(r" \(.*\)$", "", title))
        assert name in module._key(sentences(text)[0]), title


def test_every_capital_has_an_article_that_names_its_country() -> None:
    cities = [title for title, kind in KINDS.items() if kind == "city"]
    for country, text in ((title, TEXTS[title]) for title, kind in KINDS.items() if kind == "country"):
        if country == "Singapore":
            continue
        found = re.search(r"its (?:three )?capitals? (?:is|are) (.+?)(?:, its (?:mainland )?area|\. I)", text)
        assert found, country
        named = [city for city in cities if city in found[1]]
        assert len(named) == (3 if country == "South Africa" else 1), country
        for city in named:
            assert re.match(rf"{re.escape(city)},? is the capital of (?:the )?{country}\b", TEXTS[city]), city


@pytest.mark.parametrize("kind", ["book", "language"])
def test_every_work_has_a_maker_whose_article_names_it(kind: str) -> None:
    people = [title for title in TEXTS if KINDS[title] == "person"]
    for title in (title for title in TEXTS if KINDS[title] == kind):
        first = sentences(TEXTS[title])[0]
        makers = [person for person in people if person in (first if kind == "book" else TEXTS[title])]
        assert makers, title
        assert any(re.sub(r" \(.*\)$", "", title) in TEXTS[person] for person in makers), title


def test_years_of_a_work_agree_with_its_maker() -> None:
    for title in (title for title in TEXTS if KINDS[title] == "book"):
        maker = next(p for p in TEXTS if KINDS[p] == "person" and p in sentences(TEXTS[title])[0])
        birth = re.search(r"(?:born|baptised)[^;]*?(\d{4})", TEXTS[maker])
        year = re.search(r"(?:published|written|printed|begun).*?(\d{4}|\d\dth century)", TEXTS[title])
        if birth and year and "century" not in year[1]:
            assert 15 < int(year[1]) - int(birth[1]) < 150, title


def test_births_come_before_deaths() -> None:
    checked = 0
    for title, text in TEXTS.items():
        if KINDS[title] != "person" or title == "Wright brothers":
            continue
        born = re.search(rf"(?:born|baptised)(?: [A-Z]\w+)* on {DATE}", text)
        died = re.search(rf"(?:died|beheaded|killed|lost|vanished|crash)[^;.]*? on {DATE}", text)
        if born and died:
            start, end = (date(int(d[3]), MONTHS.index(d[2]) + 1, int(d[1])) for d in (born, died))
            assert 25 < (end - start).days / 365.25 < 100, title
            checked += 1
    assert checked > 80


def test_every_date_exists() -> None:
    for text in TEXTS.values():
        for day, month, year in re.findall(DATE, text):
            date(int(year), MONTHS.index(month) + 1, int(day))


@pytest.mark.parametrize(("kind", "pattern", "low", "high"), [
    ("mountain", r"([\d,]+) m (?:high|above)", 1000, 8849),
    ("river", r"([\d,]+) km long", 300, 6650),
    ("building", r"([\d,]+)(?:\.\d)? m (?:high|long)", 15, 3000),
    ("country", r"area[^.]*?([\d,]+) km²", 700, 930_000),
    ("element", r"atomic number ([\d,]+)", 1, 94),
    ("element", r"(?:melting point is|boiling point) (?:about )?(-?[\d,]+)", -270, 3700),
])
def test_numbers_lie_within_what_is_possible(kind: str, pattern: str, low: int, high: int) -> None:
    found = [int(number.replace(",", "")) for title in TEXTS if KINDS[title] == kind
             for number in re.findall(pattern, TEXTS[title])]
    assert len(found) > 10
    assert low <= min(found)
    assert max(found) <= high


def test_elements_melt_below_their_boiling_point() -> None:
    for title in (title for title in TEXTS if KINDS[title] == "element"):
        number = r"(?:about )?(-?[\d,.]+) °C"
        points = re.search(f"melting point is {number} and its boiling point {number}", TEXTS[title])
        if points:
            melting, boiling = (float(point.replace(",", "")) for point in points.groups())
            assert melting < boiling, title


def test_elements_have_the_right_symbols() -> None:
    symbols = {1: "H", 2: "He", 3: "Li", 6: "C", 7: "N", 8: "O", 9: "F", 10: "Ne", 11: "Na", 12: "Mg",
               13: "Al", 14: "Si", 15: "P", 16: "S", 17: "Cl", 18: "Ar", 19: "K", 20: "Ca", 22: "Ti",
               26: "Fe", 28: "Ni", 29: "Cu", 30: "Zn", 31: "Ga", 47: "Ag", 50: "Sn", 53: "I", 74: "W",
               78: "Pt", 79: "Au", 80: "Hg", 82: "Pb", 84: "Po", 88: "Ra", 92: "U", 94: "Pu"}
    found = {}
    for title in (title for title in TEXTS if KINDS[title] == "element"):
        symbol, number = re.search(r"symbol (\w+) and atomic number (\d+)", TEXTS[title]).groups()
        found[int(number)] = symbol
    assert found == symbols


def test_planets_are_slower_the_farther_they_are() -> None:
    """Kepler's third law, in years and in mean distances of the Earth, to two percent."""
    for planet in ("Mercury (planet)", "Venus", "Earth", "Mars", "Jupiter", "Saturn", "Uranus", "Neptune",
                   "Pluto"):
        far = re.search(r"distance of ([\d.]+) (million|billion) km from the Sun", TEXTS[planet])
        period = re.search(r"around the Sun in ([\d.]+) (days|years)", TEXTS[planet])
        distance = float(far[1]) * {"million": 1, "billion": 1000}[far[2]] / 149.6
        years = float(period[1]) / {"days": 365.26, "years": 1}[period[2]]
        assert years == pytest.approx(distance ** 1.5, rel=0.02), planet


# Search


@pytest.mark.parametrize(("query", "title"), [
    ("Mount Everest", "Mount Everest"),
    ("  mount   EVEREST! ", "Mount Everest"),
    ("everest", "Mount Everest"),
    ("the Moon", "Moon"),
    ("moon", "Moon"),
    ("Trial", "The Trial"),
    ("Brasilia", "Brasília"),
    ("Reykjavík", "Reykjavik"),
    ("gabriel garcia marquez", "Gabriel García Márquez"),
    ("Orsted's ALUMINUM", "Aluminium"),
    ("Washington, D.C.", "Washington, D.C."),
    ("washington dc", "Washington, D.C."),
    ("Moby Dick", "Moby-Dick"),
    ("J.R.R. Tolkien", "J. R. R. Tolkien"),
    ("Gullivers Travels", "Gulliver's Travels"),
    ("Wu Chengen", "Wu Cheng'en"),
    ("Java (island)", "Java (island)"),
    ("1984", "Nineteen Eighty-Four"),
    ("height of Mount Everest", "Mount Everest"),
    ("How high is Mount Everest?", "Mount Everest"),
    ("what is the capital of France?", "France"),
    ("capital of France", "France"),
    ("population of Tokyo", "Tokyo"),
    ("who wrote Pride and Prejudice", "Pride and Prejudice"),
    ("pride prejudice", "Pride and Prejudice"),
    ("Jane Austen's birthday", "Jane Austen"),
    ("Newton's law of gravity", "Isaac Newton"),
    ("Marie Curie born in Warsaw", "Marie Curie"),
    ("Mount Everest first ascent Hillary Tenzing", "Mount Everest"),
    ("Mercury planet", "Mercury (planet)"),
    ("diameter of Mercury", "Mercury (planet)"),
    ("melting point of mercury", "Mercury (element)"),
    ("Java programming language", "Java (programming language)"),
    ("largest planet in the solar system", "Jupiter"),
    ("second highest mountain in the world", "K2"),
    ("highest mountain in Austria", "Austria"),
    ("tallest mountain in Iran", "Iran"),
    ("biggest lake in Africa", "Lake Victoria"),
    ("inventor of the telephone", "Telephone"),
    ("Great Wall", "Great Wall of China"),
])
def test_opens_the_article_that_the_query_names(query: str, title: str) -> None:
    assert opened(query) == title


@pytest.mark.parametrize(("query", "title"), [
    ("珠穆朗玛峰", "Mount Everest"),
    ("珠穆朗玛峰有多高", "Mount Everest"),
    ("珠穆朗玛峰的高度是多少米？", "Mount Everest"),
    ("阿尔伯特爱因斯坦", "Albert Einstein"),
    ("爱因斯坦是哪年出生的", "Albert Einstein"),
    ("法国的首都是哪里？", "France"),
    ("巴黎圣母院", "The Hunchback of Notre-Dame"),
    ("请问《红楼梦》的作者是谁？", "Dream of the Red Chamber"),
    ("谁写了《三体》", "The Three-Body Problem"),
    ("阿Q正传 作者", "The True Story of Ah Q"),
    ("Ｐｙｔｈｏｎ的作者是谁", "Python (programming language)"),
    ("C语言是谁设计的", "C (programming language)"),
    ("金的熔点", "Gold"),
    ("金", "Gold"),
    ("埃菲尔铁塔是哪年建成的", "Eiffel Tower"),
])
def test_opens_the_article_that_a_chinese_query_names(query: str, title: str) -> None:
    assert opened(query) == title


def test_a_found_article_is_one_line_with_its_title() -> None:
    assert Encyclopedia().search("k2") == f"K2: {TEXTS['K2']}"
    assert all("\n" not in Encyclopedia().search(title) for title in TEXTS)


def test_every_title_and_unambiguous_alias_opens_its_article() -> None:
    encyclopedia = Encyclopedia()
    for article in ARTICLES:
        for name in (article["title"], article["title"].upper(), *article["aliases"]):
            if module._key(name) not in AMBIGUOUS:
                assert encyclopedia.search(name) == f"{article['title']}: {article['text']}", name


@pytest.mark.parametrize(("name", "choices"), [
    ("Mercury", {"Mercury (element)", "Mercury (planet)"}),
    ("java", {"Java (programming language)", "Java (island)"}),
    ("the Amazon", {"Amazon rainforest", "Amazon River"}),
    ("Curie", {"Marie Curie", "Pierre Curie"}),
    ("Amazon basin", {"Amazon rainforest", "Amazon River"}),
])
def test_an_ambiguous_name_gives_the_choices(name: str, choices: set[str]) -> None:
    encyclopedia = Encyclopedia()
    answer = encyclopedia.search(name)
    assert f'"{name}" may mean' in answer
    assert set(re.search(r"\[(.*)\]", answer)[1].split("; ")) == choices
    assert "No page is open" in encyclopedia.lookup("the")


@pytest.mark.parametrize(("name", "similar"), [
    ("Einstien", "Albert Einstein"),
    ("Mount Everst", "Mount Everest"),
    ("Iron Man", "Iron"),
    ("Paris Hilton", "Paris"),
    ("Taylor Swift", "Jonathan Swift"),
    ("Monty Python", "Python (programming language)"),
    ("Haskell Curry", "Haskell"),
    ("George Washington", "Washington, D.C."),
    ("Queen Victoria", "Lake Victoria"),
    ("Michael", "Michael Faraday"),
    ("Sun Yat-sen", "Sun"),
    ("vitamin C", "C (programming language)"),
    ("First World War", "The War of the Worlds"),
    ("Treaty of Paris", "Paris"),
    ("theory of relativity", "Albert Einstein"),
    ("highest mountain in Bhutan", "Mount Everest"),
    ("Lake", "Lake Baikal"),
    ("北京大学", "Beijing"),
    ("铁路", None),
    ("Kale", None),
    ("Lumpability", None),
    ("Petawatt", None),
    ("华为最新的手机", None),
])
def test_an_unknown_name_opens_nothing_and_similar_titles_are_listed(name: str, similar: str | None) -> None:
    encyclopedia = Encyclopedia()
    answer = encyclopedia.search(name)
    assert answer.startswith(f"I could not find {name}")
    listed = re.search(r"Similar: \[(.*)\]\.$", answer)
    if similar is None:
        assert listed is None
    else:
        assert similar in listed[1].split("; ")
        assert len(listed[1].split("; ")) <= 5
    assert "No page is open" in encyclopedia.lookup("the")


@pytest.mark.parametrize(("query", "title", "said"), [
    ("The Night Watch", "Amsterdam", "painted by Rembrandt in 1642"),
    ("heart transplants", "Cape Town", "3 December 1967"),
    ("first human heart transplant", "Cape Town", "3 December 1967"),
    ("metal liquid at room temperature", "Mercury (element)", "the only metal that is liquid"),
    ("Shakespeare's sonnets about love", None, ""),
    ("sonnet", "William Shakespeare", "154 sonnets"),
])
def test_what_has_no_article_is_shown_where_another_one_mentions_it(
    query: str, title: str | None, said: str
) -> None:
    encyclopedia = Encyclopedia()
    answer = encyclopedia.search(query)
    quoted = re.search(r'Mentioned in ([^:]+): "([^"]+)"', answer)
    assert (quoted[1] if quoted else None) == title
    assert quoted is None or said in quoted[2]
    if title:
        assert "No page is open" in encyclopedia.lookup("the")


def test_two_mentions_at_most_those_in_the_order_of_the_query_first(tmp_path: Path) -> None:
    path = tmp_path / "own.jsonl"
    texts = {f"Port {n}": f"Port {n} is a port. It has a red crane number {n}." for n in range(3)}
    texts["Port 9"] = "Port 9 is a port. A crane of red iron stands there, a number of ships came."
    path.write_text("\n".join(json.dumps({"title": t, "text": x}) for t, x in texts.items()), encoding="utf-8")
    answer = Encyclopedia(path).search("red crane number")
    assert re.findall(r"Mentioned in ([^:]+):", answer) == ["Port 0", "Port 1"]
    assert answer.count("Mentioned in") == 2


def test_words_that_stand_in_many_articles_are_not_quoted() -> None:
    assert "Mentioned" not in Encyclopedia().search("century")
    assert "Mentioned" not in Encyclopedia().search("铁路")


def test_a_very_long_sentence_is_not_quoted(tmp_path: Path) -> None:
    path = tmp_path / "own.jsonl"
    path.write_text(json.dumps({"title": "Minutes", "text": "and then a crane " * 100}), encoding="utf-8")
    assert Encyclopedia(path).search("crane") == "I could not find crane. Similar: [Minutes]."


@pytest.mark.parametrize(("query", "meant"), [
    ("EFFEL TOWER", "Eiffel Tower"), ("mount everst", "Mount Everest"), ("makong", "Mekong"),
    ("Haskel", "Haskell"), ("Javascrip", "JavaScript"), ("Lake Bikal", "Lake Baikal"),
    ("Mercry", "Mercury"), ("Titanic", None), ("Jaws", None), ("Kale", None), ("Beethoven", None), ("Nil", None),
])
def test_a_slip_of_the_finger_is_asked_about(query: str, meant: str | None) -> None:
    answer = Encyclopedia().search(query)
    assert answer.startswith(f"I could not find {query}")
    asked = re.search(r"Did you mean (.+?)\?", answer)
    assert (asked[1] if asked else None) == meant


def test_a_comparison_lists_both_titles() -> None:
    for query in ("Is K2 higher than Kangchenjunga?", "Kangchenjunga vs K2"):
        listed = Encyclopedia().search(query)
        assert "[Kangchenjunga; K2" in listed
    assert "Tokyo" in Encyclopedia().search("东京和巴黎哪个人口多")


def test_signs_that_tell_names_apart() -> None:
    assert [opened(name) for name in ("C", "C++", "C#", "c sharp", "C++ language designer")] == [
        "C (programming language)", "C++", "C#", "C#", "C++"]


@pytest.mark.parametrize("query", ["", " \n", "?!", "()", '"', "*", "\ud800", "\x00"])
def test_an_empty_query_is_answered_with_what_to_write(query: str) -> None:
    assert Encyclopedia().search(query).startswith("Search needs the name of something")


@pytest.mark.parametrize("query", [
    'zebra "Everest', "zebra*", "NEAR(zebra quagga, 2)", "zebra AND NOT", "title: zebra", "^zebra", "-zebra",
    "{zebra}", "zebra + quagga", "zebra'; DROP TABLE article; --", "zebra\x00quagga", "zebra\ud800", "OR",
    "the", "zebra ²³ ½ ﬁ ǅ ㎞ ١٢٣", "AND", "[zebra]", "%zebra_", "zebra\n\nquagga",
])
def test_search_syntax_is_taken_literally(query: str) -> None:
    answer = Encyclopedia().search(query)
    assert answer.startswith("I could not find")
    assert "\n" not in answer


def test_quotes_and_stars_around_a_name_do_not_matter() -> None:
    assert opened('"Everest"*') == "Mount Everest"
    assert opened("-Paris") == "Paris"


def test_a_huge_query_is_answered_briefly() -> None:
    for query in ("Everest " * 100_000, "珠" * 100_000, "a" * 100_000, "1 2 3 " * 50_000):
        answer = Encyclopedia().search(query)
        assert len(answer) < 600


# Lookup


def test_lookup_needs_a_page() -> None:
    assert Encyclopedia().lookup("height") == (
        "No page is open. Use Search first, such as Search[Paris], then Lookup.")


def test_lookup_goes_from_result_to_result() -> None:
    encyclopedia = Encyclopedia()
    encyclopedia.search("Mount Everest")
    assert encyclopedia.lookup("8,849").startswith("(Result 1 / 1) Mount Everest is the highest mountain")
    assert encyclopedia.lookup("ON").startswith("(Result 1 / 3) ")
    assert encyclopedia.lookup("on").startswith("(Result 2 / 3) Edmund Hillary and Tenzing Norgay")
    assert [encyclopedia.lookup("on") for _ in range(2)][-1].startswith("No more results")
    assert "not on the page" in encyclopedia.lookup("K2")


def test_a_search_that_finds_nothing_closes_the_page() -> None:
    encyclopedia = Encyclopedia()
    encyclopedia.search("Paris")
    assert encyclopedia.lookup("Seine").startswith("(Result 1 / 1)")
    encyclopedia.search("Kale")
    assert "No page is open" in encyclopedia.lookup("Seine")


def test_two_runs_share_no_page_and_no_counter() -> None:
    encyclopedia = Encyclopedia()
    encyclopedia.search("Paris")
    encyclopedia.lookup("Paris")
    first, second = encyclopedia.for_run(), encyclopedia.for_run()
    assert "No page is open" in first.lookup("Paris")
    first.search("Paris")
    second.search("Danube")
    assert first.lookup("Paris").startswith("(Result 1 /")
    assert "not on the page \"Danube\"" in second.lookup("Paris")
    assert encyclopedia.lookup("Paris").startswith("(Result 2 /")


def test_many_threads_at_once() -> None:
    names = [*list(TEXTS)[::9], "Kale", "vitamin C", "theory of relativity", "Iron Man"]
    alone = {name: Encyclopedia().search(name) for name in names}

    def ask(i: int) -> bool:
        encyclopedia = Encyclopedia()
        return all(encyclopedia.search(name) == alone[name] for name in names[i % 5 :: 5])

    with ThreadPoolExecutor(16) as pool:
        assert all(pool.map(ask, range(64)))


# Other collections, other Pythons


def write(path: Path, *entries: object) -> Path:
    path.write_text("\n".join(json.dumps(entry) for entry in entries) + "\n\n", encoding="utf-8")
    return path


def test_a_collection_of_your_own(tmp_path: Path) -> None:
    kale = {"title": "Kale", "text": "Kale is a\ncabbage.", "aliases": ["Borecole"]}
    path = write(tmp_path / "own.jsonl", kale, {"title": "The A", "text": "Nothing."})
    own = Encyclopedia(path)
    assert own.search("borecole") == "Kale: Kale is a cabbage."
    assert own.lookup("cabbage") == "(Result 1 / 1) Kale is a cabbage."
    assert own.for_run().search("Kale") == "Kale: Kale is a cabbage."
    assert own.search("Paris").startswith("I could not find Paris")
    assert own.search("巴黎").startswith("I could not find 巴黎")
    assert Encyclopedia(str(path)).search("the A") == "The A: Nothing."


def test_a_missing_collection_is_said_at_once(tmp_path: Path) -> None:
    with pytest.raises(ToolError, match="There is no encyclopedia at"):
        Encyclopedia(tmp_path / "none.jsonl")


@pytest.mark.parametrize("line", [
    "{", "[]", "3", '{"title": "A"}', '{"title": "A", "text": "B.", "aliases": 3}',
])
def test_a_broken_collection_names_the_line(tmp_path: Path, line: str) -> None:
    path = tmp_path / "broken.jsonl"
    path.write_text('{"title": "Kale", "text": "Kale is a cabbage."}\n' + line, encoding="utf-8")
    with pytest.raises(ToolError, match="Line 2 of the encyclopedia"):
        Encyclopedia(path).search("Kale")


def test_a_collection_that_is_not_text(tmp_path: Path) -> None:
    path = tmp_path / "binary.jsonl"
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ToolError, match="can't be read"):
        Encyclopedia(path).search("Kale")


class WithoutFullText(sqlite3.Connection):
    """A database as of a SQLite that was built without FTS5."""

    def execute(self, statement: str, *rest: object) -> sqlite3.Cursor:
        if "fts5" in statement:
            raise sqlite3.OperationalError("no such module: fts5")
        return super().execute(statement, *rest)


def old_sqlite(name: str, check_same_thread: bool) -> sqlite3.Connection:
    return sqlite3.connect(name, check_same_thread=check_same_thread, factory=WithoutFullText)


@pytest.mark.parametrize("library", [
    None,
    types.SimpleNamespace(connect=old_sqlite, OperationalError=sqlite3.OperationalError),
], ids=["no sqlite3", "no FTS5"])
def test_works_without_full_text_search(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, library: object
) -> None:
    monkeypatch.setitem(sys.modules, "sqlite3", library)
    copy = tmp_path / "copy.jsonl"
    copy.write_bytes(DATA.read_bytes())
    encyclopedia = Encyclopedia(copy)
    assert encyclopedia.search("Everest") == f"Mount Everest: {TEXTS['Mount Everest']}"
    assert "Similar: [Albert Einstein" in encyclopedia.search("theory of relativity")
    assert "Similar: [Iron; " in encyclopedia.search("Iron Man")
    assert "nor anything like it" in encyclopedia.search("Petawatt")
