"""Small helpers for text from outside: made safe, made short, counted (chapter 04 counts brackets).

    >>> printable("done\\x1b[2J")
    'done\\\\x1b[2J'
    >>> clip("a long observation", 6)
    'a long\\n[cut: 6 of 18 characters shown]'
"""

from __future__ import annotations

import dataclasses
import json
import os
import re
import sys
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import accumulate, islice, takewhile
from typing import Any, BinaryIO
from urllib.parse import quote

BLANKS = " \t\r\n\f\v\u00a0\u3000\ufeff\u00ad\u200b\u200c\u200d\u200e\u200f\u2060"
"""Blank and invisible signs: around a text they are no content."""

THINK_TAGS = ("<think>", "<thinking>", "<thought>", "<reasoning>", "<reflection>", "<seed:think>", "[think]")
_RARE_TAGS = ("◁think▷", "<|begin_of_thought|>", "<|start_thinking|>")  # odd signs, for no `TextReading`
_ENDS = [re.sub("begin|start", "end", tag) if "|" in tag else f"{tag[0]}/{tag[1:]}"
         for tag in THINK_TAGS + _RARE_TAGS]
THINK = re.compile("|".join(map(re.escape, THINK_TAGS + _RARE_TAGS)), re.IGNORECASE)
THINK_END = re.compile("|".join(map(re.escape, _ENDS)), re.IGNORECASE)
"""How a model marks its private thinking, in any case."""

_SURROGATE = re.compile("[\ud800-\udfff]")
# C0 and C1 controls but tab and newline, and the marks that reorder text on screen.
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\u2028\u2029]")
# Scripts written without blanks between words; each sign is about one token.
_BEYOND = re.compile("[^\x00-\u052f]+")  # Latin, Greek and Cyrillic


def is_blank(text: str) -> bool:
    """Whether a text is empty for its reader: blanks, invisible signs, NUL and what stands for it in a trace.
    """
    return all(sign.isspace() or sign in BLANKS or sign in "\0\ufffd" for sign in whole_signs(text))


def whole_signs(text: str) -> str:
    """`text` with the two halves of a sign (UTF-16 surrogates) joined; a half alone becomes U+FFFD."""
    if text.isascii() or not _SURROGATE.search(text):
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def sendable(text: str) -> str:
    """`text` without what JSON, UTF-8 or a server chokes on: lone surrogates become U+FFFD, NUL goes."""
    if text.isascii() and "\x00" not in text:
        return text
    return whole_signs(text).replace("\x00", "")


def printable(text: str) -> str:
    """`text` for a terminal: line ends and tabs stay, every other control sign is shown as an escape."""
    text = whole_signs(text).replace("\r\n", "\n")
    return _CONTROL.sub(lambda match: match[0].encode("unicode_escape").decode(), text)


def clip(text: str, limit: int) -> str:
    """The first `limit` characters of `text`, and a line that says how much was cut; all of it if it fits."""
    if len(text) <= limit:
        return text
    return f"{text[:limit]}\n[cut: {limit:,} of {len(text):,} characters shown]"


_BROKEN_OFF = {
    "failure": re.compile(r"error|fail|abort|cancel|time.?out|insufficient|malformed", re.I),
    "filter": re.compile(
        r"filter|sensitive|safety|moderat|refus|guardrail|prohibit|block|recitation|spii", re.I),
    "length": re.compile(r"length|max\w{0,20}token|token.?limit|context.?window|truncat", re.I),
}


def broken_off(reason: str) -> str:
    """Why a reply with this finish_reason is not whole: "failure", "filter", "length"; "" for a normal end.

    Servers have many words for a normal end, so what is not known to be another is one.
    """
    return next((kind for kind, words in _BROKEN_OFF.items() if words.search(reason)), "")


def estimate_tokens(text: str) -> int:
    """About how many tokens `text` takes: one for 4 Latin, Greek or Cyrillic letters or signs, of all others
    one for 3 bytes, which is one Chinese or Thai sign."""
    beyond = "".join(_BEYOND.findall(text))
    return (len(text) - len(beyond) + 3) // 4 + (len(beyond.encode("utf-8", "replace")) + 2) // 3


_BRACKETS = {"[": ("[", "]"), "(": ("(（", ")）"), "（": ("(（", ")）"), "{": ("{", "}"), "【": ("【", "】"),
             "［": ("［", "］")}
_SIGNS = {bracket: re.compile(f"[{re.escape(''.join(pair))}]") for bracket, pair in _BRACKETS.items()}


def closing_bracket(text: str, start: int) -> int | None:
    """Where the bracket at `text[start]` is closed, or None.

    Brackets are counted. Where that count ends inside a quoted string (`Search["what does ] mean"]`), or does
    not end at all (`Python[s = "["]`), a second count that skips quoted strings is asked. None where the
    string that hides the end would hold another call's beginning too: `Search[the 'n], Search[the 'n]`.
    """
    plain = _count(text, start)
    if plain is not None and not _quote_open(text, start + 1, plain):
        return plain
    quoted = _count_outside_quotes(text, start)
    return plain if quoted is None else None if plain and _CALL_AGAIN.match(text, plain) else quoted


def _count(text: str, start: int) -> int | None:
    (openers, closers), signs = _BRACKETS[text[start]], _SIGNS[text[start]]
    if len(closers) == 1:  # the common case
        close = text.find(closers, start)
        if close < 0 or text.find(openers, start + 1, close) < 0:
            return close if close >= 0 else None
    depth, position, block = 0, start, 64
    while position < len(text):
        # A block with fewer closing brackets than are open can't hold the end: counted, not walked through.
        closing = sum(text.count(sign, position, position + block) for sign in closers)
        opening = sum(text.count(sign, position, position + block) for sign in openers)
        if closing >= depth:
            found = signs.findall(text, position, position + block)
            depths = list(accumulate((1 if sign in openers else -1 for sign in found), initial=depth))[1:]
            if 0 in depths:
                return next(islice(signs.finditer(text, position), depths.index(0), None)).start()
        depth += opening - closing
        position, block = position + block, min(2 * block, 4096)
    return None


_STRING_LIMIT = 100_000  # a string literal that is longer than this belongs to no call
_QUOTE = r"\\[\\\"']|\"{3}|'{3}|\"|(?<!\w)'(?!\d0s)|'(?!\w)"  # not an apostrophe: it's, the '90s
_CALL_AGAIN = re.compile(r"\][^\"'\[\]\n]{0,80}\w\[")
_QUOTES = re.compile(_QUOTE)
_QUOTE_SIGNS = re.compile(_QUOTE + r"|\n|[][(){}（）【】［］]")


def _count_outside_quotes(text: str, start: int) -> int | None:
    openers, closers = _BRACKETS[text[start]]
    depth, quote = 0, ""
    end = start + _STRING_LIMIT
    if '"' not in text[start:end] and "'" not in text[start:end]:
        return None
    for match in _QUOTE_SIGNS.finditer(text, start, end):
        sign = match[0]
        if quote:
            if sign == "\n" and len(quote) == 1:
                return None  # a quote that its line does not close is no string: this count can't be trusted
            quote = "" if sign == quote else quote
        elif _opens_string(match):
            quote = sign
        elif sign in openers:
            depth += 1
        elif sign in closers:
            depth -= 1
            if depth == 0:
                return match.start()
    return None


def _quote_open(text: str, start: int, end: int) -> bool:
    if any(text.count(mark, start, end) % 2 for mark in ('"""', "'''")):
        return True
    start = max(start, text.rfind("\n", start, end))  # any other quote ends with its line
    quote = ""
    for match in _QUOTES.finditer(text, start, end) if end - start < _STRING_LIMIT else ():
        if quote:
            quote = "" if match[0] == quote else quote
        elif _opens_string(match):
            quote = match[0]
    return bool(quote)


def _opens_string(sign: re.Match[str]) -> bool:
    """Whether a string may begin here: at a quote, but not where it means inches, `5" wide`."""
    return sign[0][0] in "\"'" and not (sign[0] == '"' and sign.string[sign.start() - 1].isdigit())


def argument_end(text: str, opening: int, stops: Sequence[int]) -> int | None:
    """Where the argument that the bracket at `opening` begins is closed; None if its brackets do not balance.

    Nor do they where words follow and then one closing bracket too many: `Finish[from 0, 1] on]`; and where
    another closing bracket follows one that may be content: `Finish[(0, 1]]`, `Finish[x in ]0, 1[]`.
    `stops` are the places, in order, at which such a rest ends: the next label, the end of the text.
    """
    close = closing_bracket(text, opening)
    if close is None or text[opening] != "[":
        return close
    rest = text[close + 1:stops[min(bisect_left(stops, close), len(stops) - 1)]]
    last = rest.rfind("]")
    if last < 0:
        return close
    too_many = rest.count("]") > rest.count("[") and re.search(r"[^\s\]]", rest[:last])
    return None if too_many or rest[0].isdigit() or _may_go_on(text[opening + 1:close], rest) else close


_COMMENT = re.compile(r"(?:^|\s)(?:#|//)[^\S\n][^\n]*\Z")


def _may_go_on(argument: str, rest: str) -> bool:
    """Whether the bracket between the two may be content: after `press `, `x = 1  # list`, and after `(0, 1`
    where the rest closes what is still open; it does not in `no :-(] [1]`."""
    surplus = rest.count("]") > rest.count("[") or _rounds(rest) < 0
    in_round = _rounds(argument) > 0 and surplus
    apart = argument.endswith((" ", "\t")) and not argument[0].isspace() and not re.search(r"\w\w\[", rest)
    return in_round or apart or _COMMENT.search(argument, max(0, argument.rfind("\n"))) is not None


def _rounds(text: str) -> int:
    return sum(map(text.count, "(（")) - sum(map(text.count, ")）"))


def past(pattern: re.Pattern[str], text: str, start: int, end: int = sys.maxsize) -> int:
    """Where `pattern` ends if it matches at `start`, else `start`."""
    match = pattern.match(text, start, end)
    return match.end() if match else start


_FENCE = re.compile(r"^[^\S\n]{0,3}(?:```|~~~)[^\n`]*$"
                    r"|(?<!`)```(?:(?P<pair>[^\n`]*```)|(?P<beside>\w{0,20})[^\S\n]{0,8}$)", re.MULTILINE)


def fences(text: str, start: int = 0, end: int = sys.maxsize) -> list[re.Match[str]]:
    """The places where a code fence opens and closes, in turn, 5,001 at most.

    One that opens at the end of a line (`Action Input: ```python`) is a fence only if it is closed too.
    """
    found = list[re.Match[str]]()
    for match in islice(_FENCE.finditer(text, start, end), 5_001) if "```" in text or "~~~" in text else ():
        if match["pair"] is None and not (len(found) % 2 and match["beside"]):
            found.append(match)
    return found[:-1] if len(found) % 2 and found[-1]["beside"] is not None else found


def outside_fences(text: str, matches: Iterable[re.Match[str]]) -> Iterator[re.Match[str]]:
    """Those of `matches` that do not start inside a code fence, 5,000 at most."""
    turns = [fence.start() for fence in fences(text)]
    return islice((match for match in matches if bisect_left(turns, match.start()) % 2 == 0), 5_000)


@lru_cache(maxsize=1000)
def squeeze(name: str) -> str:
    """`Web-Search`, `web search` and `WEB_SEARCH` are one name: case, blanks, `_` and `-` dropped."""
    return re.sub(r"[\s_\u200b\ufeff-]+", "", name).casefold()


def unquote(text: str) -> str:
    """`text` without outer blanks and one pair of quotes around it all; anything less stays: `"a" + "b"`."""
    text = text.strip(BLANKS)
    if len(text) >= 2 and (text[0], text[-1]) in (('"', '"'), ("'", "'"), ("“", "”"), ("‘", "’")):
        inner = re.sub(r"\\.", "", text[1:-1], flags=re.DOTALL)
        if text[0] not in inner and text[-1] not in inner and not text.endswith("\\" + text[-1]):
            return text[1:-1].strip(BLANKS)
    return text


_IS = r"""(?:\\{0,2}["'])?[ \t]{0,2}(?:[=:]|%3[AD])[ \t]{0,2}(?:\\{0,2}["'])?"""
_VALUE = r"""(?:(?!\\["'])[^\s&"',;)\]]){6,}"""
_SCHEME = r"(?:bearer|basic|token|digest|negotiate|apikey)[ \t]{1,2}"
_KEY_LIKE = re.compile(
    r"(?i)(?<![^\W_])(?:"
    rf"((?:(?:api|access|auth|client|secret|private|refresh|session)?[_-]?(?:key|token|secret)|appid|password"
    rf"|passwd|pwd|sig(?:nature)?(?==)){_IS}){_VALUE}"
    rf"|(authorization{_IS}(?:{_SCHEME})?)(?!{_SCHEME}){_VALUE}"
    rf"|(bearer[ \t]{{1,2}}){_VALUE}|(sk-)[\w-]{{6,}})"
    r"|(://[^\s/:@?#]{0,64}:)[^\s/@?#\"\]]{1,128}(?=@)")
_WORD = re.compile(r"[\w-]*")


def open_file(path: str | os.PathLike[str]) -> BinaryIO:
    """The file, open for reading; OSError for a folder, and for a pipe or device, which might never end."""
    if os.path.exists(path) and not os.path.isfile(path) and not os.path.isdir(path):
        raise OSError(None, "it is no regular file")
    return open(path, "rb")


KNOWN_KEYS = set[str]()
"""The keys that this process has found in its settings or was given."""


def redact(text: str, secrets: tuple[str, ...] = ()) -> str:
    """`text` with a mark in place of each of `secrets` and of what is written like a key in a URL or header.

    A secret of less than 6 signs is none; one that was cut is found by its first 8.

    >>> redact("GET /search?q=Oslo&api_key=0123456789")
    'GET /search?q=Oslo&api_key=[key]'
    """
    text = mask(text, secrets)
    return _KEY_LIKE.sub(lambda match: "".join(part or "" for part in match.groups()) + "[key]", text)


def mask(text: str, secrets: tuple[str, ...], least: int = 6) -> str:
    """`text` with a mark in place of each of `secrets` that has `least` characters or more."""
    for form in _forms(secrets, least):
        text = _without(text, form)
    return text


@lru_cache(maxsize=100)
def _forms(secrets: tuple[str, ...], least: int) -> tuple[str, ...]:
    """Each secret as it stands and as it is written in a URL; the longest first."""
    known = [sendable(secret) for secret in secrets if len(secret) >= least]
    forms = {form for secret in known for form in (secret, quote(secret), quote(secret, safe=""))}
    return tuple(sorted(forms, key=lambda form: (-len(form), form)))


def _without(text: str, secret: str) -> str:
    pieces, position = [], 0
    while (start := text.find(secret[:8], position)) >= 0:
        pieces.append(text[position:start])
        position = start + len(secret)
        if not text.startswith(secret, start):  # cut, or another key that begins alike: all of it goes
            same = (left == right for left, right in zip(text[start:position], secret, strict=False))
            position = past(_WORD, text, start + sum(takewhile(bool, same)))
    return "[key]".join([*pieces, text[position:]])


def json_text(value: Any) -> str:
    """A value as JSON; None as nothing, and text as it stands, for it is taken to be JSON already."""
    if value is None or isinstance(value, str):
        return value or ""
    return json.dumps(value, ensure_ascii=False, default=str)


def in_words(value: Any, form: Callable[[Any], str] = str) -> str:
    """`form(value)`; where that raises, `str(value)`; where that raises too, the name of its type."""
    for way in (form, str):
        try:
            return way(value)
        except KeyboardInterrupt:
            raise
        except BaseException:  # noqa: BLE001  a foreign object's methods may raise anything
            continue
    return type(value).__name__


def readable(value: Any) -> str:
    """What a tool returned, as text for the model: text stays, containers become JSON, None and "" words.
    An object that can't be told is named by its type."""
    return in_words(value, _readable)


def _jsonable(value: Any) -> Any:
    """An object that JSON has no form for, as one that it has."""
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if isinstance(value, (set, frozenset)):
        return list(value)
    if hasattr(value, "model_dump") and not isinstance(value, type):
        return value.model_dump()
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return dataclasses.asdict(value)
    return str(value)


def _readable(value: Any) -> str:
    if value is None:
        return "The tool gave no result."
    if not isinstance(value, (dict, list, tuple)):
        value = _jsonable(value)
    if isinstance(value, (dict, list, tuple)):
        try:
            return json.dumps(value, ensure_ascii=False, default=_jsonable)
        except (TypeError, ValueError, RecursionError):  # keys that JSON has no form for, a value in itself
            return str(value)
    text = str(value)
    return "The tool gave an empty text." if is_blank(text) and "\ufffd" not in text else text
