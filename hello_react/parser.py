"""A model's reply -> Thought + (Action | Finish | Malformed): the format of the prompt (chapter 04).

    >>> turn = parse("Thought: I need a number.\\nAction: Search[height of K2]", tools=["Search"])
    >>> turn.thought, turn.move
    ('I need a number.', Action(tool='Search', input='height of K2', id=''))
    >>> parse("Thought: Done.\\nAction: Finish[8,611 m]").move
    Finish(answer='8,611 m')

`plain_parts` finds labels by a regular expression and the end of a call by counting brackets, `repairs.parts`
does so for what models really write; `_Decision` says what the reply means, whichever of them read it.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain, islice

from . import repairs as fix
from .repairs import Part
from .text import argument_end, is_blank, outside_fences

NOTES = {
    "empty_reply": "Your reply was empty, or all of it was thinking.",
    "no_action": "Your reply held no action.",
    "prose_action": "The Action line must hold one call alone. To ask the user, finish with the question.",
    "unknown_tool": "There is no tool named {detail!r}.",
    "missing_input": "The input of {detail} is missing: it goes between square brackets.",
    "unclosed": "Your reply broke off, or its brackets do not match, so nothing was run. Write it again.",
    "empty_answer": "The answer was empty.",
    "placeholder": "You copied a placeholder. Write the real text in its place.",
    "conflict": "Your reply held more than one step, or an Observation: only tools give that. Write one.",
}
REASONS = tuple(NOTES)  # why a reply can be malformed


@dataclass(frozen=True)
class Action:
    """A complete call: run `tool` with `input`, the model's own text. `id` only with native tool calls."""
    tool: str
    input: str
    id: str = ""


@dataclass(frozen=True)
class Finish:
    """The final answer."""
    answer: str


@dataclass(frozen=True)
class Malformed:
    """A reply that can't be read: `reason` is one of REASONS, `note` tells the model what to write."""
    reason: str
    note: str


@dataclass(frozen=True)
class Turn:
    """What one reply says: the thought (or None), one move, and further complete calls in `rest`."""
    thought: str | None
    move: Action | Finish | Malformed
    rest: tuple[Action, ...] = ()


def parse(text: str, tools: Iterable[str] | None = None, *, cut: bool = False, repairs: bool = True) -> Turn:
    """Read one reply of a model. Never raises, whatever the text, and takes time linear in its length.

    Args:
        text: the reply.
        tools: names of the registered tools; None means that names are not checked.
        cut: whether the token limit ended the reply; then an answer that no bracket closes is refused.
        repairs: False reads the documented format alone.
    """
    decision = _Decision(tools, cut, repairs)
    return decision.turn(fix.parts(text, decision.known, cut) if repairs else plain_parts(text))


_LABEL = re.compile(r"^(Thought|Action|Observation):", re.MULTILINE)
_CALL = re.compile(r"\s{0,20}([^\[\]\n:]{1,120})\n?\[")


def plain_parts(text: str) -> Iterator[Part]:
    """The labelled parts of a reply that keeps to the format. Labels inside a code fence are text."""
    labels = list(outside_fences(text, _LABEL.finditer(text)))
    stops = [*(label.start() for label in labels), len(text)]
    if text[:stops[0]].strip():
        yield Part("preamble", text[:stops[0]].strip())
    read_to = 0
    for label, end in zip(labels, stops[1:], strict=True):
        if label.start() < read_to:
            continue  # this label stands inside an argument
        if label[1] != "Action":
            yield Part(label[1].lower(), text[label.end():end].strip())
        elif call := _CALL.match(text, label.end()):
            close = argument_end(text, call.end() - 1, stops)
            kind, read_to = ("unclosed", end) if close is None else ("call", close)
            yield Part(kind, text[call.end():read_to].strip(), call[1].strip())
        else:
            yield Part("remark", text[label.end():end].strip())


class _Decision:
    """What the parts of a reply mean: the first call or ending counts, nothing that rests on an invention."""

    def __init__(self, tools: Iterable[str] | None, cut: bool, repairs: bool) -> None:
        self.names = None if tools is None else tuple(tools)
        self.cut, self.repairs = cut, repairs

    def known(self, name: str) -> str | None:
        """The registered name, "Finish", or None."""
        if self.repairs:
            return fix.registered_name(name, self.names)
        return name if name == "Finish" or self.names is None or name in self.names else None

    def turn(self, parts: Iterator[Part]) -> Turn:
        thoughts: list[str] = []
        preamble, seen, invented = "", False, False
        part = next(parts, None)
        while part is not None:
            following = next(parts, None)
            if part.kind == "thought":
                thoughts += [part.text] if part.text else []
            elif part.kind == "preamble":
                preamble = part.text
            elif part.kind == "observation":
                preamble, thoughts, invented = "", [], invented or seen
            elif not self.means_nothing(part, following):
                move = self.move(part, following)
                if invented and isinstance(move, Finish):
                    move = self.malformed("conflict")
                rest = self.rest(chain(filter(None, [following]), parts)) if isinstance(move, Action) else ()
                return Turn("\n".join(thoughts) or preamble or None, move, tuple(rest))
            part, seen = following, True
        return Turn("\n".join(thoughts) or None, self.malformed("no_action" if seen else "empty_reply"))

    def means_nothing(self, part: Part, following: Part | None) -> bool:
        """`Action: None`, or a remark where the call should stand and a labelled answer below it."""
        answered = part.kind in ("remark", "answer") and following is not None and following.kind == "answer"
        return answered or (part.kind in ("remark", "call") and fix.means_no_action(part.name or part.text))

    def move(self, part: Part, following: Part | None) -> Action | Finish | Malformed:
        name = self.known(part.name)
        if part.kind == "problem":
            return self.malformed(part.name, part.text)
        if part.kind == "remark" or (part.kind == "call" and not name):
            written = part.name or part.text
            return self.malformed(fix.why_unknown(written), written)
        if (part.kind == "answer" and not self.cut) or (part.kind == "call" and name == "Finish"):
            return self.ending(part.text)
        if part.kind == "call":
            return self.call(str(name), part.text)
        # For an ending only, the last bracket of the reply may close it: `Finish[The interval is [0, 1).]`
        ends = part.text.endswith("]") and (following is None or following.kind == "observation")
        if name == "Finish" and ends and not self.cut:
            return self.ending(part.text[:-1])
        return self.malformed("unclosed")

    def call(self, name: str, text: str) -> Action | Malformed:
        text = fix.unquote(text) if self.repairs else text
        return self.malformed("placeholder") if fix.is_placeholder(text, "input") else Action(name, text)

    def ending(self, text: str) -> Finish | Malformed:
        answer = fix.answer_text(text) if self.repairs else text.strip()
        if fix.is_placeholder(answer, "answer"):
            return self.malformed("placeholder")
        return self.malformed("empty_answer") if is_blank(answer) else Finish(answer)

    def rest(self, later: Iterable[Part]) -> Iterator[Action]:
        """Further complete calls, up to an observation or an ending (and 50 at most)."""
        for part in islice(later, 50):
            move = self.move(part, None) if part.kind == "call" else None
            if isinstance(move, Action):
                yield move
            elif part.kind != "thought":
                return

    def malformed(self, reason: str, detail: str = "") -> Malformed:
        if self.cut and reason in ("no_action", "prose_action", "missing_input"):
            reason = "unclosed"
        names = self.names or ()
        note = NOTES[reason].format(detail=detail.strip()[:80] or "the tool")
        close = difflib.get_close_matches(detail[:80], names, 1) if reason == "unknown_tool" else []
        note += f" Did you mean {close[0]}?" if close else ""
        example = "" if self.names == () else f"such as 'Action: {names[0] if names else 'Search'}[...]', or "
        note += (f" Write a line that begins with 'Thought:' and then one line {example}"
                 "'Action: Finish[...]' with the answer.")
        return Malformed(reason, note + (f" Tools: {', '.join(names)}." if names else ""))
