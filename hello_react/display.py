"""A finished run as a notebook shows it: its steps in colours, a table, a short form (chapter 06).

`steps(result)` and `table(result)` give objects that a notebook renders and that `print` shows as plain text.
They hold no times unless asked for, so that the same run looks the same twice. All text from outside is
escaped: no tool's output becomes markup, a link or an image. A run in progress is shown by `console`.

    >>> from hello_react import ReActAgent, ScriptedLLM, ToolExecutor
    >>> agent = ReActAgent(ScriptedLLM(["Thought: I know it.\\nAction: Finish[Paris]"]), ToolExecutor())
    >>> table(agent.run("What is the capital of France?", verbose=False))
    Step  Thought     Action         Observation
    1     I know it.  Finish[Paris]
"""

from __future__ import annotations

import html
import re
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from .events import Result, Step
from .text import clip, printable

_COLOURS = {"Thought": "#1864ab", "Action": "#9c4200", "Observation": "#5f3dc4", "Finish": "#2b7a39"}
_TROUBLE = "#b02525"
_VIEW_LIMIT = 1_000  # characters of one text in the view of the steps
_LINE_LIMIT = 160  # and in one line of the short form or of the table
_PLAIN_LIMIT = 60  # and in a column of plain text
_PRE = ("white-space: pre-wrap; word-break: normal; overflow-wrap: anywhere; margin: 2px 0; padding: 0; "
        "background: none; color: inherit")


@dataclass(frozen=True, repr=False)
class View:
    """Something to look at: `plain` in a terminal, `html` or `markdown` in a notebook ("" if it has none)."""

    plain: str
    html: str = ""
    markdown: str = ""

    def __repr__(self) -> str:
        return self.plain

    def _repr_html_(self) -> str | None:
        return self.html or None

    def _repr_markdown_(self) -> str | None:
        return self.markdown or None


def steps(result: Result, *, seconds: bool = False) -> View:
    """The steps of a run, one under the other, in colours; long texts are clipped.

    Args:
        result: what `run` returned, of either agent.
        seconds: show how long each step took.
    """
    plain = [f"Question: {_indented(result.question)}"]
    rich = [_block("Question", result.question, "#555555")]
    for step in result.steps:
        title = f"Step {step.number}" + (f" ({step.seconds:.1f} s)" if seconds else "")
        plain.append(title)
        rich.append(f'<div style="margin: 8px 0 2px 0"><b>{title}</b></div>')
        for part in _parts(result, step):
            plain.append(f"  {part.label}: {_indented(part.text)}")
            rich.append(_block(part.label, part.text, _colour(part)))
    if not result:
        plain.append(f"Ended: {_indented(result.reason)}")
        rich.append(_block("Ended", result.reason, _TROUBLE))
    return View("\n".join(plain), html="<div>\n" + "\n".join(rich) + "\n</div>")


def table(result: Result, *, seconds: bool = False) -> View:
    """The steps of a run as a table, one row a call; long texts are cut with `…`.

    Args:
        result: what `run` returned, of either agent.
        seconds: add a column with the seconds of each step.
    """
    header = ["Step", "Thought", "Action", "Observation", *(["Seconds"] if seconds else [])]
    rows, lines = [header], [f"| {' | '.join(header)} |", "|---:|---|---|---|" + "---:|" * seconds]
    for step in result.steps:
        for number, (did, seen) in enumerate(_pairs(result, step)):
            first = number == 0
            head = [str(step.number), _short(step.thought or "")] if first else ["", ""]
            tail = [f"{step.seconds:.1f}" if first else ""] if seconds else []
            pattern = {"Finish": "Finish[{}]", "Reply": "Reply: {}"}.get(did.label, "{}")
            done = _short(pattern.format(did.text))
            came = _short(seen.text) if seen else ""
            rows.append([*(_short(text, _PLAIN_LIMIT) for text in (*head, done, came)), *tail])
            cells = [head[0], _escaped(head[1]), _code(done), _code(came), *tail]
            lines.append(f"| {' | '.join(cells)} |")
    return View(_aligned(rows), markdown="\n".join(lines))


def summary(result: Result) -> str:
    """What a notebook shows of a `Result`: its answer or why there is none, and short steps, as Markdown."""
    lines = []
    if result.answer is not None:
        answer = printable(clip(result.answer, _VIEW_LIMIT)).splitlines()
        lines.append(f"**Answer:** {'<br>'.join(map(_escaped, answer))}")
    if not result:
        lines.append(f"**Ended:** {_escaped(_short(result.reason))} ({_code(result.status)})")
    for step in result.steps:
        parts = []
        for part in _parts(result, step):
            line = "" if part.label == "Finish" else _short(part.text)  # the answer stands above
            line = _escaped(line) if part.label == "Thought" else _code(line)
            parts.append(f"**{part.label}** {line}".rstrip())
        lines.append(f"Step {step.number}<br>\n" + "<br>\n".join(parts))
    return "\n\n".join(lines)


class _Part(NamedTuple):
    label: str
    text: str
    ok: bool = True


def _pairs(result: Result, step: Step) -> list[tuple[_Part, _Part | None]]:
    """What a step did and what came of it: one pair a call, or one for an ending or an unreadable reply."""
    pairs: list[tuple[_Part, _Part | None]] = [
        (_Part("Action", f"{call.tool}[{call.input}]"), _Part("Observation", seen.text, seen.ok))
        for call, seen in zip(step.calls, step.observations)  # noqa: B905
    ]
    if pairs:
        return pairs
    note = "\n".join(seen.text for seen in step.observations)
    if not note and result.answer is not None:
        return [(_Part("Finish", result.answer), None)]
    told = _Part("Note to the model", note, ok=False) if note else None
    return [(_Part("Reply", step.reply.text, ok=False), told)]


def _parts(result: Result, step: Step) -> Iterator[_Part]:
    pairs = _pairs(result, step)
    if step.thought and pairs[0][0].label != "Reply":  # the whole reply holds the thought
        yield _Part("Thought", step.thought)
    for did, seen in pairs:
        yield did
        if seen:
            yield seen


def _colour(part: _Part) -> str:
    return _COLOURS.get(part.label, _TROUBLE) if part.ok else _TROUBLE


def _block(label: str, text: str, colour: str) -> str:
    """A label on its colour, which reads on light and dark pages, and the text in the page's own colours."""
    badge = f"background-color: {colour}; color: #ffffff; padding: 0 6px; border-radius: 3px; font-size: 85%"
    text = html.escape(printable(clip(text, _VIEW_LIMIT)))
    return (f'<div style="border-left: 3px solid {colour}; padding-left: 8px; margin: 3px 0">'
            f'<b style="{badge}">{label}</b><pre style="{_PRE}">{text}</pre></div>')


def _indented(text: str) -> str:
    return printable(clip(text, _VIEW_LIMIT)).replace("\n", "\n    ")


def _short(text: str, limit: int = _LINE_LIMIT) -> str:
    """The text in one line."""
    line = " ".join(printable(text[:8 * limit]).split())
    return line if len(line) <= limit and len(text) <= 8 * limit else line[:limit - 1].rstrip() + "…"


# What could begin markup, a link or an image; line starts need no care, no text stands at one.
_MARKUP = re.compile(r"[&<>`*_\[\]!|~@]|:(?=//)|(?<=www)\.", re.IGNORECASE)


def _escaped(line: str) -> str:
    """One line of text for Markdown: signs with a meaning become entities, which can't act as markup."""
    line = _MARKUP.sub(lambda match: f"&#{ord(match[0])};", line)
    # Alone in an element, these two can't begin a formula after the page was built.
    return re.sub(r"[$\\]", lambda match: f"<span>&#{ord(match[0])};</span>", line)


def _code(line: str) -> str:
    """The same, set as code. Not between backticks, where a table would still split at `|`."""
    return f"<code>{_escaped(line)}</code>" if line else ""


def _aligned(rows: list[list[str]]) -> str:
    widths = [max(map(_width, column)) for column in zip(*rows)]  # noqa: B905
    lines = ("  ".join(cell + " " * (width - _width(cell)) for cell, width in zip(row, widths))  # noqa: B905
             for row in rows)
    return "\n".join(line.rstrip() for line in lines)


def _width(text: str) -> int:
    """Columns that the text takes in a terminal: two for each Chinese, Japanese or Korean sign."""
    return len(text) + sum(unicodedata.east_asian_width(sign) in "WF" for sign in text)
