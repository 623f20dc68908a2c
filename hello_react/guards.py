"""What a loop is guarded by: time, repeats, a growing history, a prompt that is cut (chapters 03 and 05).

    >>> guard = Repeats()
    >>> [guard.seen("Search", "Oslo", "nothing found") for _ in range(3)]
    [1, 2, 3]
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from typing import Generic, TypeVar

from .text import estimate_tokens

Entry = TypeVar("Entry")

REPEAT_NOTE = ("You made this very call before, with this very result. "
               "Do something else, or finish with what you know.")


def whole_number(name: str, value: object, least: int) -> int:
    """`value` if it is a whole number of at least `least`.

    Raises:
        ValueError: it is not; the text names the option.
    """
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise ValueError(f"{name} must be a whole number of at least {least}, not {value!r}")
    return value


class Deadline:
    """A time limit in seconds, or none."""

    def __init__(self, limit: float | None) -> None:
        number = isinstance(limit, (int, float)) and not isinstance(limit, bool)
        if limit is not None and not (number and limit >= 0):
            raise ValueError(f"time_limit must be a number of seconds, 0 or more, not {limit!r}")
        self._end = None if limit is None else time.monotonic() + limit

    @property
    def left(self) -> float | None:
        """Seconds left, never below 0; None without a limit."""
        return None if self._end is None else max(0.0, self._end - time.monotonic())

    @property
    def passed(self) -> bool:
        return self.left == 0.0


class Repeats:
    """How often each call came back with the same result.

    Attributes:
        counts: by tool, input (its blanks made one) and result.
    """

    def __init__(self) -> None:
        self.counts: Counter[tuple[str, str, str]] = Counter()

    def seen(self, tool: str, input: str, result: str) -> int:
        """Note one more call; how often this call had this result by now."""
        key = (tool, " ".join(input.split()), result)
        self.counts[key] += 1
        return self.counts[key]


class History(Generic[Entry]):
    """The steps that the next prompt shows, within a budget of estimated tokens.

    Over budget, the oldest steps go in one block down to half of it: a window that slides at every step would
    make the server read the whole prompt anew each time.
    """

    def __init__(self, budget: int, text_of: Callable[[Entry], str],
                 cut: Callable[[Entry, float], Entry]) -> None:
        self.budget, self.entries, self.dropped = budget, list[Entry](), 0
        self._text_of, self._cut, self._sizes = text_of, cut, list[int]()

    def add(self, entry: Entry) -> int:
        """Add a step; how many old ones were dropped to make room."""
        self.entries.append(entry)
        self._sizes.append(estimate_tokens(self._text_of(entry)))
        return self.shrink(self.budget // 2, self.budget) if sum(self._sizes) > self.budget else 0

    def shrink(self, target: int | None = None, fits: int = 0) -> int:
        """Drop the oldest steps, and cut the last one if need be, down to `target` tokens (half of now if
        None). A last one that takes no more than `fits` stays whole.

        Returns:
            How many steps were dropped or cut; 0 if there was nothing to take.
        """
        target = sum(self._sizes) // 2 if target is None else target
        before = len(self.entries)
        while len(self.entries) > 1 and sum(self._sizes) > target:
            del self.entries[0], self._sizes[0]
        dropped = before - len(self.entries)
        self.dropped += dropped
        if self.entries and self._sizes[-1] > max(target, fits):
            self.entries[-1] = self._cut(self.entries[-1], target / self._sizes[-1])
            self._sizes[-1] = estimate_tokens(self._text_of(self.entries[-1]))
            dropped += 1
        return dropped


class WindowWatch:
    """Notices a server that silently cuts the prompt: the prompt grows, the tokens it counts do not."""

    def __init__(self) -> None:
        self._characters, self._tokens, self._told = 0, 0, False

    def suspicion(self, characters: int, tokens: int | None) -> str | None:
        """What to tell the user, once, or None."""
        if tokens is None or tokens < 500 or self._told:  # no window is so small: some servers miscount
            return None
        if tokens > 1.02 * self._tokens or characters < self._characters:
            self._characters, self._tokens = characters, tokens
        elif characters > 1.1 * self._characters + 200:
            self._told = True
            return (f"The prompt grows, but the server still counts about {tokens:,} prompt tokens: it is "
                    "probably cutting the prompt at its context window. Raise the window there, or lower "
                    "history_budget.")
        return None
