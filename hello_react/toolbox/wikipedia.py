"""Wikipedia as the ReAct paper's environment: Search opens a page, Lookup finds words on it.

    wikipedia = Wikipedia()
    tools.register_tool("Search", "...", wikipedia.search)
    tools.register_tool("Lookup", "...", wikipedia.lookup)

The exact title is opened, never a title that is only like it; a redirect is said. The open page belongs to
one run: `for_run()` gives a copy without one. Leaves out tables, pictures and formulas.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from ..errors import SettingsError, ToolError
from ..settings import Settings, check_base_url
from ..text import clip
from .fetch import fetch_json, reading
from .page import Page

_USER_AGENT = "hello-react (a teaching package for ReAct agents; python-requests)"
_HEADING = re.compile(r"^=+ .* =+$", re.MULTILINE)
_NEVER_IN_TITLES = re.compile(r"[#<>\[\]|{}\x00-\x1f]+")
_SHOWN_CHOICES = 20


class Wikipedia:
    """Search and Lookup over one language's Wikipedia.

    Args:
        lang: the language as in the address, such as "en" or "zh".
        base_url: the address (WIKIPEDIA_BASE_URL if None, else that of `lang`).
        timeout: seconds to wait for an answer.

    Raises:
        SettingsError: `lang` is no language code.
    """

    def __init__(self, lang: str = "en", base_url: str | None = None, timeout: float = 10) -> None:
        if not re.fullmatch("[a-z]{2,}(-[a-z]+)*", lang):
            raise SettingsError(f"{lang!r} is no language of Wikipedia: write a code such as en.")
        self.lang = lang
        self.base_url = base_url
        self.timeout = timeout
        self._page: Page | None = None

    def for_run(self) -> Wikipedia:
        """A copy with no open page."""
        return Wikipedia(self.lang, self.base_url, self.timeout)

    def search(self, entity: str) -> str:
        """Open the Wikipedia page with this exact title and read its first sentences. Use it for facts about
        a person, place or thing; the input is the title alone, such as Marie Curie.

        Returns:
            The first five sentences; the choices if the title is ambiguous; similar titles if there is none.

        Raises:
            ToolError: Wikipedia can't be asked.
        """
        self._page = None
        entity = " ".join(entity.split())
        if not entity:
            raise ToolError("The title is empty: write what to look for, such as Marie Curie.")
        if found := self._open(entity):
            return found
        similar = self._similar(entity)
        for title in similar:
            if title.casefold() == entity.casefold() and (found := self._open(title)):
                return found
        if similar:
            return f"Could not find {entity}. Similar: {_listed(similar)}"
        return f"Could not find {entity}, and nothing similar. Try another name."

    def lookup(self, keyword: str) -> str:
        """Find the next sentence with this word on the page that was opened last. Use it after Search; the
        input is one word or a short phrase.
        """
        if self._page is None:
            return "No page is open: search for a page first, then look words up on it."
        return self._page.lookup(keyword)

    @reading("Wikipedia")
    def _open(self, title: str) -> str:
        """What to say about the page with exactly this title; "" if there is none."""
        if _NEVER_IN_TITLES.search(title):
            return ""
        query = self._query(titles=title, redirects="1", converttitles="1", prop="extracts|pageprops|links",
                            explaintext="1", exsectionformat="wiki", ppprop="disambiguation", plnamespace="0",
                            pllimit="100")
        pages = query.get("pages") or [{}]
        page = pages[0]
        text = _HEADING.sub("", page.get("extract") or "")
        name = str(page.get("title") or title)
        if "disambiguation" in page.get("pageprops", {}):
            choices = [link["title"] for link in page.get("links", ())]
            choices.sort(key=lambda choice: name.split(" (")[0].casefold() not in choice.casefold())
            shown = _listed(choices[:_SHOWN_CHOICES])
            return f"{name} may mean several things. Search for one of: {shown}"
        if not text.strip():
            return ""
        self._page = Page(name, text)
        redirected = f"({title} leads to the page {name}.) " if query.get("redirects") else ""
        return redirected + self._page.summary()

    @reading("Wikipedia")
    def _similar(self, entity: str) -> list[str]:
        words = _NEVER_IN_TITLES.sub(" ", entity).strip()
        if not words:
            return []
        found = self._query(list="search", srsearch=words, srlimit="5", srprop="").get("search", ())
        return [str(one["title"]) for one in found]

    def _query(self, **parameters: str) -> dict[str, Any]:
        import requests

        try:
            base_url = self.base_url or Settings.load().wikipedia_base_url
            base_url = base_url or f"https://{self.lang}.wikipedia.org"
            address = check_base_url(base_url, "WIKIPEDIA_BASE_URL") + "/w/api.php"
        except SettingsError as error:
            raise ToolError(f"Wikipedia can't be asked. {error}") from None
        parameters = {"action": "query", "format": "json", "formatversion": "2", **parameters}
        headers = {"User-Agent": _USER_AGENT}
        status, data = fetch_json(
            "Wikipedia",
            lambda: requests.get(address, params=parameters, headers=headers, timeout=self.timeout),
            self.timeout,
        )
        if status >= 400 or "error" in data:
            fault = data.get("error")
            said = fault.get("info") if isinstance(fault, dict) else None
            raise ToolError(f"Wikipedia failed (HTTP {status}): {clip(str(said or 'no reason given'), 200)} "
                            "Try again once or do without it.")
        query = data.get("query")
        return query if isinstance(query, dict) else {}


def _listed(titles: Sequence[str]) -> str:
    return f"[{', '.join(titles)}]"
