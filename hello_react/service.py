"""One chat service: a request goes out, its answer comes back, and what its errors mean (chapter 01).

`Service.ask` sends one request to a server that speaks the OpenAI chat protocol and yields the answer's
`Token`s and last its `Reply`. Whatever goes wrong is one of three: a typed error of `errors.py`, `Again` (the
same request may do better) or `Adapted` (the server refused a parameter, and the next request leaves it out).
Waiting and asking again are the job of `llm.py`, making a reply out of bytes that of `streaming.py`.

    >>> Service("https://me:secret@example.com/v1", "sk-0123456789abcdef").where
    'https://example.com/v1'
"""

from __future__ import annotations

import json
import math
import os
import re
import sys
import threading
import time
import weakref
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timezone
from email.utils import parsedate_to_datetime
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from . import errors
from .events import Reply, Token
from .streaming import ChunkReading, ErrorSent, Events, Unreadable
from .text import KNOWN_KEYS, broken_off, is_blank, printable, redact, sendable

LONGEST_WAIT = 60.0
"""Seconds. A server that asks for a longer pause before the next try is not waited for."""

KEY_IN_ADDRESS = 20
"""Characters from which on a value in an address, such as `?code=...`, is taken for a key; `?api-version=...`
has less."""

# How servers word it; each pattern is bounded.
_TOO_LONG = re.compile(
    r"context.{0,3}(?:length|window|size)|max\w{0,9}.{0,3}context|max\w{0,9}[ _](?:input|prompt|model)[ _]len"
    r"|(?:prompt|input|messages?|request)\b.{0,40}\b(?:too (?:long|large|many)|exceed)|reduce the length"
    r"|too many \w{0,6} ?token|range of input length|exceed\w* (?:the )?model.{0,12} token"
    r"|token.? \+.{0,40} must be|上下文|(?:输入|提示|请求|消息|prompt|token).{0,20}(?:过长|超长|超过|超出)",
    re.I | re.S)
_NO_MODEL = re.compile(r"model_not_found|\bmodel\b.{0,80}not (?:exist|found)|模型.{0,40}不存在", re.I)
_NO_CREDIT = re.compile(r"insufficient.(?:quota|balance)|current quota|billing|余额|欠费", re.I)
_NO_TOOLS = re.compile(
    r"\b(?:tool|function)s?\b.{0,60}(?:unsupported|unavailable|disabled|require"
    r"|(?:\bno|not|n['’]t) (?:be |\w{1,12}ly )?"
    r"(?:support|enable|allow|implement|permit|available|accept|used\b))"
    r"|(?:\bno|not|n['’]t|unable to)\b.{0,30}\b(?:support\w*|use|call|accept|allow|handle|capable of)\b"
    r".{0,20}\b(?:tool|function)s?\b"
    r"|(?:\bno|not|n['’]t|\blacks?|without)\b.{0,30}\b(?:tool|function)s?\b.{0,12}\b(?:capab|abilit|support)"
    r"|\btools\b.{0,30}(?:unexpected|unknown|unrecogni[sz]ed)"
    r"|\bno (?:tool|function)\b|(?:unrecogni[sz]ed|unknown|unexpected|unsupported|extra)\b.{0,60}\btools?\b"
    r"|(?:不支持|未支持|(?:无法|不能|不可)(?:使用|调用)|暂不|未开启|禁用).{0,12}"
    r"(?:工具|函数|tool(?!_choice)|function)"
    r"|(?:不具[备有]|没有|缺[乏少]).{0,8}(?:工具|函数).{0,4}(?:能力|功能|支持)"
    r"|(?:工具|函数|tools?(?!_choice)|function).{0,12}(?:不[被受]?支持|未支持|不可用|(?:无法|不能|不可)(?:使用|调用)|未开启|禁用)",
    re.I)
# One place in the request, as in messages[2].tool_calls[0].id: but a message's content is the prompt.
_PLACE = re.compile(r"\b(?:messages|tools|tool_calls|functions)[\[.]\d{1,6}\b(?!\]?\.content)", re.I)
# One tool, or the way in which tools are used: a model that can't use any would not get so far.
_ONE_TOOL = re.compile(
    r"\b(?:tool|function)s?[ _](?:names?\b|['\"`“])|\bschema|\bparallel|\b(?:unexpected|after) role",
    re.I | re.A)
WRONG_CALL = "wrong_call"
"""The finish_reason of a reply whose tool call the service could not read, or did not expect, and stopped.
The reply holds what the model wrote, as far as the service tells it, and no tool call."""
_STOPPED_CALL = re.compile(r"wrong_call|tool_use_failed|malformed_function_call|unexpected_tool_call", re.I)
_CHECK_KEY = "Check LLM_API_KEY, and that it is for this server and model."
_USE_TEXT = "With this model use the text agent: ReActAgent, on the command line without --agent tools."


class Again(Exception):
    """This try failed, another may do better; `error` is raised when there is none left.

    `after`: the seconds that the server asks to wait. `most`: how often to ask again at once (empty replies).
    """

    def __init__(
        self, why: str, error: errors.ModelError, after: float | None = None, most: int | None = None
    ) -> None:
        super().__init__(why)
        self.error, self.after, self.most = error, after, most


class Adapted(Exception):
    """The server refused a parameter, and the client changed its ways: the text says how."""


class Service:
    """A chat service, and what it has taught about itself. One object may serve many threads.

    Args:
        base_url: its address; login data in it are not sent.
        api_key: the key; no message shows it.

    Attributes:
        where: the address as messages show it.
    """

    def __init__(self, base_url: str, api_key: str) -> None:
        self._parts = urlsplit(base_url)
        self.where = f"{self._parts.scheme}://{self._parts.netloc.rpartition('@')[2]}{self._parts.path}"
        # Whole, which spares the client the joining of addresses at each request.
        self._url = f"{self.where.rstrip('/')}/chat/completions"
        self._api_key = api_key
        self._query = dict(parse_qsl(self._parts.query))
        KNOWN_KEYS.update(value for value in self._query.values() if len(value) >= KEY_IN_ADDRESS)
        self._lock = threading.Lock()
        self._client: Any = None
        self._pid = 0  # of the process that opened it: a fork must not share its connections
        self._http: Any = None
        self._stream_type: Any = None
        self._served = False  # whether a reply has come, so that there may be connections kept alive
        # Single steps on a set or a dictionary are safe between threads.
        self._refused: set[str] = set()
        self._renamed: dict[str, str] = {}

    def ask(
        self, body: dict[str, Any], cut: bool, timeout: float, deadline: float
    ) -> Iterator[Token | Reply]:
        """One request and what comes back: the reply's `Token`s and then the `Reply`, never a partial one.

        Args:
            body: the request; entries that are None, or that this service refuses, are left out.
            cut: whether to end the reply at the stop words and before an Observation that the model invents.
            timeout: seconds without news from the server after which it is given up.
            deadline: when the whole call must be over, as `time.monotonic` counts.

        Raises:
            ModelError: this can't be helped by asking again. SettingsError: the address can't be used.
            Again, Adapted: ask again.
        """
        reading = ChunkReading(cut, body.get("stop"))
        body = self._fitted(body)
        limit = min(timeout, deadline - time.monotonic())
        try:
            if limit <= 0:
                raise TimeoutError("no time was left for the call")
            with self._post(body, limit) as stream:
                yield from self._read(stream.response, reading, limit, deadline)
        except TimeoutError as late:
            raise Again(str(late), errors.ModelTimeoutError(
                f"{self.where}: {late}. Try again, or raise LLM_TIMEOUT (now {timeout:g} s).")) from None
        except ErrorSent as sent:
            if not _is_stopped_call(sent.error, body):
                raise self._error_sent(sent.error, body, reading) from None
            reading.finish_reason = WRONG_CALL
            yield from reading.add(str(sent.error.get("failed_generation") or ""))
        except Unreadable as bad:
            raise errors.BadReplyError(f"{self.where} did not answer with JSON: {self._quote(str(bad))}. "
                                       "Check LLM_BASE_URL, which often ends in /v1.") from None
        yield from reading.close()
        self._served = True
        reply = reading.reply()
        if reply.thinking:  # a stop word inside the thinking would end the reply before it begins
            self._refused.add("stop")
        if "tools" in body and _STOPPED_CALL.search(reply.finish_reason):
            yield replace(reply, tool_calls=(), finish_reason=WRONG_CALL)
            return
        kind, reason = broken_off(reply.finish_reason), reply.finish_reason
        if kind == "failure":
            raise self._broken(f"the server gave up after {reading.length} characters", reason)
        if kind == "filter":
            raise errors.BadReplyError(
                f"The content filter of {self.where} ended the reply after {reading.length} characters "
                f"(finish_reason {self._quote(reason)}). Word the question differently.")
        if is_blank(reply.text) and not reply.tool_calls:
            raise self._empty(body, reply, reading.odd)
        yield reply

    def _fitted(self, body: dict[str, Any]) -> dict[str, Any]:
        """What to send of `body`: without what this service is known to refuse, every text safe to send."""
        refused = self._refused.copy()
        if not body.get("stream") or "stream" in refused:
            refused.add("stream_options")
        fitted = {self._renamed.get(name, name): value for name, value in body.items()
                  if value is not None and name not in refused}
        # `repr` escapes NUL and surrogates: one look at it is faster than one at each text of a long history.
        return _clean(fitted) if _ESCAPED.search(repr(fitted)) else fitted

    def _post(self, body: dict[str, Any], limit: float) -> Any:
        """Send `body`; gives the open stream."""
        import openai

        with self._lock:
            if self._pid != os.getpid():
                self._client, self._pid = self._open(), os.getpid()
            client = self._client
        for tries_left in (1, 0):
            try:
                return client.post(
                    self._url, cast_to=object, body=body, stream=True,
                    stream_cls=self._stream_type,
                    options={"timeout": openai.Timeout(limit, connect=min(limit, 10.0))},
                )
            except openai.APIStatusError as error:
                response = error.response
                break
            except (openai.APITimeoutError, self._http.TimeoutException):
                raise TimeoutError(f"no answer within {limit:g} s") from None
            except (openai.APIConnectionError, self._http.RequestError) as error:
                cause = error.__cause__ or error
                # The server may have closed a connection that was kept alive: a new one is worth a try.
                if not (tries_left and self._served) or isinstance(cause, self._http.ConnectError):
                    raise self._broken("no connection", cause) from None
        raise self._status_error(response.status_code, response.headers, response.text, body)

    def _open(self) -> Any:
        """The HTTP client, made at the first call, since `import openai` takes longer than all else here."""
        import ssl

        import openai

        # httpx or httpx2, whichever this openai uses: reading raw bytes raises its exceptions.
        self._http = sys.modules[openai.DefaultHttpxClient.__mro__[1].__module__.partition(".")[0]]
        self._stream_type = openai.Stream[object]
        host, http_client = self._parts.hostname or "", None
        if host in ("localhost", "::1") or host.startswith("127."):  # reached without a proxy
            # Without TLS there is no need to load the certificates, which takes a while.
            verify = self._parts.scheme == "https" or ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            http_client = openai.DefaultHttpxClient(trust_env=False, verify=verify)
        # openai would also send what the environment holds for its own service.
        foreign = re.findall(r"(?m)^\s*([\w-]+)\s*:", os.environ.get("OPENAI_CUSTOM_HEADERS", ""))
        foreign = [name for name in foreign if name.lower() != "authorization"]
        foreign += ["OpenAI-Organization", "OpenAI-Project"]
        headers: dict[str, Any] = dict.fromkeys(foreign, openai.omit)
        headers["Authorization"] = f"Bearer {self._api_key}"
        try:
            client = openai.OpenAI(
                api_key=self._api_key, base_url=self.where, default_headers=headers, max_retries=0,
                default_query=self._query, http_client=http_client,
            )
        except (ValueError, ImportError, self._http.InvalidURL) as error:
            raise errors.SettingsError(
                f"{self.where} can't be used: {self._quote(str(error))}. Check LLM_BASE_URL and the "
                "environment's proxy settings.") from None
        weakref.finalize(self, client.close)
        return client

    def _read(self, response: Any, reading: ChunkReading, limit: float, deadline: float) -> Iterator[Token]:
        """Feed what arrives into `reading`, up to the end or the cut."""
        events = Events()
        news = time.monotonic()
        packed = "content-encoding" in response.headers  # else the bytes need no way through a decoder
        try:
            for chunk in response.iter_bytes() if packed else response.stream:
                for name, payload in events.feed(chunk):
                    yield from reading.read(name, payload)
                    if reading.done:
                        self._drain(response)
                    if reading.done or reading.cut:
                        return
                    news = time.monotonic()
                now = time.monotonic()
                if now - news > limit or now > deadline:
                    raise self._http.ReadTimeout("mere signs of life, which a server may send for ever")
        except self._http.RequestError as error:
            if not reading.finish_reason:
                if isinstance(error, self._http.TimeoutException):
                    raise TimeoutError(f"the stream stalled after {reading.length} characters") from None
                raise self._broken_off(reading, error) from None
        plain = events.plain
        try:
            for name, payload in events.close():
                yield from reading.read(name, payload)
        except Unreadable as bad:
            if plain and not bad.early:
                raise
            plain = False
        if not (reading.done or reading.finish_reason or plain):
            raise self._broken_off(reading, "no end mark came")

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
        text = redact(re.sub("|".join(pieces), "[key]", text[:4000]), (key, *KNOWN_KEYS))
        text = printable(" ".join(text.split())).rstrip(".。")
        return f"{text[:300]}…" if len(text) > 300 else text

    def _broken(self, what: str, why: object) -> Again:
        return Again(what, errors.ModelConnectionError(
            f"{self.where}: {what} ({self._quote(str(why))}). Is the server up, and LLM_BASE_URL right?"))

    def _broken_off(self, reading: ChunkReading, why: object) -> Again:
        return self._broken(f"the stream broke off after {reading.length} characters", why)

    def _empty(self, body: dict[str, Any], reply: Reply, odd: str) -> Exception:
        if odd:
            return errors.BadReplyError(f"The answer of {self.where} has no choices: {self._quote(odd)}.")
        cause, most = "there was no text at all", 2
        if reply.cut:
            thinking = " while it was thinking" if reply.thinking else ""
            cause, most = f"the token limit was reached{thinking} (finish_reason length); raise max_tokens", 0
        elif reply.thinking:
            cause, most = "all of it was thinking (reasoning_content or <think>), with no text after it", 1
        error = errors.BadReplyError(f"Empty reply from the model {body.get('model')!r}: {cause}.")
        return Again("empty reply", error, most=most)

    def _error_sent(self, error: Any, body: dict[str, Any], reading: ChunkReading) -> Exception:
        """An error object in an answer of status 200: its code may tell its kind. One that may pass, and came
        before any text, is worth another try."""
        code = f"{error.get('code')} {error.get('type')}" if isinstance(error, dict) else ""
        message = _words(error)
        text = f"{self.where} sent an error in place of a reply: {self._quote(message)}."
        failed: errors.ModelError | None = None
        if re.search(r"\b429\b|rate.?limit", code, re.I):
            failed = errors.RateLimitError(f"{text} Ask again later.", 429)
        elif re.search(r"\b(?:408|50[234]|529)\b|overloaded", code, re.I):
            failed = errors.BadReplyError(f"{text} Ask again later.")
        if failed:
            return failed if reading.length else Again("an error from the server", failed)
        if re.search(r"\b401\b", code):
            return errors.AuthenticationError(f"{text} {_CHECK_KEY}", 401)
        if _is_too_long(f"{code} {message}"):
            return errors.ContextLengthError(f"{text} {_shorten(message)}", 400)
        if change := self._without_stream(body, message):
            return Adapted(change)
        hint = f" {_USE_TEXT}" if "tools" in body and _wants_no_tools(message) else ""
        return errors.BadReplyError(f"{text}{hint}")

    def _status_error(self, status: int, headers: Any, answer: str, body: dict[str, Any]) -> Exception:
        """What an error status leads to: a typed error, another try, or a changed request."""
        try:
            content = json.loads(answer)
            message = _words(content)
        except (ValueError, RecursionError):
            content, message = answer, answer.strip() or "no message"
        error = content.get("error") if isinstance(content, dict) else None
        detail = error if isinstance(error, dict) else {}
        if _is_stopped_call(error, body):
            return ErrorSent(error)
        all_of_it = f"{detail.get('code')} {detail.get('type')} {message}"
        said = f"{status} from {self.where}: {self._quote(message)}."
        kind = errors.RateLimitError if status == 429 else errors.ModelStatusError
        if status in (401, 403) or (status == 400 and re.search("api.?key", message, re.I)):
            return errors.AuthenticationError(f"{said} {_CHECK_KEY}", status)
        if status == 413 or (status in (400, 422, 500) and _is_too_long(all_of_it)):
            return errors.ContextLengthError(f"{said} {_shorten(message)}", status)
        if "tools" in body and status in (400, 404, 422, 500, 501):
            if change := self._without_stream(body, message):
                return Adapted(change)
            if _wants_no_tools(message):
                return kind(f"{said} {_USE_TEXT}", status)
        if status in (404, 405) or (status == 400 and _NO_MODEL.search(all_of_it)):
            return errors.ModelNotFoundError(
                f"{said} Check the model's name (LLM_MODEL_ID is {body.get('model')!r}) and the base URL "
                "(LLM_BASE_URL), which often ends in /v1.", status)
        if status == 402 or (status == 429 and _NO_CREDIT.search(all_of_it)):
            return kind(f"{said} Waiting does not help: the account needs credit.", status)
        if status in (408, 409, 425, 429) or status >= 500:
            after = _retry_after(headers)
            if after is not None and after > LONGEST_WAIT:
                return kind(f"{said} Ask again in {after:.0f} s: the server asks for that pause.", status)
            return Again(f"{status} from the server", kind(f"{said} Ask again later.", status), after)
        change = self._adapt(body, f"{detail.get('param')} {message}") if status in (400, 422) else ""
        return Adapted(change) if change else kind(said, status)

    def _without_stream(self, body: dict[str, Any], complaint: str) -> str:
        """Where the server takes tools only without streaming: do without from now on; says so, or ""."""
        tools = re.search(r"\b(?:tool|function)|工具|函数", complaint, re.I | re.A)
        both = tools and re.search(r"\bstream|流式", complaint, re.I | re.A)
        refused = re.search(r"not\b|n['’]t\b|\bno\b|unsupported|only|unavailable|[不未仅只]", complaint, re.I)
        if not (both and refused and "tools" in body and body.get("stream")):
            return ""
        self._refused.add("stream")
        return "the server does not stream replies with tools, so 'stream' is left out from now on"

    def _adapt(self, body: dict[str, Any], complaint: str) -> str:
        """From now on leave out or rename the first parameter that the complaint names; says which, or ""."""
        if "max_tokens" in body and "max_completion_tokens" in complaint:
            self._renamed["max_tokens"] = "max_completion_tokens"
            return "the server wants max_completion_tokens in place of max_tokens, so it is sent from now on"
        names = "|".join(re.escape(name) for name in body if name not in ("model", "messages", "tools"))
        # re.A: no blanks stand around a name in Chinese.
        match = re.search(rf"(?<!\w)({names})(?:(?<=stream)ing)?(?!\w)", complaint, re.I | re.A)
        if match is None:
            return ""
        name = next(name for name in body if name.lower() == match[1].lower())
        self._refused |= {name, *(old for old, new in self._renamed.items() if new == name)}
        return f"the server does not take {name!r}, so it is left out from now on"


def _is_too_long(complaint: str) -> bool:
    """Whether a server complains of the prompt's length."""
    return bool(_TOO_LONG.search(complaint)) and not _PLACE.search(complaint)


def _shorten(complaint: str) -> str:
    """What to do about a prompt that is too long: the room asked for the reply may be the cause."""
    too_much = re.search(r"max_(?:completion_|new_)?tokens", complaint)
    return "Lower max_tokens, or shorten the prompt." if too_much else "Shorten the prompt."


def _wants_no_tools(complaint: str) -> bool:
    """Whether a server complains that the model can't use tools."""
    return bool(_NO_TOOLS.search(complaint)) and not (_PLACE.search(complaint) or _ONE_TOOL.search(complaint))


def _is_stopped_call(error: Any, body: dict[str, Any]) -> bool:
    """Whether an error object says that the service stopped the model's tool call."""
    return "tools" in body and isinstance(error, dict) and bool(_STOPPED_CALL.search(str(error.get("code"))))


def _retry_after(headers: Any) -> float | None:
    """The seconds that the server asks to wait; None if it says nothing usable."""
    for name, unit in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        value = str(headers.get(name)).strip()
        try:
            seconds = float(value) * unit
        except ValueError:
            try:
                then = parsedate_to_datetime(value)
            except (TypeError, ValueError, OverflowError):
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


_ESCAPED = re.compile(r"\\x00|\\ud[89a-f]")


def _clean(value: Any) -> Any:
    """`value` with every text in it made safe to send."""
    if isinstance(value, str):
        return sendable(value)
    if isinstance(value, dict):
        return {key: _clean(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_clean(item) for item in value]
    return value
