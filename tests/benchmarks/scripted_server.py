"""A chat server for the benchmarks: it plays a model that calls the tool Echo some times and then answers.

The question says how often, "(20 steps)". Which step is due shows in the request itself: the highest number
in "heard word 7", which only Echo writes, so an agent that skips a call never gets on. Requests with `tools`
get native calls, all others `Thought:` and `Action:`. The server answers at once, or in `seconds` a reply,
spread over its pieces; it runs in a process of its own and takes nothing but the standard library.

    with Server() as server:
        ...                             # server.url, question(20), echo, DONE
        server.figures()                # {"requests": 21, "connections": 1, "prefix": 1.0}
"""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import sys
import urllib.request
from functools import cache
from itertools import takewhile
from typing import Any

DONE = "All words were heard."
PIECE = 4  # characters of a streamed piece


def question(steps: int) -> str:
    return f"Have the tool Echo repeat the words one by one, and then finish. ({steps} steps)"


def echo(text: str) -> str:
    """The one tool."""
    return f"heard {text}"


class Server:
    """The server in a process of its own, as a context manager.

    Args:
        seconds: how long each reply takes; 0 for at once.
    """

    def __init__(self, seconds: float = 0.0) -> None:
        self._command = [sys.executable, __file__, str(seconds)]

    def __enter__(self) -> Server:
        self._process = subprocess.Popen(self._command, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        self.url = f"http://127.0.0.1:{int(self._process.stdout.readline())}/v1"
        return self

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        self._process.communicate()

    def figures(self) -> dict[str, Any]:
        """Since the last call: requests, connections, and the share of each prompt that the next one kept."""
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(f"{self.url}/figures") as answer:
            figures: dict[str, Any] = json.load(answer)
        return figures


# --- the process of its own

class Count:
    """What came in since the last report."""

    def __init__(self) -> None:
        self.connections: set[int] = set()
        self.bodies: list[tuple[bool, bytes]] = []

    def report(self) -> dict[str, Any]:
        kept, last = [], ""
        for first, raw in self.bodies:
            body = json.loads(raw)
            shown = [json.dumps(body.get("tools"))]
            for message in body["messages"]:
                shown.append(f"{message['role']}: {message.get('content') or ''}")
                shown += [json.dumps(call["function"]) for call in message.get("tool_calls") or ()]
            prompt = "\n".join(shown)
            if not first:
                same = takewhile(lambda pair: pair[0] == pair[1], zip(last, prompt, strict=False))
                kept.append(sum(1 for _ in same) / len(last))
            last = prompt
        figures = {"requests": len(self.bodies), "connections": len(self.connections),
                   "prefix": min(kept, default=None)}
        self.connections, self.bodies = set(), []
        return figures


@cache
def reply(step: int, steps: int, native: bool, stream: bool, usage: bool) -> tuple[bytes, ...]:
    """The pieces of an answer's body; one piece if it is not streamed."""
    thought = f"Word {step} has not been heard yet, so I let the tool repeat it now."
    word = f"word {step} of {steps}, in a sentence about as long as one that people look for"
    call: dict[str, Any] = {"id": f"call_{step}", "type": "function", "index": 0}
    text, arguments = f"Thought: {thought}\nAction: Echo[{word}]", ""
    if step > steps:
        text = DONE if native else f"Thought: I have heard them all.\nAction: Finish[{DONE}]"
    elif native:
        text, arguments = thought, json.dumps({"text": word})
    reason = "tool_calls" if arguments else "stop"
    tokens = {"prompt_tokens": 100 + 50 * step, "completion_tokens": 40, "total_tokens": 140 + 50 * step}
    base = {"id": f"chatcmpl-{step}", "created": 1_700_000_000, "model": "scripted"}
    if not stream:
        message: dict[str, Any] = {"role": "assistant", "content": text}
        if arguments:
            message["tool_calls"] = [{**call, "function": {"name": "Echo", "arguments": arguments}}]
        choice = {"index": 0, "message": message, "finish_reason": reason}
        whole = {**base, "object": "chat.completion", "choices": [choice], "usage": tokens}
        return (json.dumps(whole).encode(),)
    deltas: list[dict[str, Any]] = [{"role": "assistant", "content": ""}]
    deltas += [{"content": text[start:start + PIECE]} for start in range(0, len(text), PIECE)]
    if arguments:
        deltas.append({"tool_calls": [{**call, "function": {"name": "Echo", "arguments": ""}}]})
        deltas += [{"tool_calls": [{"index": 0, "function": {"arguments": arguments[start:start + PIECE]}}]}
                   for start in range(0, len(arguments), PIECE)]
    ends = [None] * len(deltas) + [reason]
    choices = [[{"index": 0, "delta": delta, "finish_reason": end}]
               for delta, end in zip([*deltas, {}], ends, strict=True)]
    base["object"] = "chat.completion.chunk"
    chunks = [json.dumps({**base, "choices": one}) for one in choices]
    chunks += [json.dumps({**base, "choices": [], "usage": tokens})] if usage else []
    return tuple(f"data: {chunk}\n\n".encode() for chunk in [*chunks, "[DONE]"])


async def serve(seconds: float) -> None:
    count = Count()
    numbers = iter(range(sys.maxsize))

    async def answer(number: int, raw: bytes, out: asyncio.StreamWriter) -> None:
        body = json.loads(raw)
        stream = bool(body.get("stream"))
        step = 1 + max(map(int, re.findall(rb"heard word (\d+)", raw)), default=0)
        steps = int(re.findall(rb"\((\d+) steps\)", raw)[-1])
        usage = bool((body.get("stream_options") or {}).get("include_usage"))
        count.connections.add(number)
        count.bodies.append((step == 1, raw))
        pieces = reply(step, steps, bool(body.get("tools")), stream, usage)
        if not stream:
            await asyncio.sleep(seconds)
            send(out, pieces[0])
            return
        head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
        chunks = [b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces]
        if not seconds:
            out.write(head + b"".join(chunks) + b"0\r\n\r\n")
            return
        out.write(head)
        for chunk in chunks:
            await asyncio.sleep(seconds / len(chunks))
            out.write(chunk)
        out.write(b"0\r\n\r\n")

    def send(out: asyncio.StreamWriter, body: bytes) -> None:
        out.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%b"
                  % (len(body), body))

    async def connection(incoming: asyncio.StreamReader, out: asyncio.StreamWriter) -> None:
        number = next(numbers)
        try:
            while True:
                head = await incoming.readuntil(b"\r\n\r\n")
                length = re.search(rb"(?i)\r\ncontent-length: *(\d+)", head)
                raw = await incoming.readexactly(int(length[1]) if length else 0)
                if head.startswith(b"GET"):
                    send(out, json.dumps(count.report()).encode())
                else:
                    await answer(number, raw, out)
                await out.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            out.close()

    server = await asyncio.start_server(connection, "127.0.0.1", 0, backlog=512)
    print(server.sockets[0].getsockname()[1], flush=True)
    async with server:
        await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(serve(float(sys.argv[1])))
