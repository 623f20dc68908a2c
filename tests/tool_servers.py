"""Real HTTP servers on loopback that play the web services of the toolbox, with faults on demand.

    with SerpApiServer({"organic_results": []}) as server:
        ...  # server.url, server.requests, server.fault = "stall"
"""

from __future__ import annotations

import json
import threading
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from hello_react.settings import NAMES

Answer = tuple[int, Any]  # an HTTP status and what becomes the JSON body


def isolate(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    """No setting of this machine gets into a test: an empty working folder and no name set."""
    monkeypatch.chdir(folder)
    monkeypatch.setenv("HOME", str(folder / "home"))
    monkeypatch.setenv("USERPROFILE", str(folder / "home"))
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    for name in NAMES:
        monkeypatch.delenv(name, raising=False)


@dataclass(frozen=True)
class Request:
    """One request that arrived."""

    path: str
    query: dict[str, str]
    headers: dict[str, str]


class ToolServer:
    """A server in a thread; a subclass says what it answers.

    Attributes:
        url: its address, without a trailing slash.
        requests: what arrived, in order.
        fault: None, or what goes wrong: "html" (a page with status 200), "gateway" (a page with 502), "list"
            (JSON but no object), "stall" (no answer), "stall_body" (headers, then nothing), "drop" (the
            connection closes), or an HTTP status with the service's JSON error.
    """

    def __init__(self) -> None:
        self.requests: list[Request] = []
        self.fault: str | int | None = None
        self._closing = threading.Event()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                outer._handle(self)

            def log_message(self, *args: Any) -> None:
                pass

        class Server(ThreadingHTTPServer):
            daemon_threads = False  # closing waits for every handler

            def handle_error(self, *args: Any) -> None:
                pass  # a client that gave up

        self._server = Server(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01})
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> Any:
        self._thread.start()
        return self

    def __exit__(self, *args: object) -> None:
        self._closing.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def answer(self, request: Request) -> Answer:
        """What the service says when nothing is wrong."""
        raise NotImplementedError

    def error(self, status: int) -> Any:
        """The JSON body of an error, as this service writes it."""
        return {"error": f"fault {status}"}

    def _handle(self, handler: BaseHTTPRequestHandler) -> None:
        parts = urlsplit(handler.path)
        pairs = parse_qs(parts.query, keep_blank_values=True)
        query = {name: values[-1] for name, values in pairs.items()}
        request = Request(parts.path, query, dict(handler.headers))
        self.requests.append(request)
        if self.fault == "stall":
            self._closing.wait()
        elif self.fault == "stall_body":
            handler.send_response(200)
            handler.send_header("Content-Length", "100")
            handler.end_headers()
            handler.wfile.flush()
            self._closing.wait()
        elif self.fault == "drop":
            handler.close_connection = True
        elif self.fault == "html":
            self._send(handler, 200, "text/html", b"<html>Please log in to this network</html>")
        elif self.fault == "gateway":
            self._send(handler, 502, "text/html", b"<html>Bad gateway</html>")
        elif self.fault == "list":
            self._send(handler, 200, "application/json", b"[1, 2]")
        else:
            if isinstance(self.fault, int):
                status, data = self.fault, self.error(self.fault)
            else:
                status, data = self.answer(request)
            self._send(handler, status, "application/json", json.dumps(data).encode())

    @staticmethod
    def _send(handler: BaseHTTPRequestHandler, status: int, content_type: str, body: bytes) -> None:
        handler.send_response(status)
        handler.send_header("Content-Type", content_type)
        handler.send_header("Content-Length", str(len(body)))
        handler.end_headers()
        handler.wfile.write(body)


class SerpApiServer(ToolServer):
    """Answers every search with `data`, if the key is `key`."""

    def __init__(self, data: dict[str, Any], key: str = "serp-key-0123456789", status: int = 200) -> None:
        super().__init__()
        self.data = data
        self.key = key
        self.status = status

    def answer(self, request: Request) -> Answer:
        if request.path != "/search" or request.query.get("engine") != "google":
            return 404, {"error": "Unsupported path or engine."}
        if request.query.get("api_key") != self.key:
            return 401, {"error": "Invalid API key. Your API key should be here: https://serpapi.com/manage"}
        return self.status, self.data


class WikipediaServer(ToolServer):
    """A MediaWiki with a few pages.

    Args:
        pages: text by title.
        redirects: title by another title.
        choices: the links of each disambiguation page, by its title.
        similar: what its search finds, by the words searched for.
    """

    def __init__(
        self,
        pages: dict[str, str],
        redirects: dict[str, str] | None = None,
        choices: dict[str, list[str]] | None = None,
        similar: dict[str, list[str]] | None = None,
    ) -> None:
        super().__init__()
        self.pages = pages
        self.redirects = redirects or {}
        self.choices = choices or {}
        self.similar = similar or {}

    def error(self, status: int) -> Any:
        return {"error": {"code": "ratelimited", "info": "You've exceeded your rate limit."}}

    def answer(self, request: Request) -> Answer:
        query = request.query
        if request.path != "/w/api.php" or (query["action"], query["formatversion"]) != ("query", "2"):
            return 200, {"error": {"code": "badvalue", "info": "Unrecognized value."}}
        if query.get("list") == "search":
            titles = self.similar.get(query["srsearch"], [])[: int(query["srlimit"])]
            return 200, {"query": {"search": [{"ns": 0, "title": title} for title in titles]}}
        title = query["titles"].replace("_", " ").strip()
        if title.startswith(("fr:", "de:")):
            return 200, {"batchcomplete": True, "query": {"interwiki": [{"title": title, "iw": title[:2]}]}}
        title = title[:1].upper() + title[1:]
        extra = {}
        if title in self.redirects and "redirects" in query:
            extra["redirects"] = [{"from": title, "to": self.redirects[title]}]
            title = self.redirects[title]
        page: dict[str, Any] = {"ns": 0, "title": title}
        if title in self.choices:
            page["pageprops"] = {"disambiguation": ""}
            page["links"] = [{"ns": 0, "title": choice} for choice in self.choices[title]]
            page["extract"] = f"{title} may refer to:"
        elif title in self.pages:
            page["extract"] = self.pages[title]
        else:
            page["missing"] = True
        return 200, {"batchcomplete": True, "query": {"pages": [page], **extra}}


class OpenWeatherServer(ToolServer):
    """Current weather by city name, if the key is `key`."""

    def __init__(self, cities: dict[str, dict[str, Any]], key: str = "weather-key-0123456789") -> None:
        super().__init__()
        self.cities = cities
        self.key = key

    def error(self, status: int) -> Any:
        return {"cod": status, "message": "Your account is temporary blocked."}

    def answer(self, request: Request) -> Answer:
        if request.path != "/data/2.5/weather" or request.query.get("units") != "metric":
            return 404, {"cod": "404", "message": "Internal error"}
        if request.query.get("appid") != self.key:
            return 401, {"cod": 401, "message": "Invalid API key."}
        found = self.cities.get(request.query["q"])
        return (200, found) if found is not None else (404, {"cod": "404", "message": "city not found"})


class OpenMeteoServer(ToolServer):
    """Geocoding and forecast, both at one address.

    Args:
        places: the geocoding results by the name searched for.
        forecast: the answer to every forecast request.
    """

    def __init__(self, places: dict[str, list[dict[str, Any]]], forecast: dict[str, Any]) -> None:
        super().__init__()
        self.places = places
        self.forecast = forecast

    def error(self, status: int) -> Any:
        return {"error": True, "reason": "Minutely API request limit exceeded."}

    def answer(self, request: Request) -> Answer:
        if request.path == "/v1/search":
            results = self.places.get(request.query["name"])
            return 200, {"results": results, "generationtime_ms": 1} if results else {"generationtime_ms": 1}
        if request.path == "/v1/forecast":
            return 200, self.forecast
        return 404, {"error": True, "reason": "Not Found"}
