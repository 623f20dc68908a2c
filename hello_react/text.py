"""Small helpers for text from outside: made safe, made short, counted.

    >>> printable("done\\x1b[2J")
    'done\\\\x1b[2J'
    >>> clip("a long observation", 6)
    'a long\\n[cut: 6 of 18 characters shown]'
"""

from __future__ import annotations

import re

_LONE_SURROGATE = re.compile("[\ud800-\udfff]")
# C0 and C1 controls but tab and newline, and the marks that reorder text on screen.
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\u2028\u2029]")
# Scripts written without blanks between words; each sign is about one token.
_WIDE = re.compile("[\u1100-\u11ff\u2e80-\u9fff\ua960-\ua97f\uac00-\ud7ff\uf900-\ufaff\ufe30-\ufe4f\uff00-\uffef"
                   "\U00020000-\U0003ffff]")


def sendable(text: str) -> str:
    """`text` without what JSON, UTF-8 or a server chokes on: lone surrogates become U+FFFD, NUL goes."""
    return _LONE_SURROGATE.sub("\ufffd", text).replace("\x00", "")


def printable(text: str) -> str:
    """`text` for a terminal: line ends and tabs stay, every other control sign is shown as an escape."""
    text = _LONE_SURROGATE.sub("\ufffd", text).replace("\r\n", "\n")
    return _CONTROL.sub(lambda match: match[0].encode("unicode_escape").decode(), text)


def clip(text: str, limit: int) -> str:
    """The first `limit` characters of `text`, with a line that says how much was cut; all of it if it fits."""
    if len(text) <= limit:
        return text
    return f"{text[:limit]}\n[cut: {limit:,} of {len(text):,} characters shown]"


def estimate_tokens(text: str) -> int:
    """About how many tokens `text` takes: one for each Chinese, Japanese or Korean sign, else one per four bytes."""
    wide = len(_WIDE.findall(text))
    return wide + (len(text) - wide + 3) // 4


def redact(text: str, secrets: tuple[str, ...]) -> str:
    """`text` with every one of `secrets` (keys) replaced by a mark; blank and very short ones are left out."""
    for secret in secrets:
        if len(secret) >= 6:
            text = text.replace(secret, "[key]")
    return text
