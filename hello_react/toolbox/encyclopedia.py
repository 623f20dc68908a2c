"""Search and Lookup over a small encyclopedia that ships with the package: ReAct as in its paper, offline.

Takes a name ("Mount Everest", "capital of France", "珠穆朗玛峰有多高"); gives the article as one line, the
choices if the name has several; or similar titles, ranked by SQLite's full-text search, with sentences that
mention it. It opens no article that the query does not name. Leaves out long pages: the articles, in
English, are short.

    >>> encyclopedia = Encyclopedia()
    >>> encyclopedia.search("Mercury")
    '"Mercury" may mean: [Mercury (element); Mercury (planet)]. Search for one of them.'
    >>> encyclopedia.search("Seine")[:40]
    'Seine: The Seine is a river in France, 7'
"""

from __future__ import annotations

import difflib
import json
import os
import re
import threading
import unicodedata
import weakref
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from ..errors import ToolError
from .page import Page, sentences

# Letters and signs written without blanks between words, but not their punctuation.
_CJK = ("[\u1100-\u11ff\u2e80-\u2fdf\u3005-\u3007\u3021-\u3029\u3040-\u30fa\u30fc-\u9fff\uf900-\ufaff"
        "\U00020000-\U0003ffff]")
_TOKEN = re.compile(f"{_CJK}+|(?:(?!{_CJK})[^\\W_])+")
_PAIR = re.compile(r"\b(?!The )(?=([A-Z]\w+ [A-Z]\w+))")
_FOLD = str.maketrans({"ø": "o", "ł": "l", "đ": "d", "ð": "d", "æ": "ae", "œ": "oe", "þ": "th", "ı": "i"})
# Words that names and queries may have or lack.
_SMALL_WORDS = "the a an of in on at by for to from and or"
# Words of a question that say nothing about whether its subject is the right one.
_ASIDE_WORDS = """
    about age altitude amount architect are area atomic author be been between big bigger biography
    birth birthday birthplace boil boiling book born build built call called capital compare comparison
    create created creator currency date day death deep deeper density depth design designed designer
    detail diameter did die died difference discover discovered discoverer distance do does earlier
    elevation encyclopedia fact famous far find first found founded founder founding give had has have
    he heavier height her high higher highest his how i info information inhabitant invent invented
    inventor is it its kilometer kilometre km know known language large larger largest later length
    level life locate located location long longer longest made make maker many mass me melt melting
    meter metre much my name named newer novel number official often old older orbit orbital people
    period place please point population publication publish published radius she short shorter show
    situated size small smaller symbol tall taller tell temperature than that their there they this time
    total unit use used value versus vs was weight were what when where which who whom whose why wide
    width wikipedia write writer written wrote year you younger"""
# The same in Chinese, the longer before the shorter.
_CJK_ASIDE = re.compile(
    "告诉我|我想知道|什么时候|首次出版|出生日期|出生地|原子序数|哪一年|请问|什么|哪[里儿个座条年天位国]?|谁|"
    "多[少高长大深远重]?|几|何时|何地|怎么|如何|首[都府]|人口|面积|货币|语言|官方|国家|海拔|高度|长度|深度|直径|半径|质量|"
    "重量|距离|公转|自转|周期|卫星|数量|元素|符号|原子|序数|[熔沸]点|密度|温度|发[现明][者人年]?|设计[者师]?|创[造始立][者人]?|"
    "作[者家]|写|著|小说|书|建[成造立]?|开放|出版|发[表布]|首次|出生|生[日于]|[去逝]世|卒于|时间|年[份代龄]?|月|日期?|地点|"
    "位[置于]|属于|叫|名字|简介|介绍|资料|信息|世界|公里|千米|米|度|是|在|有|了|的|吗|呢|和|与|或|及|之|由|被|于|中|里|上|"
    "最|高|长|大|死")
_SMALL = frozenset(_SMALL_WORDS.split())
_NO_PAGE = "No page is open. Use Search first, such as Search[Paris], then Lookup."
_MOST_SIMILAR = 5
_MOST_MENTIONS = 2  # sentences shown; words that stand in more than thrice as many articles show none
_LONGEST_MENTION = 400  # characters


def _key(text: str) -> str:
    """`text` as names are compared: no case, accents, punctuation or leading article."""
    text = unicodedata.normalize("NFKD", unicodedata.normalize("NFKD", text).casefold())
    text = "".join(sign for sign in text if not unicodedata.combining(sign)).translate(_FOLD)
    # Without this, C, C++ and C# would be one name; guarded by test_signs_that_tell_names_apart.
    text = re.sub(r"(?<=\w)\+\+", "plusplus", re.sub(r"(?<=\w)#", "sharp", text))
    text = re.sub("['’‘`´]", "", re.sub(r"['’‘`´]s\b", "", text))
    key = re.sub(f" ?({_CJK}+) ?", r"\1", " ".join(_TOKEN.findall(text)))
    return re.sub(r"\A(?:the|an?) (?=.)", "", key)


_SAME = {"tallest": "highest", "biggest": "largest"}


def _stem(word: str) -> str:
    """A word as it is compared: no plural s, one word for two that say the same."""
    bare = word[:-1] if len(word) > 3 and word.endswith("s") and not word.endswith("ss") else word
    return _SAME.get(bare, bare)


_ASIDE = frozenset(_stem(word) for word in _ASIDE_WORDS.split()) | _SMALL


def _words(key: str) -> list[str]:
    """The words of a key but Chinese ones and small ones, without a plural s."""
    return [_stem(word) for word in _TOKEN.findall(key) if word not in _SMALL and not re.match(_CJK, word)]


def _padded(words: Sequence[str]) -> str:
    """Words as a line in which whole words are found with `in`."""
    return f" {' '.join(words)} "


def _chinese(key: str) -> str:
    return "".join(re.findall(f"{_CJK}+", key))


class _Article(NamedTuple):
    title: str
    text: str
    names: tuple[str, ...]  # keys; that of the title comes first
    words: frozenset[str]
    pairs: frozenset[str]  # capitalised words in a row, mostly names of others: Queen Victoria


class _Match(NamedTuple):
    """A name that stands in a query."""

    article: _Article
    name: str
    fits: bool  # the rest of the query speaks of this article, or only asks
    score: tuple[int, int]


def _read(path: Path) -> list[_Article]:
    articles = []
    try:
        lines = path.read_text(encoding="utf-8-sig").split("\n")
    except (OSError, UnicodeError) as error:
        raise ToolError(f"The encyclopedia {path} can't be read: {error}") from error
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            entry = json.loads(line)
            title, text, aliases = str(entry["title"]), str(entry["text"]), list(entry.get("aliases", []))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise ToolError(f"Line {number} of the encyclopedia {path} is no article: it takes a JSON object "
                            'with "title", "text" and, if any, "aliases".') from error
        names = (title, re.sub(r"\s*\([^()]*\)\Z", "", title), *map(str, aliases))
        keys = tuple(dict.fromkeys(key for key in map(_key, names) if key))
        words = frozenset(_words(_key(f"{title} {text}")))
        pairs = frozenset(_padded(_words(_key(pair))) for pair in _PAIR.findall(text))
        articles.append(_Article(title, " ".join(text.split()), keys, words, pairs))
    return articles


def _rank_by_full_text(articles: Sequence[_Article]) -> Callable[[Sequence[str]], list[int]] | None:
    """SQLite's bm25 over titles, other names and texts; None where this Python has no FTS5."""
    try:
        import sqlite3
    except ImportError:
        return None
    database = sqlite3.connect(":memory:", check_same_thread=False)
    try:
        database.execute("CREATE VIRTUAL TABLE article USING fts5"
                         "(title, names, text, tokenize = 'porter unicode61 remove_diacritics 2')")
    except sqlite3.OperationalError:
        database.close()
        return None
    database.executemany("INSERT INTO article (rowid, title, names, text) VALUES (?, ?, ?, ?)",
                         ((i, a.title, "; ".join(a.names[1:]), a.text) for i, a in enumerate(articles)))
    lock = threading.Lock()

    def rank(words: Sequence[str]) -> list[int]:
        query = " OR ".join(f'"{word}"' for word in words)
        with lock:
            rows = database.execute("SELECT rowid FROM article WHERE article MATCH ? "
                                    "ORDER BY bm25(article, 10, 6, 1), rowid LIMIT 10", (query,)).fetchall()
        return [row[0] for row in rows]

    weakref.finalize(rank, database.close)
    return rank


def _rank_by_count(articles: Sequence[_Article]) -> Callable[[Sequence[str]], list[int]]:
    """The same without SQLite: how many of the words an article has, those of its names ten times."""
    names = [frozenset(word for name in article.names for word in _words(name)) for article in articles]

    def rank(words: Sequence[str]) -> list[int]:
        stems = {_stem(word) for word in words}
        scores = [10 * len(stems & names[i]) + len(stems & a.words) for i, a in enumerate(articles)]
        return sorted((i for i, score in enumerate(scores) if score), key=lambda i: -scores[i])[:10]

    return rank


class _Index:
    """The articles of one file, to be found by name; never changes once built, so any thread may read it."""

    def __init__(self, articles: Sequence[_Article]) -> None:
        self.articles = articles
        self.rank = _rank_by_full_text(articles) or _rank_by_count(articles)
        self.titles = {article.names[0]: article for article in articles}
        self.named: dict[str, list[_Article]] = {}
        for article in articles:
            for name in article.names:
                self.named.setdefault(name, []).append(article)
        self.patterns = [(name, _padded(_words(name))) for name in self.named
                         if _words(name) or _chinese(name)]

    def find(self, key: str) -> list[_Article]:
        """The one article that the query `key` names; several if it is ambiguous; none if it names none."""
        if key in self.titles:
            return [self.titles[key]]
        if key in self.named:
            return self.named[key]
        fitting = [match for match in self.matches(key) if match.fits]
        best = max((match.score for match in fitting), default=None)
        return list({match.article.title: match.article for match in fitting if match.score == best}.values())

    def matches(self, key: str) -> list[_Match]:
        """Every name that stands in the query."""
        words, chinese = _words(key), _chinese(key)
        line = _padded(words)
        found = []
        for name, pattern in self.patterns:
            in_chinese = _chinese(name)
            if (name not in key) if in_chinese else (pattern not in line):
                continue
            told = set(words) - set(pattern.split())
            asks = f"{name}的" in key or not _CJK_ASIDE.sub("", chinese.replace(in_chinese, "", 1))
            for article in self.named[name]:
                missing = len(told - _ASIDE - article.words)
                if len(pattern.split()) > 1:  # a name of several words is hardly ever a part of another name
                    fits = asks and (not missing or 2 * missing < len(told - _ASIDE))
                else:
                    fits = asks and not missing and not any(pattern in pair and pair in line
                                                            for pair in article.pairs)
                score = (len(name) + len(in_chinese), len(told & article.words))
                found.append(_Match(article, name, fits, score))
        return found

    def meant(self, key: str) -> str:
        """The title whose name is spelt like the query but for a slip of the finger or two; else empty."""
        slips = 1 if len(key) < 10 else 2
        if not 5 <= len(key) < 80:
            return ""
        for name in difflib.get_close_matches(key, self.named, n=3, cutoff=0.75):
            same = sum(block.size for block in difflib.SequenceMatcher(None, key, name).get_matching_blocks())
            if abs(len(key) - len(name)) <= slips and len(key) + len(name) - 2 * same <= 2 * slips:
                articles = self.named[name]
                return articles[0].title if len(articles) == 1 else articles[0].title.partition(" (")[0]
        return ""

    def mentions(self, key: str) -> list[tuple[str, str]]:
        """Titles and sentences with all words of the query, if these are rare; those in its order first."""
        words = _words(key)
        wanted = set(words) - _ASIDE
        if not wanted or _chinese(key):
            return []
        found = []
        for article in self.articles:
            if not wanted <= article.words:
                continue
            for sentence in sentences(article.text):
                line = _padded(_words(_key(sentence)))
                if wanted <= set(line.split()) and len(sentence) <= _LONGEST_MENTION:
                    found.append((_padded(words) not in line, article.title, sentence))
                    break
        if len(found) > 3 * _MOST_MENTIONS:
            return []
        return [(title, said) for _, title, said in sorted(found, key=lambda one: one[0])[:_MOST_MENTIONS]]

    def similar(self, key: str) -> list[str]:
        """Titles that share a name, a spelling or words with the query, best first."""
        named = sorted((m for m in self.matches(key) if len(m.name) + len(_chinese(m.name)) > 2),
                       key=lambda match: match.score, reverse=True)
        found = [match.article for match in named]
        if len(key) < 80:
            for name in difflib.get_close_matches(key, self.named, n=3, cutoff=0.75):
                found += self.named[name]
        tokens = [word for word in dict.fromkeys(_TOKEN.findall(key)) if _stem(word) not in _ASIDE]
        if tokens:
            found += [self.articles[i] for i in self.rank(tokens[:32])]
        return list(dict.fromkeys(article.title for article in found))[:_MOST_SIMILAR]


_DATA = Path(__file__).with_name("encyclopedia.jsonl")
_indexes: dict[Path, _Index] = {}
_building = threading.Lock()


def _index(path: Path) -> _Index:
    """The index of a file, built once a process."""
    with _building:
        if path not in _indexes:
            _indexes[path] = _Index(_read(path))
        return _indexes[path]


def _listed(titles: Iterable[str]) -> str:
    return f"[{'; '.join(titles)}]"  # a title may hold a comma: Washington, D.C.


class Encyclopedia:
    """The tools `Search` and `Lookup` over one collection of articles, with the page that is open.

    All share the articles, but a page belongs to one run: take a fresh copy with `for_run()` for each.

    Args:
        path: a JSON lines file of {"title", "text", "aliases"} in place of the package's own collection; it
            is read at the first search.

    Raises:
        ToolError: `path` is no file (at once), or not such a file (at the first search).
    """

    def __init__(self, path: str | os.PathLike[str] | None = None) -> None:
        self.path = _DATA if path is None else Path(path).absolute()
        if not self.path.is_file():
            raise ToolError(f"There is no encyclopedia at {self.path}.")
        self._page: Page | None = None

    def for_run(self) -> Encyclopedia:
        """A copy with no page open, for one run."""
        return type(self)(self.path)

    def search(self, query: str) -> str:
        """Open the article on one thing in an offline encyclopedia: a country, city, mountain, river, person,
        element, planet, book, programming language, building or invention. The input is its name alone, such
        as Mount Everest.

        Returns:
            "Title: text" in one line; the choices if the name means several articles; if no article has it,
            similar titles, and sentences of other articles that mention it. Only the first opens a page for
            `lookup`.
        """
        self._page = None
        shown = " ".join(query.split())
        key = _key(shown[:500])
        if not key:
            return "Search needs the name of something, such as Search[Mount Everest]."
        shown = shown if len(shown) <= 100 else f"{shown[:100]}..."
        index = _index(self.path)
        found = index.find(key)
        if len(found) > 1:
            choices = _listed(article.title for article in found)
            return f'"{shown}" may mean: {choices}. Search for one of them.'
        if found:
            self._page = Page(found[0].title, found[0].text)
            return f"{found[0].title}: {found[0].text}"
        similar = index.similar(key)
        if similar:
            meant = index.meant(key)
            more = [f"Did you mean {meant}?"] if meant else []
            more += [f'Mentioned in {title}: "{said}"' for title, said in index.mentions(key)]
            return " ".join([f"I could not find {shown}.", *more, f"Similar: {_listed(similar)}."])
        return f"I could not find {shown}, nor anything like it. Search for a name, in one to three words."

    def lookup(self, keyword: str) -> str:
        """Find the next sentence that holds this word in the article that Search opened last. Use it after
        Search; the input is one word or a short phrase, such as population.

        Returns:
            "(Result 1 / 3) sentence", the next one at the next call, then that there are no more.
        """
        return _NO_PAGE if self._page is None else self._page.lookup(keyword)
