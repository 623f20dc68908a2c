"""A page of text as ReAct's Search and Lookup read it: the first sentences, then sentences by keyword.

Takes a title and plain text; gives the observations of the paper's Wikipedia environment. Fetches nothing.

    >>> page = Page("Kale", "Kale is a cabbage. It has edible leaves. Some kale is grown for its colour.")
    >>> page.summary(1)
    'Kale is a cabbage.'
    >>> page.lookup("kale")
    '(Result 1 / 2) Kale is a cabbage.'
"""

from __future__ import annotations

import difflib
import re

# Words whose full stop ends no sentence before a name, before a number, or before most other words.
_TITLE = re.compile("mr|mrs|ms|dr|prof|st|rev|hon|gen|col|capt|lt|sgt|gov|sen|rep|pres|mt|ft|vs|cf|ca|approx")
_NUMBERED = re.compile("nos?|figs?|vol|pp?|ch|sec|art|jan|feb|mar|apr|jun|jul|aug|sept?|oct|nov|dec")
_INITIALS = re.compile(r"etc|al|sr|jr|inc|ltd|co|corp|bros|dept|eds?|est|[^\W\d_]|[^\W_]+(?:\.[^\W\d_]+)+")
# Words that begin a sentence far more often than they follow "U.S." or "Inc." inside one.
_OPENER = re.compile("the|an?|its?|[io]n|at|s?he|his|her|they|their|th[eo]se|this|that|there|as|by|for|from|"
                     "after|before|when|while|since|although|however|but|we")
# A stop and the quotes and brackets that close behind it; Western stops need white space or the end after it.
_STOP = re.compile("(?:[。！？…]+|(?<![.!?])[.!?]+(?=[\"'”’)\\]]{0,4}(?:\\s|\\Z)))[\"'”’」』）》)\\]]{0,4}")
_WORD_BEFORE = re.compile(r"[^\W_]+(?:\.[^\W_]+)*\Z")
_WORD = re.compile(r"[^\W\d_]{3,40}")
_WORD_AFTER = re.compile(r"\s*[\"'“‘(]?([^\W_]+)")


def sentences(text: str) -> list[str]:
    """The sentences of `text`, English or Chinese, each on one line; a line end always ends one.

        >>> sentences("Dr. J. R. Smith came to the U.S. in 1990. He paid $3.5 million! 他回国了。很好。")
        ['Dr. J. R. Smith came to the U.S. in 1990.', 'He paid $3.5 million!', '他回国了。', '很好。']
    """
    found = []
    for line in text.splitlines():
        start = 0
        for stop in _STOP.finditer(line):
            if _ends_sentence(line, stop):
                found.append(line[start : stop.end()])
                start = stop.end()
        found.append(line[start:])
    return [" ".join(one.split()) for one in found if one.strip()]


def _ends_sentence(line: str, stop: re.Match[str]) -> bool:
    """Whether the stop is an end, and not the dot of an abbreviation or an initial."""
    after = _WORD_AFTER.match(line[stop.end() : stop.end() + 40])
    following = after[1] if after else ""
    if following[:1].islower():
        return False
    before = _WORD_BEFORE.search(line[max(0, stop.start() - 20) : stop.start()])
    if stop[0] != "." or before is None:
        return True
    word = before[0].lower()
    if _TITLE.fullmatch(word):
        return not following
    if _NUMBERED.fullmatch(word):
        return not following[:1].isdigit()
    return not _INITIALS.fullmatch(word) or not following or bool(_OPENER.fullmatch(following.lower()))


class Page:
    """An open page, with one counter for each keyword that was looked up.

    Attributes:
        title: the page's title.
        sentences: its sentences, in order.
    """

    def __init__(self, title: str, text: str) -> None:
        self.title = title
        self.sentences = sentences(text)
        self._seen: dict[str, int] = {}

    def summary(self, n: int = 5) -> str:
        """The first `n` sentences."""
        return " ".join(self.sentences[:n])

    def lookup(self, keyword: str) -> str:
        """The next sentence that holds `keyword` (taken literally, in any case), or why there is none."""
        wanted = " ".join(keyword.split()).casefold()
        if not wanted:
            return "Lookup needs a keyword, such as Lookup[population]."
        hits = [one for one in self.sentences if wanted in one.casefold()]
        if not hits:
            return (f'"{keyword.strip()}" is not on the page "{self.title}"{self._nearest(wanted)}. '
                    "Look up another word, or search for another page.")
        index = self._seen.get(wanted, 0)
        if index == len(hits):
            return f'No more results for "{keyword.strip()}" on the page "{self.title}".'
        self._seen[wanted] = index + 1
        return f"(Result {index + 1} / {len(hits)}) {hits[index]}"

    def _nearest(self, wanted: str) -> str:
        """Names the word of the page that is spelt nearly like this one, if there is one."""
        words = {word.casefold(): word for one in self.sentences for word in _WORD.findall(one)}
        near = difflib.get_close_matches(wanted, words if len(wanted) <= 40 else (), 1, 0.8)
        return f'; the nearest word there is "{words[near[0]]}"' if near else ""
