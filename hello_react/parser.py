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
from .text import argument_end, outside_fences

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
_CALL = re.compile(r"\s{0,20}([^\[\]\n:]{1,120})\n?\[")


def plain_parts(text: str) -> Iterator[Part]:
    """The labelled parts of a reply that keeps to the format. Labels inside a code fence are text."""
    labels = list(outside_fences(text, _LABEL.finditer(text)))
    stops = [*(label.start() for label in labels), len(text)]
    if text[:stops[0]].strip():
        yield Part("preamble", text[:stops[0]].strip())
    read_to = 0
    for label, end in zip(labels, stops[1:]):
        if label.start() < read_to:
            continue  # this label stands inside an argument
        call = _CALL.match(text, label.end()) if label[1] == "Action" else None
        if call is None:
            yield Part("remark" if label[1] == "Action" else label[1].lower(), text[label.end():end].strip())
            continue
        close = argument_end(text, call.end() - 1, stops)
        read_to = end if close is None else close
        yield Part("unclosed" if close is None else "call", text[call.end():read_to].strip(), call[1].strip())


class _Decision:
    """What the parts of a reply mean: the first call or ending counts, and nothing that rests on an invention."""

    def __init__(self, tools: Iterable[str] | None, cut: bool, repairs: bool) -> None:
        self.names = None if tools is None else tuple(tools)
        self.cut, self.repairs = cut, repairs

    def turn(self, parts: Iterator[Part]) -> Turn:
        thoughts: list[str] = []
        preamble: str | None = None
        seen = invented = False
        part = next(parts, None)
        while part is not None:
            following = next(parts, None)
            if part.kind == "thought":
                thoughts.append(part.text)
            elif part.kind == "preamble":
                preamble = part.text
            elif part.kind == "observation":
                invented, thoughts, preamble = invented or seen, [], None
            elif not self.means_nothing(part, following):
                move = self.move(part, following)
                if invented and isinstance(move, Finish):
                    move = self.malformed("conflict")
                rest = self.rest(chain([following] if following else [], parts)) if isinstance(move, Action) else ()
                return Turn("\n".join(filter(None, thoughts)) or preamble, move, tuple(rest))
            part, seen = following, True
        thought = "\n".join(filter(None, thoughts)) or None
        return Turn(thought, self.malformed("no_action" if seen else "empty_reply"))

    def means_nothing(self, part: Part, following: Part | None) -> bool:
        """`Action: None`, or a remark where the call should stand, with a labelled answer below it."""
        if part.kind == "remark" and following and following.kind == "answer":
            return True
        return part.kind in ("remark", "call") and not part.name == "Finish" and fix.means_no_action(part.name or part.text)

    def move(self, part: Part, following: Part | None) -> Action | Finish | Malformed:
        name = self.known(part.name)
        if part.kind == "answer" and not self.cut:
            return self.ending(part.text)
        if part.kind == "unclosed" and name == "Finish" and not self.cut and part.text.endswith("]"):
            # For an ending only, the last bracket of the reply may close it: `Finish[The interval is [0, 1).]`
            if following is None or following.kind == "observation":
                return self.ending(part.text[:-1])
        if part.kind in ("answer", "unclosed"):
            return self.malformed("unclosed", part.name)
        if part.kind == "problem":
            return self.malformed(part.name, part.text)
        if part.kind == "remark":
            return self.malformed("missing_input", part.name) if part.name else self.unknown(part.text)
        if name == "Finish":
            return self.ending(part.text)
        if name is None:
            return self.unknown(part.name)
        call = self.call(name, part)
        wrong = self.repairs and fix.is_placeholder(call.input, "input")
        return self.malformed("placeholder", name) if wrong else call

    def call(self, name: str, part: Part) -> Action:
        return Action(name, fix.unquote(part.text) if self.repairs else part.text)

    def rest(self, later: Iterable[Part]) -> Iterator[Action]:
        """Further complete calls, up to an observation or an ending (and 50 at most)."""
        for part in islice(later, 50):
            name = self.known(part.name) if part.kind == "call" else None
            if name and name != "Finish":
                yield self.call(name, part)
            elif part.kind != "thought":
                return

    def ending(self, text: str) -> Finish | Malformed:
        answer = fix.answer_text(text) if self.repairs else text.strip()
        if not answer:
            return self.malformed("empty_answer")
        wrong = self.repairs and fix.is_placeholder(answer, "answer")
        return self.malformed("placeholder", "Finish") if wrong else Finish(answer)

    def known(self, name: str) -> str | None:
        """The registered name, "Finish", or None: exact, else the one name equal but for case, blanks, `_` and `-`."""
        if name == "Finish" or self.names is not None and name in self.names:
            return name
        if not self.repairs:
            return name if self.names is None and name else None
        if fix.is_finish(name):
            return "Finish"
        if self.names is None:
            usable = name and not fix.is_sentence(name, ()) and not fix.is_placeholder(name, "name")
            return name if usable else None
        same = [known for known in self.names if fix.squeeze(known) == fix.squeeze(name)]
        return same[0] if len(same) == 1 else None

    # --- what the model is told

    def unknown(self, name: str) -> Malformed:
        """The Action line holds no call of a known tool."""
        if not fix.squeeze(name):
            return self.malformed("no_action")
        if self.repairs and fix.is_placeholder(name, "name"):
            return self.malformed("placeholder", name)
        return self.malformed("prose_action" if fix.is_sentence(name, self.names) else "unknown_tool", name)

    def malformed(self, reason: str, detail: str = "") -> Malformed:
        if self.cut and reason in ("no_action", "prose_action", "missing_input"):
            reason = "unclosed"
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
