"""Conversation: what was asked and answered before, for the next question (chapter 07).

The whole conversation is kept; the model reads a window of it: the newest turns, at most `max_turns` of them
and about `max_tokens`. A tool call and its results stand in the window together or not at all.

    >>> talk = Conversation(max_turns=2)
    >>> for name in ("Ada", "Bo", "Cy"):
    ...     talk.add(f"I am {name}.", f"Hello {name}!")
    >>> len(talk), talk.turns()[0]
    (3, ('I am Bo.', 'Hello Bo!'))

It does not summarise: what leaves the window is not read any more.
"""

from __future__ import annotations

import contextlib
import copy
import filecmp
import importlib
import itertools
import json
import os
import secrets
import shutil
import stat
import threading
import time
import zlib
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from .errors import HelloReactError
from .events import Message
from .guards import whole_number
from .text import clip, estimate_tokens, open_file, printable, sendable

CountTokens = Callable[[str], int]

FORMAT, VERSION = "hello_react conversation", 1


class MemoryFileError(HelloReactError):
    """A file of a conversation that can't be read or written."""


@dataclass(frozen=True)
class Exchange:
    """One turn of a conversation: a question and its answer.

    Attributes:
        question: what the user asked.
        answer: what the agent answered.
        messages: the tool calls in between with all of their results, as chat messages; may be empty.
    """

    question: str
    answer: str
    messages: tuple[Message, ...] = ()


class Conversation:
    """The turns so far, safe between threads. Iterating gives each `Exchange`, the oldest first.

    Args:
        max_turns: turns that the model reads at most.
        max_tokens: tokens that these may take; the system message is not counted.
        count_tokens: counts the tokens of a text (`text.estimate_tokens` if None); "tiktoken" for the package
            of that name, which fetches its word list from the network when it is first used.

    Attributes:
        skipped_lines: how many lines of the file could not be read, if `load` made this conversation; else 0.

    Raises:
        ValueError: a limit that is no whole number of at least 1, or an unknown `count_tokens`.
        HelloReactError: tiktoken is asked for and can't be used.
    """

    def __init__(self, max_turns: int = 20, max_tokens: int = 4_000,
                 count_tokens: CountTokens | Literal["tiktoken"] | None = None) -> None:
        self.max_turns = whole_number("max_turns", max_turns, 1)
        self.max_tokens = whole_number("max_tokens", max_tokens, 1)
        if count_tokens == "tiktoken":
            count_tokens = _tiktoken()
        if count_tokens is not None and not callable(count_tokens):
            raise ValueError(f"count_tokens must be a function or 'tiktoken', not {count_tokens!r}")
        self.count_tokens = count_tokens or estimate_tokens
        self.skipped_lines = 0
        self._exchanges: list[Exchange] = []
        self._lock = threading.RLock()

    def add(self, question: str, answer: str, messages: Iterable[Message] = ()) -> None:
        """Add a turn.

        Args:
            question: what was asked.
            answer: what was answered; a run that failed has no answer, and no turn here.
            messages: chat messages of the run, to keep its tool calls too: each assistant message whose calls
                all have a result and an id of their own, and these results. Every other message is left out.

        Raises:
            ValueError: no question, no answer, or messages that JSON has no form for.
        """
        for name, text in (("question", question), ("answer", answer)):
            if not isinstance(text, str) or not sendable(text).strip():
                raise ValueError(f"The {name} of a turn must be a text that is not empty, not {text!r}.")
        exchange = Exchange(sendable(question), sendable(answer), _calls_with_results(messages))
        with self._lock:
            self._exchanges.append(exchange)

    def turns(self) -> Sequence[tuple[str, str]]:
        """The window as (question, answer) pairs, the oldest first: what a text prompt shows."""
        return [(turn.question, turn.answer) for turn in self._window(with_calls=False)]

    def messages(self, system: str | None = None) -> list[Message]:
        """The window as chat messages: `system` if given, then for each turn question, tool calls and answer.

        Tool calls that do not fit into the window are left out together with their results; the answer stays.
        """
        messages: list[Message] = [{"role": "system", "content": system}] if system else []
        for turn in self._window(with_calls=True):
            messages.append({"role": "user", "content": turn.question})
            messages += copy.deepcopy(turn.messages)
            messages.append({"role": "assistant", "content": turn.answer})
        return messages

    def clear(self) -> None:
        """Forget everything."""
        with self._lock:
            self._exchanges.clear()

    def __len__(self) -> int:
        return len(self._exchanges)

    def __iter__(self) -> Iterator[Exchange]:
        with self._lock:
            return iter(list(self._exchanges))

    def __repr__(self) -> str:
        return f"<Conversation: {len(self)} turn{'s' if len(self) != 1 else ''}>"

    # --- the window

    def _window(self, with_calls: bool) -> list[Exchange]:
        with self._lock:
            recent = self._exchanges[-self.max_turns:]
        window: list[Exchange] = []
        left = self.max_tokens
        for turn in reversed(recent):
            plain = replace(turn, messages=())
            size = self._size(plain)
            if size > self.max_tokens:  # it would never fit: the newest such turn is shown cut
                plain = self._cut(plain, left)
                size = self._size(plain)
            elif with_calls and turn.messages and self._size(turn) <= left:
                plain, size = turn, self._size(turn)
            if size > left and window:
                break
            window.append(plain)
            left -= size
        return window[::-1]

    def _size(self, turn: Exchange) -> int:
        calls = [json.dumps(message, ensure_ascii=False) for message in turn.messages]
        return sum(self.count_tokens(text) for text in (turn.question, turn.answer, *calls))

    def _cut(self, turn: Exchange, budget: int) -> Exchange:
        """The turn without calls, its texts cut; one that takes less than half of the budget stays whole."""
        question = self._fit(turn.question, max(budget // 2, budget - self.count_tokens(turn.answer)))
        return Exchange(question, self._fit(turn.answer, budget - self.count_tokens(question)))

    def _fit(self, text: str, budget: int) -> str:
        """`text`, cut so that it takes `budget` tokens with the mark of the cut; never cut to nothing."""
        if self.count_tokens(text) <= budget:
            return text
        lengths = range(1, min(len(text), 16 * max(budget, 1)))  # 16: more signs to a token than any text has
        fitting = bisect_right(lengths, budget, key=lambda length: self.count_tokens(clip(text, length)))
        return clip(text, max(1, fitting))

    # --- files

    def save(self, path: str | os.PathLike[str]) -> Path | None:
        """Write all turns to `path` as JSON lines; whatever stops this half-way, the old file is still whole.

        Returns:
            None; or, if the file that was there is no conversation that this version reads, where it is kept.

        Raises:
            MemoryFileError: the file can't be written.
        """
        target = _target(path)
        kept: Path | None = None
        mark = f".{zlib.crc32(os.fsencode(target.name)):08x}-"
        temporary = target.with_name(f"{mark}{secrets.token_hex(8)}.tmp")
        try:
            with self._lock:
                known = os.path.lexists(target)
                if known:
                    with open_file(target) as old:
                        first = old.readline(1_000)
                    if first and _version(first) != VERSION:
                        kept = _keep_aside(target)
                mode = stat.S_IMODE(os.stat(target).st_mode) if known else 0o666
                with open(temporary, "xb", opener=lambda name, flags: os.open(name, flags, mode)) as file:
                    file.write(self._as_lines().encode())
                    file.flush()
                    os.fsync(file.fileno())
                if known:
                    os.chmod(temporary, mode)  # the umask may have taken bits from it
                os.replace(temporary, target)
                _sweep(target.parent, mark)
        except OSError as error:
            raise MemoryFileError(f"{path} can't be written: {error.strerror}.") from None
        finally:
            with contextlib.suppress(OSError):
                os.unlink(temporary)
        return kept

    def _as_lines(self) -> str:
        lines: list[dict[str, Any]] = [{"format": FORMAT, "version": VERSION}]
        for turn in self._exchanges:
            calls = {"messages": turn.messages} if turn.messages else {}
            lines.append({"question": turn.question, "answer": turn.answer, **calls})
        return "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)

    @classmethod
    def load(cls, path: str | os.PathLike[str], **options: Any) -> Conversation:
        """Read what `save` wrote. Lines that can't be read are skipped and counted in `skipped_lines`.

        A file with such lines, or one that is no conversation, stays where it is and is also kept as
        NAME.unreadable-1 (or -2 ...), so that nothing is lost when a conversation is saved under its name.

        Args:
            path: the file.
            options: limits of the window, as for `Conversation`.

        Raises:
            MemoryFileError: there is no such file, it is no conversation, or a newer version of this package
                wrote it. ValueError: a limit that can't be used.
        """
        conversation = cls(**options)
        target = _target(path)
        try:
            with open_file(target) as file:
                first, *lines = file.read().split(b"\n")
        except OSError as error:
            raise MemoryFileError(f"{path} can't be read: {error.strerror}.") from None
        version = _version(first)
        if version is not None and version > VERSION:
            raise MemoryFileError(f"{path} was saved by a newer version of hello_react (format {version}, "
                                  f"here {VERSION}). Update hello_react to read it; the file is unchanged.")
        damaged = bool(first or lines) and not _is_json(first)  # the turns below it may still be good
        conversation.skipped_lines = int(damaged)
        for line in filter(bytes.strip, lines if damaged or version == VERSION else ()):
            try:
                turn = json.loads(line.decode())
                conversation.add(turn["question"], turn["answer"], turn.get("messages", ()))
            except (ValueError, TypeError, KeyError, RecursionError):
                conversation.skipped_lines += 1
        unknown = (first or lines) and version != VERSION and not len(conversation)
        also = ""
        if unknown or conversation.skipped_lines:
            with contextlib.suppress(OSError):  # a folder that takes no file: nothing replaces this one
                also = f" What it holds is kept as {_keep_aside(target).name} too."
        if unknown:
            raise MemoryFileError(f"{path} is not a saved conversation.{also}")
        return conversation


def _calls_with_results(messages: Iterable[Message]) -> tuple[Message, ...]:
    """A copy of each assistant message whose tool calls are all answered right after it, with the answers."""
    try:
        copied = json.loads(sendable(json.dumps(list(messages), ensure_ascii=False)))
    except (TypeError, RecursionError) as error:
        raise ValueError(f"The messages of a turn must be JSON: {error}") from None
    kept: list[Message] = []
    for position, message in enumerate(copied):
        asked = _ids(message, "assistant")
        if asked:
            results = list(itertools.takewhile(lambda later: _ids(later, "tool"), copied[position + 1:]))
            told = [name for result in results for name in _ids(result, "tool")]
            if sorted(asked) == sorted(told) and len(set(asked)) == len(asked):
                kept += [message, *results]
    return tuple(kept)


def _ids(message: Any, role: str) -> list[str]:
    """The ids of the calls that an assistant message makes or a tool message answers; none if one is no call.
    """
    if not isinstance(message, dict) or message.get("role") != role:
        return []
    if role == "tool":
        return [str(message.get("tool_call_id"))]
    calls = message.get("tool_calls")
    if not isinstance(calls, list) or not all(map(_is_call, calls)):
        return []
    return [str(call["id"]) for call in calls]


def _is_call(call: Any) -> bool:
    """Whether it has an id, a name and arguments, without which no server takes it back."""
    function = call.get("function") if isinstance(call, dict) and call.get("id") else None
    texts = [function.get("name"), function.get("arguments")] if isinstance(function, dict) else [None]
    return all(isinstance(text, str) for text in texts)


def _target(path: str | os.PathLike[str]) -> Path:
    try:
        os.fsencode(path)  # Windows takes a lone surrogate, and NUL is found later there
        target = Path(os.path.realpath(path))
    except ValueError:
        shown = printable(str(path))
        raise MemoryFileError(f"{shown} is no file name: it holds signs that none can.") from None
    except OSError as error:  # the working folder is gone
        raise MemoryFileError(f"{path} can't be found: {error.strerror}.") from None
    if not target.name:
        raise MemoryFileError(f"{path} is no file name: it is the topmost folder.")
    return target


def _is_json(line: bytes) -> bool:
    try:
        json.loads(line.decode("utf-8-sig"))
    except (ValueError, RecursionError):
        return False
    return True


def _sweep(folder: Path, mark: str) -> None:
    """Remove what saves of one file left behind that were killed long ago."""
    with contextlib.suppress(OSError):
        for old in folder.glob(f"{mark}*.tmp"):
            if time.time() - old.stat().st_mtime > 600:
                old.unlink()


def _version(line: bytes) -> int | None:
    """The version in a file's first line, or None if that is no header of a conversation."""
    try:
        header = json.loads(line.decode("utf-8-sig"))
    except (ValueError, RecursionError):
        return None
    version = header.get("version") if isinstance(header, dict) and header.get("format") == FORMAT else None
    return version if type(version) is int else None


def _keep_aside(path: Path) -> Path:
    """Copy what `path` holds to a name beside it and return that; if it has one already, return that."""
    number = 1
    while os.path.lexists(aside := path.with_name(f"{path.name}.unreadable-{number}")):
        if filecmp.cmp(path, aside, shallow=False):
            return aside
        number += 1
    shutil.copy2(path, aside)
    return aside


def _tiktoken() -> CountTokens:
    try:
        encoding = importlib.import_module("tiktoken").get_encoding("o200k_base")
    except ImportError:
        raise HelloReactError("count_tokens='tiktoken' needs that package: pip install tiktoken") from None
    except (OSError, ValueError) as error:
        raise HelloReactError(f"tiktoken can't load its word list: {error}") from None
    return lambda text: len(encoding.encode_ordinary(text))
