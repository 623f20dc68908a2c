"""A chat server on loopback with a script, and ready-made faults for it.

`ModelServer` speaks the OpenAI chat protocol over real sockets. Its script has one entry for each request:

- a text is streamed in small chunks, with usage and `[DONE]`, or sent whole if no stream is asked for;
- a dictionary is sent as a JSON body with status 200;
- a function of (exchange, request) does what it likes; the functions below make such faults.

    >>> with ModelServer(["Thought: easy.\\nAction: Finish[4]"]) as server:
    ...     server.url.startswith("http://127.0.0.1:")
    True

A request after the end of the script is answered with 500. `server.requests` holds what came in.
"""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Union

DONE = "[DONE]"


@dataclass(frozen=True)
class Request:
    """One request as it came in. `connection` numbers the TCP connections from 1."""

    path: str
    headers: dict[str, str]
    body: Any
    connection: int


class Exchange(BaseHTTPRequestHandler):
    """One connection's handler, with the moves that faults are made of."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: _Server

    def setup(self) -> None:
        super().setup()
        self.number = self.server.owner.connected(self.connection)

    def finish(self) -> None:
        self.server.owner.disconnected(self.connection)
        super().finish()

    def handle(self) -> None:
        try:
            super().handle()
        except OSError:  # the client hung up, or the server is closing
            self.close_connection = True

    def log_message(self, *_: Any) -> None:
        pass

    def do_POST(self) -> None:
        raw = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        headers = {name.lower(): value for name, value in self.headers.items()}
        request = Request(self.path, headers, json.loads(raw), self.number)
        answer = self.server.owner.next_answer(request)
        if isinstance(answer, str):
            answer = text(answer)
        if isinstance(answer, dict):
            answer = status(200, answer)
        answer(self, request.body)

    def do_GET(self) -> None:
        self.send(404, b'{"error": {"message": "only POST here"}}')

    # What a fault may do.

    def send(self, code: int, body: bytes, kind: str = "application/json", **headers: str) -> None:
        """A whole answer; `retry_after="1"` becomes the header Retry-After."""
        self.send_response(code)
        for name, value in {"Content-Type": kind, "Content-Length": str(len(body)), **headers}.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(body)

    def begin(self, content_type: str = "text/event-stream") -> None:
        """Status and headers of a stream; pieces follow with `piece`, and `end`."""
        self.send_response(200)
        self.send_header("Content-Type", content_type)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()

    def piece(self, data: bytes) -> None:
        """One write of the stream."""
        if data:
            self.wfile.write(b"%x\r\n%b\r\n" % (len(data), data))

    def end(self) -> None:
        """The regular end of the stream; the connection stays open for the next request."""
        self.wfile.write(b"0\r\n\r\n")

    def stall(self, seconds: float = 60.0) -> None:
        """Wait, but no longer than until the server closes; then the connection closes."""
        self.server.owner.closing.wait(seconds)
        self.close_connection = True

    def hang_up(self) -> None:
        """Close the connection without another byte."""
        self.close_connection = True
        self.connection.shutdown(socket.SHUT_RDWR)


Fault = Callable[[Exchange, Any], None]
Answer = Union[str, dict[str, Any], Fault]


class _Server(ThreadingHTTPServer):
    daemon_threads = False  # so that closing waits for the handlers
    request_queue_size = 256
    owner: ModelServer


@dataclass
class ModelServer:
    """The server; use it in a `with` statement.

    Args:
        script: one answer a request, in order. A function in place of the list makes each answer from the
            request's body, any number of times.

    Attributes:
        url: the base URL for a client, ending in /v1.
        requests: the requests so far.
        connections: how many TCP connections were made.
    """

    script: Iterable[Answer] | Callable[[Any], Answer] = ()
    requests: list[Request] = field(default_factory=list)
    connections: int = 0
    closing: threading.Event = field(default_factory=threading.Event, repr=False)

    def __post_init__(self) -> None:
        self._script = self.script if callable(self.script) else list(self.script)
        self._lock = threading.Lock()
        self._open: set[socket.socket] = set()
        self._server = _Server(("127.0.0.1", 0), Exchange)
        self._server.owner = self
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.005})

    @property
    def origin(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    @property
    def url(self) -> str:
        return f"{self.origin}/v1"

    @property
    def bodies(self) -> list[Any]:
        """The JSON bodies of the requests so far."""
        return [request.body for request in self.requests]

    def __enter__(self) -> ModelServer:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.closing.set()
        self._server.shutdown()
        self._thread.join()
        with self._lock:
            for connection in self._open:
                try:
                    connection.shutdown(socket.SHUT_RDWR)
                except OSError:
                    pass
        self._server.server_close()

    def connected(self, connection: socket.socket) -> int:
        with self._lock:
            self._open.add(connection)
            self.connections += 1
            return self.connections

    def disconnected(self, connection: socket.socket) -> None:
        with self._lock:
            self._open.discard(connection)

    def next_answer(self, request: Request) -> Answer:
        with self._lock:
            number = len(self.requests)
            self.requests.append(request)
        if callable(self._script):
            return self._script(request.body)
        if number < len(self._script):
            return self._script[number]
        return status(500, {"error": {"message": f"the script has only {len(self._script)} answers"}})


# Parts of answers.


def chunk(content: Any = None, finish: str | None = None, **delta: Any) -> dict[str, Any]:
    """A chunk with `content` (left out if None), further delta fields, and a finish_reason."""
    if content is not None:
        delta["content"] = content
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    return {"object": "chat.completion.chunk", "choices": [choice]}


def usage(prompt: int, completion: int) -> dict[str, Any]:
    """The chunk without choices that tells the usage."""
    return {"choices": [], "usage": {"prompt_tokens": prompt, "completion_tokens": completion}}


def message(content: Any, finish: str | None = "stop", **fields: Any) -> dict[str, Any]:
    """A whole answer that is not streamed."""
    whole = {"role": "assistant", "content": content, **fields}
    return {"object": "chat.completion", "usage": {"prompt_tokens": 7, "completion_tokens": 5},
            "choices": [{"index": 0, "message": whole, "finish_reason": finish}]}


def pieces(content: str, size: int = 6) -> list[dict[str, Any]]:
    """The chunks of a text: the role, the text in pieces of `size` characters, the end."""
    parts = [content[start:start + size] for start in range(0, len(content), size)]
    return [chunk("", role="assistant"), *map(chunk, parts), chunk(finish="stop")]


def event(payload: Any, end: str = "\n\n") -> bytes:
    """One server-sent event; half a sign (a lone surrogate) is sent as the escape that JSON has for it."""
    data = payload if isinstance(payload, str) else json.dumps(payload, ensure_ascii=False)
    return f"data: {data}{end}".encode(errors="backslashreplace")


def call(index: int | None, id: str | None, name: str | None, arguments: Any) -> dict[str, Any]:
    """A fragment of a native tool call; index None leaves it out."""
    fragment = {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}
    return fragment if index is None else {"index": index, **fragment}


# Answers: regular ones first, then faults.


def text(content: str, size: int = 6) -> Fault:
    """A well-behaved server: streamed if asked for, else whole."""

    def answer(exchange: Exchange, request: Any) -> None:
        if request.get("stream"):
            told = [usage(7, 5)] if request.get("stream_options") else []
            events(*pieces(content, size), *told, DONE)(exchange, request)
        else:
            status(200, message(content))(exchange, request)

    return answer


def events(*payloads: Any) -> Fault:
    """A stream of exactly these events, each in a write of its own; add DONE for a regular end."""
    return raw(*map(event, payloads))


def raw(*writes: bytes, content_type: str = "text/event-stream") -> Fault:
    """A stream of exactly these bytes, write by write."""

    def answer(exchange: Exchange, request: Any) -> None:
        exchange.begin(content_type)
        for data in writes:
            exchange.piece(data)
        exchange.end()

    return answer


def byte_by_byte(*payloads: Any) -> Fault:
    """The same events, in writes of one byte: every multi-byte character is split."""
    return raw(*(bytes([byte]) for byte in b"".join(map(event, payloads))))


def status(code: int, body: Any = "", **headers: str) -> Fault:
    """A status with a body (JSON unless it is a text) and headers: `status(429, retry_after="1")`."""
    data = body.encode() if isinstance(body, str) else json.dumps(body).encode()
    kind = "text/plain" if isinstance(body, str) else "application/json"
    return lambda exchange, request: exchange.send(code, data, kind, **headers)


def error(code: int, words: str, /, **fields: Any) -> Fault:
    """An error status with the usual JSON body."""
    return status(code, {"error": {"message": words, **fields}})


def web_page(code: int = 200) -> Fault:
    """A page for people, as a wrong address or a gateway gives it."""
    body = b"<!DOCTYPE html><html><head><title>Welcome</title></head><body>Hello</body></html>"
    return lambda exchange, request: exchange.send(code, body, "text/html")


def never_answers(seconds: float = 60.0) -> Fault:
    """Takes the request and says nothing."""
    return lambda exchange, request: exchange.stall(seconds)


def hangs_up() -> Fault:
    """Closes the connection without an answer."""
    return lambda exchange, request: exchange.hang_up()


def stalls_after(*payloads: Any) -> Fault:
    """These events, then silence on an open connection."""

    def answer(exchange: Exchange, request: Any) -> None:
        exchange.begin()
        for payload in payloads:
            exchange.piece(event(payload))
        exchange.stall()

    return answer


def breaks_after(*payloads: Any) -> Fault:
    """These events, then the connection breaks inside the stream."""

    def answer(exchange: Exchange, request: Any) -> None:
        exchange.begin()
        for payload in payloads:
            exchange.piece(event(payload))
        exchange.hang_up()

    return answer


def pings_for_ever(*payloads: Any, pause: float = 0.05) -> Fault:
    """These events, then only comments, which keep a connection alive without saying anything."""

    def answer(exchange: Exchange, request: Any) -> None:
        exchange.begin()
        for payload in payloads:
            exchange.piece(event(payload))
        while not exchange.server.owner.closing.wait(pause):
            exchange.piece(b": ping\n\n")  # fails, and so ends, once the client has hung up

    return answer


def refuses(parameter: str, words: str = "", code: int = 400, then: Answer = "Action: Finish[ok]") -> Fault:
    """Refuses a request that holds `parameter`, and gives `then` to one that does not."""

    def answer(exchange: Exchange, request: Any) -> None:
        if parameter in request:
            error(code, words or f"Unsupported parameter: '{parameter}'", param=parameter)(exchange, request)
        else:
            assert isinstance(then, str)
            text(then)(exchange, request)

    return answer


def honours_stop(content: str) -> Fault:
    """A server that cuts `content` at the first of the request's stop words, wherever it stands."""

    def answer(exchange: Exchange, request: Any) -> None:
        stops: Sequence[str] = request.get("stop") or ()
        ends = [content.find(word) for word in stops if word in content]
        text(content[:min(ends)] if ends else content)(exchange, request)

    return answer
