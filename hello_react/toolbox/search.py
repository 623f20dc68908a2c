"""Web search: Google through SerpApi, with the most direct answer picked from what comes back.

`search(query)` takes its key from SERPAPI_API_KEY when it is called; `SerpApiSearch` is the same with your
own settings. Gives plain text: an answer box, else a description, else three results. Reads no pages; without
a key no request is made.
"""

from __future__ import annotations

import re
from typing import Any

from ..errors import SettingsError, ToolError
from ..settings import Settings, check_base_url, check_key
from ..text import clip, redact
from .fetch import fetch_json, reading

_CHINESE = re.compile("[\u3400-\u9fff]")
# The fields of an answer box that hold the answer itself, most direct first; and those that are no content.
_ANSWERS = ("answer", "result", "snippet", "definition", "definitions", "translation", "price", "population")
_NO_CONTENT = re.compile("type|title|.*link|thumbnail.*|.*image.*|source|favicon|position|.*highlighted.*")


def search(query: str) -> str:
    """Search the web with Google. Use it for facts that are new or that you are not sure of; the input is a
    short query, as you would type it into a search box.

    Returns:
        The answer as text, or that nothing was found.

    Raises:
        ToolError: no key is set (then nothing is sent), or the service failed.
    """
    return SerpApiSearch().search(query)


class SerpApiSearch:
    """Google through SerpApi.

    Args:
        api_key: the key (SERPAPI_API_KEY if None).
        base_url: the service's address (SERPAPI_BASE_URL if None, else SerpApi itself).
        timeout: seconds to wait for an answer.
        locale: language and country as Google names them, such as ("de", "de"). If None: ("zh-cn", "cn") for
            a query with Chinese characters, else ("en", "us").
    """

    def __init__(
        self,
        api_key: str | None = None,
        base_url: str | None = None,
        timeout: float = 10,
        locale: tuple[str, str] | None = None,
    ) -> None:
        self._api_key = api_key
        self._base_url = base_url
        self._timeout = timeout
        self._locale = locale

    def search(self, query: str) -> str:
        """Search the web with Google. Use it for facts that are new or that you are not sure of; the input is
        a short query, as you would type it into a search box.

        Raises:
            ToolError: no key is set (then nothing is sent), or the service failed.
        """
        query = query.strip()
        if not query:
            raise ToolError("The query is empty: write what to search for, such as highest mountain.")
        try:
            settings = Settings.load()
            key = check_key("SERPAPI_API_KEY", self._api_key or settings.serpapi_api_key or "")
            base_url = self._base_url or settings.serpapi_base_url
            backend = check_base_url(base_url, "SERPAPI_BASE_URL") if base_url else None
        except SettingsError as error:
            raise ToolError(f"Web search is not configured, so nothing was searched. {error}") from None
        status, data = fetch_json("SerpApi", self._request(query, key, backend), self._timeout)
        with reading("SerpApi"):
            found = best_answer(data) if status < 400 else ""
        if found:
            return found
        said = redact(clip(" ".join(str(data.get("error", "")).split()), 200), (key,))
        lower = said.lower()
        if status < 400 and (not said or re.search("n.t returned any results", lower)):
            return f'No results for "{query}". Try other or fewer words.'
        if "run out of searches" in lower or status == 429:
            raise ToolError(f"Web search is used up for now: {said or 'too many requests'} Do without it.")
        if "api key" in lower or status in (401, 403):
            raise ToolError("Web search refused its key: a person has to correct SERPAPI_API_KEY. "
                            "Do without it.")
        raise ToolError(f"Web search failed (HTTP {status}): {said or 'no reason given'}. Do without it.")

    def _request(self, query: str, key: str, backend: str | None) -> Any:
        try:
            # The submodule: another package named serpapi, installed over this one, replaces __init__.py.
            from serpapi.google_search import GoogleSearch
        except ImportError:
            raise ToolError("Web search needs the package google-search-results (the one named serpapi is "
                            "another): a person has to pip install it. Do without web search.") from None
        language, country = self._locale or (("zh-cn", "cn") if _CHINESE.search(query) else ("en", "us"))
        client = GoogleSearch({"q": query, "api_key": key, "hl": language, "gl": country, "output": "json"})
        client.timeout = self._timeout  # the package waits 60,000 seconds
        if backend:
            client.BACKEND = backend
        return client.get_response


def best_answer(data: dict[str, Any]) -> str:
    """The most direct answer in a SerpApi response; "" if there is none.

        >>> best_answer({"organic_results": [{"title": "Kale", "snippet": "A cabbage."}]})
        '[1] Kale\\nA cabbage.'
    """
    if text := _text(data.get("answer_box_list")) or _text(data.get("answer_box")):
        return text
    graph = data.get("knowledge_graph")
    if isinstance(graph, dict) and (description := _text(graph.get("description"))):
        title = _text(graph.get("title"))
        return f"{title}: {description}" if title else description
    organic = data.get("organic_results")
    results: list[str] = []
    for one in organic if isinstance(organic, list) else []:
        lines = [_text(one.get("title")), _text(one.get("snippet"))] if isinstance(one, dict) else []
        if any(lines):
            results.append(f"[{len(results) + 1}] " + "\n".join(filter(None, lines)))
    return "\n\n".join(results[:3])


def _text(value: Any) -> str:
    """Any part of a response as text: a list by lines; of an object the answer, else all of its content."""
    if isinstance(value, str):
        return value.strip()
    if isinstance(value, (int, float)):
        return str(value)
    if isinstance(value, list):
        return "\n".join(filter(None, map(_text, value)))
    if not isinstance(value, dict):
        return ""
    answers = filter(None, (_text(value.get(name)) for name in _ANSWERS))
    lines = [next(answers, ""), _text(value.get("list"))]
    if not any(lines):
        content = {name: _text(part) for name, part in value.items() if not _NO_CONTENT.fullmatch(name)}
        lines = [f"{name.replace('_', ' ')}: {text}" for name, text in content.items() if text]
    return "\n".join(filter(None, lines))
