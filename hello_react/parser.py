"""A model's reply -> Thought + (Action | Finish | Malformed): the format that the prompt asks for (chapter 04).

    >>> turn = parse("Thought: I need a number.\\nAction: Search[height of K2]", tools=["Search"])
    >>> turn.thought, turn.move
    ('I need a number.', Action(tool='Search', input='height of K2', id=''))
    >>> parse("Thought: Done.\\nAction: Finish[8,611 m]").move
    Finish(answer='8,611 m')

`plain_parts` finds the labels by a regular expression and the end of a call by counting brackets; `repairs.parts`
does the same for what models really write. `_Decision` then says what the reply means, whichever of them read it.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain, islice

from . import repairs as fix
from .repairs import Part
from .text import closing_bracket

REASONS = ("empty_reply", "no_action", "prose_action", "unknown_tool", "missing_input", "unclosed", "empty_answer",
           "placeholder", "conflict")
"""Why a reply can be malformed."""


@dataclass(frozen=True)
class Action:
    """A complete tool call: run `tool` with `input` (text, as the model wrote it). `id` only with native tool calls."""

    tool: str
    input: str
    id: str = ""


@dataclass(frozen=True)
class Finish:
    """The final answer."""

    answer: str


@dataclass(frozen=True)
class Malformed:
    """A reply that can't be read: `reason` is one of REASONS, `note` tells the model what to write instead."""

    reason: str
    note: str


@dataclass(frozen=True)
class Turn:
    """What one reply says: the thought (None if there is none), one move, and further complete calls in `rest`."""

    thought: str | None
    move: Action | Finish | Malformed
    rest: tuple[Action, ...] = ()


def parse(text: str, tools: Iterable[str] | None = None, *, cut: bool = False, repairs: bool = True) -> Turn:
    """Read one reply of a model.

    Args:
        text: the reply.
        tools: names of the registered tools; None means that names are not checked.
        cut: whether the token limit ended the reply; then an answer that no bracket closes is refused.
        repairs: False reads the documented format alone.

    Returns:
        The turn. Never raises, whatever the text; takes time linear in its length.
    """
    decision = _Decision(tools, cut, repairs)
    parts = fix.parts(text, decision.known, cut) if repairs else plain_parts(text)
    return decision.turn(iter(parts))


_LABEL = re.compile(r"^(Thought|Action|Observation):", re.MULTILINE)
_CALL = re.compile(r"\s{0,20}([^\[\]\n]{1,120})\[")


def plain_parts(text: str) -> Iterator[Part]:
    """The labelled parts of a reply that keeps to the format."""
    read_to = 0
    labels = list(_LABEL.finditer(text))
    for label, following in zip(labels, [*labels[1:], None]):
        if label.start() < read_to:
            continue  # this label stands inside an argument
        end = following.start() if following else len(text)
        if label[1] != "Action":
            yield Part(label[1].lower(), text[label.end():end].strip())
        elif call := _CALL.match(text, label.end()):
            close = closing_bracket(text, call.end() - 1)
            name = call[1].strip()
            if close is None:
                yield Part("unclosed", text[call.end():], name)
                return
            yield Part("call", text[call.end():close].strip(), name)
            read_to = close
        else:
            yield Part("remark", text[label.end():end].strip())


class _Decision:
    """What the parts of a reply mean: the first call or ending counts, and nothing that rests on an invention."""

    def __init__(self, tools: Iterable[str] | None, cut: bool, repairs: bool) -> None:
        self.names = None if tools is None else tuple(tools)
        self.cut, self.repairs = cut, repairs

    def turn(self, parts: Iterator[Part]) -> Turn:
        thoughts: list[str] = []
        preamble: str | None = None
        invented = False
        part = next(parts, None)
        empty = part is None
        while part is not None:
            following = next(parts, None)
            if part.kind == "thought":
                thoughts.append(part.text)
            elif part.kind == "preamble":
                preamble = part.text
            elif part.kind == "observation":
                invented, thoughts, preamble = invented or bool(thoughts), [], None
            elif part.kind != "remark" or following is None or following.kind != "answer":
                move = self.move(part)
                if invented and isinstance(move, Finish):
                    move = self.malformed("conflict")
                rest = self.rest(chain([following] if following else [], parts)) if isinstance(move, Action) else ()
                return Turn("\n".join(filter(None, thoughts)) or preamble, move, tuple(rest))
            part = following
        thought = "\n".join(filter(None, thoughts)) or None
        return Turn(thought, self.malformed("empty_reply" if empty else "no_action"))

    def move(self, part: Part) -> Action | Finish | Malformed:
        name = self.known(part.name) or ""
        if part.kind == "answer":
            return self.malformed("unclosed", "answer") if self.cut else self.ending(part.text)
        if part.kind == "unclosed":
            # For an ending only, the last bracket of the reply may close it: `Finish[The interval is [0, 1).]`
            text = part.text.rstrip(" \n.。*`" if self.repairs else " \n")
            if name == "Finish" and text.endswith("]") and not self.cut:
                return self.ending(text[:-1])
            return self.malformed("unclosed", part.name)
        if part.kind == "call" and name == "Finish":
            return self.ending(part.text)
        if part.kind == "call" and name:
            wrong = self.repairs and fix.is_placeholder(part.text, "input")
            return self.malformed("placeholder", name) if wrong else Action(name, part.text)
        if part.kind == "call":
            return self.unknown(part.name)
        if part.kind == "problem":
            return self.malformed(part.name, part.text)
        return self.malformed("no_action" if fix.means_no_action(part.text) else "prose_action")

    def rest(self, later: Iterable[Part]) -> Iterator[Action]:
        """Further complete calls, up to an observation or an ending (and 50 at most)."""
        for part in islice(later, 50):
            name = self.known(part.name)
            if part.kind == "call" and name and name != "Finish":
                yield Action(name, part.text)
            elif part.kind != "thought":
                return

    def ending(self, text: str) -> Finish | Malformed:
        if not text.strip():
            return self.malformed("empty_answer")
        if self.repairs and fix.is_placeholder(text, "answer"):
            return self.malformed("placeholder", "Finish")
        return Finish(text.strip())

    def known(self, name: str) -> str | None:
        """The registered name, "Finish", or None: exact, else the one name equal but for case, blanks, `_` and `-`."""
        if self.names is not None and name in self.names or name == "Finish":
            return name
        if not self.repairs:
            return name if self.names is None and name else None
        if fix.is_finish(name):
            return "Finish"
        if self.names is None:
            return name if name and len(name.split()) <= 3 and not fix.is_placeholder(name, "name") else None
        same = [known for known in self.names if fix.squeeze(known) == fix.squeeze(name)]
        return same[0] if len(same) == 1 else None

    # --- what the model is told

    def unknown(self, name: str) -> Malformed:
        if self.repairs and (fix.is_placeholder(name, "name") or re.search(r"\bone of$|其中之一$", name)):
            return self.malformed("placeholder", name)
        return self.malformed("prose_action" if len(name.split()) > 3 else "unknown_tool", name)

    def malformed(self, reason: str, detail: str = "") -> Malformed:
        detail = detail.strip()[:80]
        close = difflib.get_close_matches(detail, self.names or (), 1) if reason == "unknown_tool" else []
        note = {
            "empty_reply": "Your reply was empty.",
            "no_action": "Your reply held no action.",
            "prose_action": "The Action line must hold one call and nothing else. To ask the user something, finish "
                            "with the question.",
            "unknown_tool": f"There is no tool named {detail!r}." + (f" Did you mean {close[0]}?" if close else ""),
            "missing_input": f"The input of {detail or 'the tool'} is missing: it goes between square brackets.",
            "unclosed": "Your reply broke off before it was complete, so nothing was run. Write it again, shorter.",
            "empty_answer": "The answer was empty.",
            "placeholder": "You copied a placeholder. Write the real text in its place.",
            "conflict": "Your reply held more than one step, or a result that no tool gave. Write one step only, and "
                        "never an Observation: that comes from the tools.",
        }[reason]
        return Malformed(reason, f"{note} {self.reminder()}")

    def reminder(self) -> str:
        names = ", ".join(self.names or ())
        tool = self.names[0] if self.names else "Search"
        tools = f" Tools: {names}." if names else ""
        return (f"Write a line that begins with 'Thought:' and then one line such as 'Action: {tool}[...]', or "
                f"'Action: Finish[...]' with the answer.{tools}")
