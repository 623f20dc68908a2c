"""From the bytes that a server sends to one `Reply`, piece by piece and whatever they are (chapter 01).

`Events` parts bytes into events, `ChunkReading` folds their JSON into text, thinking, tool calls and usage.
`TextReading`, its base, serves clients that have no server: it parts a leading <think> block from the visible
text and ends the text at a stop word or where the model invents an observation (`StreamCutter`). Nothing here
knows of HTTP, keys or retries; those are for `service.py` and `llm.py`.

    >>> cutter = StreamCutter()
    >>> [cutter.feed(piece) for piece in ("Action: Search[x]\\nObser", "vation", ": fake\\nAction: ...")]
    ['Action: Search[x]', '', '']
    >>> cutter.done
    True
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from .events import Reply, Token, ToolCall, Usage
from .text import THINK_END, THINK_TAGS, broken_off, past, whole_signs

OBSERVATION_STOPS = ("\nObservation", "\n观察")
"""Stop words for a text agent: what follows them comes from a tool, never from the model."""

# Every quantifier is bounded, so that any text is searched in linear time.
_LABELS = ("observations", "观察结果")
_MARKS = r"[^\S\n]{0,20}(?:\d{1,3}[.)、])?[ \t>*#`_~•-]{0,12}"
_NUMBER = r"[ \t*_`~]{0,8}[#(\[]?\d{0,4}[)\]]?[ \t\r*_`~]{0,8}"
_INVENTED = re.compile(rf"\n{_MARKS}(?:observations?|观察(?:结果)?){_NUMBER}(?:[:：]|(?=\n))", re.IGNORECASE)
# A last line of one short word, or less: it may still become a label.
_MAYBE = re.compile(rf"\n(?:\d{{1,3}}|{_MARKS}(?:[a-z]{{0,12}}|[观察结果]{{0,4}}){_NUMBER})", re.IGNORECASE)
_TORSO = re.compile(r"(?:[\s#>_`~]|\*(?!\s)){0,60}(obse[a-z]{0,8}|观察[结果]{0,2})[\s\d#*_`~]{0,20}",
                    re.IGNORECASE)


class StreamCutter:
    """Ends a text before the first line that starts with an Observation label, in whatever pieces it arrives.

    A label that leads the reply is kept; the parser drops it. Only what may still become a label or a stop
    word is held back, with some of the blanks before it.

    Args:
        stop: a word, or words, that end the text too; `OBSERVATION_STOPS` only stand for the label.
    """

    def __init__(self, stop: str | Sequence[str] | None = ()) -> None:
        words = [stop] if isinstance(stop, str) else stop or ()
        self._words = [word for word in words if word and word not in OBSERVATION_STOPS]
        self.done = False
        self._held = ""
        self._visible = False

    def feed(self, piece: str) -> str:
        """What can be shown now, after what was shown before."""
        if self.done:
            return ""
        text = self._held + piece
        start = 0 if self._visible else len(text) - len(text.lstrip())
        found = [(at + len(word), at) for word in self._words if (at := text.find(word, start)) >= 0]
        if label := _INVENTED.search(text, start):
            found.append((label.end(), label.start()))
        if found:  # what is whole first ends the text, in whatever pieces it came
            self.done, end = True, min(found)[1]
        else:
            line = text.rfind("\n")
            end = line if line >= 0 and _MAYBE.fullmatch(text, line) else len(text)
            end = min([end, *(_begun(text, word) for word in self._words)])
        shown = text[:max(len(text[:end].rstrip()), end - 20)]
        self._held = "" if self.done else text[len(shown):]
        self._visible = self._visible or bool(shown.strip())
        return shown

    def close(self) -> str:
        """The rest, when the text is over; "" if it is the torso of a label, left by a server's stop."""
        rest, self._held = self._held, ""
        word = _TORSO.fullmatch(rest)  # an item of a list or the end of an argument is none
        torso = word is not None and any(label.startswith(word[1].lower()) for label in _LABELS)
        return "" if torso and self._visible else rest


def _begun(text: str, word: str) -> int:
    """Where the end of `text` may begin `word`, or the length of `text`."""
    places = range(max(0, len(text) - len(word) + 1), len(text))
    return next((at for at in places if word.startswith(text[at:])), len(text))


_BLANKS = " \t\r\n\f\v\u3000\ufeff\u200b"


class TextReading:
    """One reply in the making; its methods yield the tokens to show.

    Args:
        cut: whether to end the text where the model invents an observation, and at the words of `stop`.
        stop: as for `StreamCutter`.
    """

    def __init__(self, cut: bool, stop: str | Sequence[str] | None = ()) -> None:
        self.finish_reason = ""
        self._shown: list[str] = []
        self._thoughts: list[str] = []
        self._cutter = StreamCutter(stop) if cut else None
        self._halves: dict[str, str] = {}
        self._held = ""
        self._place = "head"  # then "thinking", "after" a block, and at last "text"

    @property
    def cut(self) -> bool:
        """Whether a stop word or an invented observation has ended the text."""
        return self._cutter is not None and self._cutter.done

    @property
    def length(self) -> int:
        """Characters so far, thinking included."""
        return sum(map(len, self._shown)) + sum(map(len, self._thoughts))

    def _whole(self, kind: str, piece: str) -> str:
        """`piece` in whole signs: the first half of one, at its end, waits for the next piece of its kind."""
        piece = self._halves.pop(kind, "") + piece
        if "\ud800" <= piece[-1:] <= "\udbff":
            piece, self._halves[kind] = piece[:-1], piece[-1]
        return whole_signs(piece)

    def add_thought(self, text: str) -> Iterator[Token]:
        if text := self._whole("thought", text):
            self._thoughts.append(text)
            yield Token(text, thinking=True)

    def add(self, piece: str) -> Iterator[Token]:
        """Take a piece of the reply, with <think> blocks before its visible text."""
        piece = self._whole("text", piece)
        if self._place == "text":
            yield from self._show(piece)
            return
        self._held += piece
        while self._held:
            if self._place == "thinking":
                end = THINK_END.search(self._held)
                if end is None:  # keep what may be the beginning of the closing tag
                    tag = max(self._held.rfind("<", -12), self._held.rfind("[", -12))
                    tag = tag if tag >= 0 else len(self._held)
                    thought, self._held = self._held[:tag], self._held[tag:]
                    yield from self.add_thought(thought)
                    return
                thought, self._held, self._place = self._held[:end.start()], self._held[end.end():], "after"
                yield from self.add_thought(thought)
                continue
            text = self._held.lstrip(_BLANKS)
            if self._place == "head":
                yield from self._show(self._held[:len(self._held) - len(text)])
            start, self._held = text[:12].lower(), text
            opening = next((tag for tag in THINK_TAGS if start.startswith(tag)), "")
            if opening:
                self._held, self._place = text[len(opening):], "thinking"
            elif any(tag.startswith(start) for tag in THINK_TAGS):
                return
            else:
                self._held, self._place = "", "text"
                yield from self._show(text)

    def _show(self, text: str) -> Iterator[Token]:
        text = self._cutter.feed(text) if self._cutter else text
        if text:
            self._shown.append(text)
            yield Token(text)

    def close(self) -> Iterator[Token]:
        """The tokens held back, when the reply is over."""
        if self._halves.pop("thought", ""):  # its other half did not come
            yield from self.add_thought("\ufffd")
        if self._halves.pop("text", ""):
            yield from self.add("\ufffd")
        held, self._held = self._held, ""
        yield from self.add_thought(held) if self._place == "thinking" else self._show(held)
        if self._cutter and (rest := self._cutter.close()):
            self._shown.append(rest)
            yield Token(rest)

    def reply(self) -> Reply:
        reason = "stop" if self.cut else self.finish_reason
        return Reply("".join(self._shown), "".join(self._thoughts), finish_reason=reason)


class ErrorSent(Exception):
    """The server sent the error object `error` in place of a reply."""

    def __init__(self, error: Any) -> None:
        super().__init__(error)
        self.error = error


class Unreadable(Exception):
    """The server sent something that is no reply: the text of this exception.

    `early`: whether it is the beginning of JSON, so that the rest may have been lost on the way.
    """

    def __init__(self, text: str, early: bool = False) -> None:
        super().__init__(text)
        self.early = early


class Events:
    """Bytes in, payloads of server-sent events out; a body that is no event stream comes whole, at `close`.

    Lines end at \\n, \\r\\n or \\r alone: `str.splitlines` would also split at U+2028, which JSON may hold.
    """

    def __init__(self) -> None:
        self.plain: bool | None = None
        self._rest = [b""]  # pieces of the line that has not ended yet
        self._data: list[bytes] = []
        self._name = b""

    def feed(self, chunk: bytes) -> Iterator[tuple[bytes, str]]:
        """Yields (name of the event, payload)."""
        if self.plain is None:
            chunk = chunk.lstrip(b"\xef\xbb\xbf \t\r\n")  # blanks, and the bytes of a byte-order mark
            if not chunk:
                return
            fields = (b"data", b":", b"event", b"id", b"retry")
            self.plain = not any(field.startswith(chunk[:len(field)]) for field in fields)
        if self.plain:
            self._data.append(chunk)
            return
        between = self._rest == [b""] and not (self._data or self._name)
        if between and chunk.startswith(b"data: ") and chunk.endswith(b"\n\n"):
            line = chunk[6:-2]
            if b"\n" not in line and b"\r" not in line:  # just one event, as nearly all chunks are
                yield b"", line.decode("utf-8", "replace")
                return
        waits = not self._rest[-1].endswith(b"\r") and b"\n" not in chunk and b"\r" not in chunk
        self._rest.append(chunk)
        if waits:  # joined once, at the line's end: a line may come in very many pieces
            return
        text = b"".join(self._rest)
        if b"\r" in text:
            half = b"\r" if text.endswith(b"\r") and not text.endswith(b"\r\r") else b""  # of a \r\n, perhaps
            text = text.removesuffix(half).replace(b"\r\n", b"\n").replace(b"\r", b"\n") + half
        *lines, rest = text.split(b"\n")
        self._rest = [rest]
        for line in lines:
            yield from self._line(line)

    def _line(self, line: bytes) -> Iterator[tuple[bytes, str]]:
        name, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if name == b"data":
            self._data.append(value)
        elif name == b"event":
            self._name = value
        elif not line:
            if self._data:
                yield self._name, b"\n".join(self._data).decode("utf-8", "replace")
            self._data, self._name = [], b""

    def close(self) -> Iterator[tuple[bytes, str]]:
        """What was left without a blank line at its end."""
        if self.plain:
            yield b"", b"".join(self._data).decode("utf-8", "replace")
        else:
            yield from self._line(b"".join(self._rest).rstrip(b"\r"))
            yield from self._line(b"")


_JSON = json.JSONDecoder()
# A complaint about JSON's end, and what follows the place: nothing, or half a word.
_ENDS_EARLY = re.compile(r"(?s)(?:Unterminated string|Invalid \\u).*|[^\n]*\n[a-zA-Z.+-]{0,4}")


def _objects(payload: str) -> Iterator[dict[str, Any]]:
    """The JSON objects in `payload`, also several in a row or in a list; an empty one stands for `[DONE]`."""
    payload, position = payload.strip(), 0
    while position < len(payload):
        if payload.startswith("[DONE]", position):
            yield {}
            return
        try:
            value, position = _JSON.raw_decode(payload, position)
        except json.JSONDecodeError as bad:
            begun = payload[0] in "{[" and _ENDS_EARLY.fullmatch(f"{bad.msg}\n{payload[bad.pos:]}")
            raise Unreadable(payload, early=bool(begun)) from None
        except (RecursionError, ValueError):  # ValueError: a number of thousands of digits
            raise Unreadable(payload) from None
        for item in value if isinstance(value, list) else [value]:
            if not isinstance(item, dict):
                raise Unreadable(payload)
            if item:
                yield item
        while payload[position:position + 1].isspace():
            position += 1


class ChunkReading(TextReading):
    """Folds the chunks of one answer, streamed or whole, into a `Reply`.

    Attributes:
        done: whether the server said that this was all.
        odd: a payload without choices, for the error message of an empty reply.
    """

    def __init__(self, cut: bool, stop: str | Sequence[str] | None = ()) -> None:
        super().__init__(cut, stop)
        self.done = False
        self.odd = ""
        self._usage = Usage()
        self._calls: list[dict[str, Any]] = []
        self._deltas = False

    def read(self, name: bytes, payload: str) -> Iterator[Token]:
        """Take one event. Raises ErrorSent, Unreadable."""
        try:
            for chunk in _objects(payload):
                yield from self._chunk(chunk, name == b"error")
        except Unreadable:
            if name == b"error":
                raise ErrorSent(payload) from None
            # An event of another name, such as a ping, may hold anything; so may one after the reply's end.
            if name in (b"", b"message") and not self.finish_reason:
                raise

    def _chunk(self, chunk: dict[str, Any], is_error: bool) -> Iterator[Token]:
        if not chunk:
            self.done = True
            return
        is_error = is_error or chunk.get("object") == "error"
        if error := chunk.get("error") or (chunk if is_error else None):
            raise ErrorSent(error)
        if isinstance(usage := chunk.get("usage"), dict):
            known = self._usage
            self._usage = Usage(_count(usage, "prompt_tokens") or known.prompt_tokens,
                                _count(usage, "completion_tokens") or known.completion_tokens)
        choices = chunk.get("choices")
        if not isinstance(choices, list):
            self.odd = self.odd if usage else json.dumps(chunk, ensure_ascii=False)
            return
        for place, choice in enumerate(choices):  # the first choice alone, whether they are numbered or not
            index = _index(choice.get("index")) if isinstance(choice, dict) else None
            if isinstance(choice, dict) and not (place if index is None else index):
                yield from self._choice(choice)
                break

    def _choice(self, choice: dict[str, Any]) -> Iterator[Token]:
        if error := choice.get("error"):
            raise ErrorSent(error)
        delta: Any = choice.get("delta")
        whole = not isinstance(delta, dict)
        if whole:  # a message; after deltas it only repeats them
            delta = {} if self._deltas else _dict(choice.get("message")) or {"content": choice.get("text")}
        elif not self._deltas:
            self._deltas = any(value for name, value in delta.items() if name != "role")
        content = delta.get("content") or delta.get("refusal")
        thought = delta.get("reasoning_content") or delta.get("reasoning")
        if isinstance(content, (list, dict)):
            thought = thought or _content(content, "thinking")
        if isinstance(thought, str):
            yield from self.add_thought(thought)
        if content and (text := _content(content)):
            yield from self.add(text)
        calls, old = delta.get("tool_calls"), delta.get("function_call")  # of the protocol before tool calls
        if not calls and any(_dict(old).values()):  # some send an empty one
            calls = [{"function": old}]
        if calls:
            fragments = [one for one in _list(calls) if isinstance(one, dict)]
            for position, fragment in enumerate(fragments):
                if whole:  # each entry is a call of its own
                    fragment = {**fragment, "index": position}
                self._call(fragment, position if len(fragments) > 1 else len(self._calls) - 1)
        if reason := choice.get("finish_reason"):
            reason = str(reason).lower()
            self.finish_reason = "length" if broken_off(reason) == "length" else reason

    def _call(self, fragment: dict[str, Any], position: int) -> None:
        """Join a fragment to its tool call, by index, else by id, else by `position`; or begin a new call.

        One index, or one id, may stand for several calls: another name, another id beside a name, or a name
        after arguments that are whole begins the next. But while arguments have begun, a fresh id is the
        same call's (some send one with each fragment); and while a call that has an id has no arguments yet,
        a name without an id is the next piece of its name.
        """
        function, call = _dict(fragment.get("function")), None
        key, name = (str(value or "") for value in (fragment.get("id"), function.get("name")))
        index, arguments = _index(fragment.get("index")), function.get("arguments")
        if index is not None:
            call = next((one for one in reversed(self._calls) if one["index"] == index), None)
        elif key:
            call = next((one for one in reversed(self._calls) if one["id"] == key), None)
            if call is None and not name and self._calls and _is_begun(self._calls[-1]["arguments"]):
                call = self._calls[-1]  # an id of its own for each fragment
        elif 0 <= position < len(self._calls):
            call = self._calls[position]
        if call and call["id"] and not key and not call["arguments"] and name != call["name"]:
            call["name"], name = call["name"] + name, ""
        other = call and name and call["name"] and (
            name != call["name"] or (key and call["id"] not in ("", key) and not _is_begun(call["arguments"]))
            or _is_object(call["arguments"]))
        if call is None or other:
            index = len(self._calls) if index is None else index
            call = {"index": index, "id": "", "name": "", "arguments": [], "extra": None, "before": call}
            self._calls.append(call)
        call["id"], call["name"] = call["id"] or key, call["name"] or name
        call["extra"] = fragment.get("extra_content") or call["extra"]
        if isinstance(arguments, str):
            again = (not name and arguments.endswith("}") and _is_object(call["arguments"])
                     and arguments == "".join(call["arguments"]))
            call["arguments"] += [arguments] if arguments and not again else []
        elif arguments is not None:
            call["arguments"] = [json.dumps(arguments, ensure_ascii=False)]

    def reply(self) -> Reply:
        told: list[ToolCall] = []
        for call in sorted(self._calls, key=lambda one: one["index"]):
            text = whole_signs("".join(call["arguments"]))
            call["text"] = text = text[past(_NO_ARGUMENTS_YET, text, 0):]
            if (call["id"] or call["name"] or text not in ("", "{}")) and not _repeats(call):
                told.append(ToolCall(call["id"], call["name"], text, _dict(call["extra"]) or None))
        return replace(super().reply(), tool_calls=tuple(told), usage=self._usage)


_NO_ARGUMENTS_YET = re.compile(r"\s{0,8}\{\}\s{0,8}(?=\{)")  # sent in place of the first piece


def _repeats(call: dict[str, Any]) -> bool:
    """Whether this call only says again what the one before it under its index or id said."""
    before = call["before"]
    if before is None or call["name"] != before["name"] or call["id"] not in ("", before["id"]):
        return False
    return not call["text"] or (before["id"] != "" and call["text"] == before["text"])


def _dict(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _index(value: Any) -> int | None:
    """An index, which some servers send as "1" or 1.0."""
    if type(value) is int:
        return value
    try:
        return int(float(value))
    except (TypeError, ValueError, OverflowError):
        return None


def _content(content: Any, kind: str = "text") -> str:
    """The text, or the thinking, in a message's content: null, a text, a typed part or a list of those."""
    if not content or isinstance(content, str):
        return content if content and kind == "text" else ""
    parts = [{"text": part} if isinstance(part, str) else _dict(part) for part in _list(content)]
    texts = [part.get(kind) for part in parts if part.get("type", "text") == kind]
    if kind == "thinking":  # whose content is text in parts again
        texts = [_content(text) for text in texts]
    return "".join(text for text in texts if isinstance(text, str))


def _count(usage: dict[str, Any], name: str) -> int | None:
    """That number of tokens; None if it is not told, as by 0 or -1, which some servers fill in."""
    value = usage.get(name)
    return value if type(value) is int and value > 0 else None


def _is_begun(pieces: list[str]) -> bool:
    """Whether arguments have begun and are not whole."""
    return any(map(str.strip, pieces)) and "".join(pieces).strip() != "{}" and not _is_object(pieces)


def _is_object(pieces: list[str]) -> bool:
    """Whether arguments are whole and more than `{}`, which some servers send before the real ones."""
    if not pieces or (pieces[-1].strip() and "}" not in pieces[-1]):  # saves joining at every fragment
        return False
    text = "".join(pieces)
    try:
        return text.strip() != "{}" and json.loads(text) is not None
    except (ValueError, RecursionError):
        return False
