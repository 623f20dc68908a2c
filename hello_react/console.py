"""A run as a person reads it in a terminal: one listener of the events (chapter 06 reads what it shows).

The thought appears as it streams; from the action on, the reply is held back until it is parsed, so that what
is shown as an action or an answer is what the agent took it for. Each text is printed once. Colours only on a
terminal that wants them (https://no-color.org); control signs in text from outside are made visible instead
of obeyed.

    >>> from hello_react.events import Thought
    >>> Printer(sys.stdout)(Thought("I need a number."))
    Thought: I need a number.
"""

from __future__ import annotations

import os
import shutil
import sys
import textwrap
import time
from collections.abc import Mapping
from typing import TextIO

from .events import (
    Event,
    Message,
    Notice,
    Observation,
    Reply,
    Result,
    RunEnded,
    RunStarted,
    StepStarted,
    Thought,
    Token,
    Usage,
)
from .parser import Action, Finish, Malformed
from .repairs import LABEL, label_kind
from .text import printable

_COLOURS = {"dim": "2", "bold": "1", "thought": "36", "action": "33", "observation": "35", "answer": "1;32",
            "warning": "31"}
_UNREADABLE = {
    "conflict": "more than one step, an Observation of its own, or a call that no step is left for",
    "placeholder": "a copied placeholder",
    "prose_action": "no call on the Action line",
    "unclosed": "it broke off, or a bracket is not closed",
}
"""Why a reply can't be read, for a person, where the reason's own name does not say it."""
_UNDECIDED = 24  # signs of a line after which it can't become a label any more


def wants_colour(file: TextIO) -> bool:
    """Whether colour codes belong into `file`: a terminal, NO_COLOR not set, TERM not dumb."""
    return bool(file.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb")


def write(file: TextIO, text: str) -> None:
    """Write `text` now; what the file's encoding lacks (a GBK console) becomes a question mark."""
    try:
        file.write(text)
    except UnicodeEncodeError:
        encoding = file.encoding or "ascii"
        file.write(text.encode(encoding, "replace").decode(encoding))
    file.flush()


def write_line(file: TextIO, text: str) -> None:
    """Write `text` and a line end now; in a terminal, lines that are too long break between words."""
    if file.isatty():
        width = shutil.get_terminal_size().columns
        text = "\n".join(textwrap.fill(line, width, break_long_words=False, break_on_hyphens=False)
                         for line in text.split("\n"))
    write(file, text + "\n")


class Printer:
    """Prints the events of runs.

    Args:
        file: where to (standard output if None).
        colour: True or False; None decides by the file.
        show_prompt: print each prompt as it is sent; after the first one, what was added.
        show_raw: print each reply as it came, once it is whole, and then what was read in it.
        reasons: where the reason of a run without an answer goes (`file` if None).
        seconds: what each step of a recorded run took, by its number, in place of the time that passes now.
    """

    def __init__(self, file: TextIO | None = None, *, colour: bool | None = None, show_prompt: bool = False,
                 show_raw: bool = False, reasons: TextIO | None = None,
                 seconds: Mapping[int, float] | None = None) -> None:
        self.file = file or sys.stdout
        self.reasons = reasons or self.file
        self.colour = wants_colour(self.file) if colour is None else colour
        if self.colour and os.name == "nt":
            os.system("")  # switches on the reading of colour codes in older Windows consoles
        self.show_prompt, self.show_raw, self.seconds = show_prompt, show_raw, seconds
        self._prompt, self._max_steps = "", 0
        self._finish: Finish | None = None
        self._new_step(0)

    def _new_step(self, number: int) -> None:
        self._number, self._began, self._usage = number, time.perf_counter(), Usage()
        self._streamed = self._mid_line = False
        self._forget()

    def _forget(self) -> None:
        """Nothing of this step's reply has arrived. Pieces are kept in lists: there may be many thousand."""
        self._line, self._held = "", list[str]()
        self._shown, self._thinking = list[str](), list[str]()

    # --- events

    def __call__(self, event: Event) -> None:
        if isinstance(event, RunStarted):
            self._max_steps = event.max_steps
        elif isinstance(event, StepStarted):
            self._end_step()
            self._new_step(event.number)
            self._say(f"Step {event.number}", "bold")
            if self.show_prompt:
                self._show_prompt(event.messages)
        elif isinstance(event, Token):
            self._token(event)
        elif isinstance(event, Notice):
            self._break_line()
            if event.restart:
                self._streamed = False
                self._forget()
            self._say(f"! {event.text}", "warning")
        elif isinstance(event, Reply):
            self._flush()
            self._usage = event.usage
            if self.show_raw:
                calls = [f"[call {call.id}] {call.name} {call.arguments}" for call in event.tool_calls]
                raw = "\n".join([*filter(None, [event.text]), *calls])
                self._say(f"--- the reply as it came ---\n{raw}\n---", "dim")
        elif isinstance(event, Thought):
            if not self._streamed and event.text != "".join(self._thinking).strip():
                self._labelled("Thought", event.text, "thought")
        elif isinstance(event, Action):
            self._labelled("Action", f"{event.tool}[{event.input}]", "action")
        elif isinstance(event, Finish):
            self._finish = event
        elif isinstance(event, Malformed):
            held = "".join(self._held).strip()
            if held:
                self._say(held, "dim")
            why = _UNREADABLE.get(event.reason, event.reason.replace("_", " "))
            self._say(f"(This reply can't be read: {why}.)", "warning")
        elif isinstance(event, Observation):
            if self._finish is not None and not self._has_streamed(self._finish.answer):
                self._labelled("Action", f"Finish[{self._finish.answer}]", "action")
            self._finish = None
            self._labelled("Observation" if event.error != "malformed" else "Note to the model", event.text,
                           "observation")
        elif isinstance(event, RunEnded):
            self._end_run(event.result)

    def _end_step(self) -> None:
        if self._number:
            self._break_line()
            took = (time.perf_counter() - self._began if self.seconds is None
                    else self.seconds.get(self._number))
            shown = "" if took is None else f", {took:.1f} s"
            self._say(f"  [{_tokens(self._usage)}{shown}]", "dim")
            self._number = 0

    def _end_run(self, result: Result) -> None:
        self._mid_line = self._mid_line or result.status == "interrupted"  # the terminal shows ^C
        self._break_line()
        self._prompt = ""
        if result.answer is not None and not self._has_streamed(result.answer):
            self._labelled("Answer", result.answer, "answer")
        self._end_step()
        self._finish = None
        count = len(result.steps)
        if result.status != "failed" and count:
            steps = f"{count} step{'s' if count != 1 else ''}"
            self._say(f"({steps}, {_tokens(result.usage)}, {result.seconds:.1f} s)", "dim")
        if result.status not in ("finished", "failed", "interrupted"):
            last_call = result.status == "max_steps" and count > self._max_steps > 0
            more = ", nor when asked for the best one so far" if last_call else ""
            write(self.reasons, printable(f"[{result.reason}{more}]") + "\n")

    def _has_streamed(self, answer: str) -> bool:
        """Whether the answer was shown as it came (without its blank lines), the rest of it now."""
        shown, held = "".join(self._shown), "".join(self._held)
        if not shown or answer.split() != (shown + held).split():
            return False
        if held:
            self._say(held.strip(), "thought")  # held back because it might have become an action
        return True

    # --- text as it streams

    def _token(self, token: Token) -> None:
        if token.thinking:
            self._thinking.append(token.text)
            self._put(token.text, "dim")
            return
        if self.show_raw:
            return
        if not self._streamed:
            self._break_line()  # after thinking
        if self._held:
            self._held.append(token.text)
            return
        self._line += token.text
        while "\n" in self._line and not self._held:
            line, self._line = self._line.split("\n", 1)
            self._show_line(line + "\n")
        if not self._held and len(self._line) >= _UNDECIDED:
            self._show_line(self._line)
            if not self._held:
                self._line = ""

    def _show_line(self, line: str) -> None:
        """Show a line, or the first part of one that can be told; hold all from an action or answer on."""
        label = LABEL.match(line) if not self._mid_line else None
        if label and label_kind(label) not in ("thought", "question"):
            self._held = [line, "" if self._line is line else self._line]
            self._line = ""
        elif line.strip() or self._mid_line:
            self._put(line, "thought")
            self._streamed = True
            self._shown.append(line)

    def _flush(self) -> None:
        if self._line and not self._held:
            self._show_line(self._line)
        self._line = ""
        self._break_line()

    # --- output

    def _put(self, text: str, style: str) -> None:
        write(self.file, self._styled(printable(text), style))
        self._mid_line = not text.endswith("\n")

    def _break_line(self) -> None:
        if self._mid_line:
            write(self.file, "\n")
            self._mid_line = False

    def _say(self, text: str, style: str) -> None:
        self._break_line()
        write(self.file, self._styled(printable(text), style) + "\n")

    def _labelled(self, label: str, text: str, style: str) -> None:
        self._break_line()
        text = printable(text)
        if label != "Answer":  # lines of a tool's output can't pass for lines of this printer
            text = text.replace("\n", "\n  ")
        write(self.file, f"{self._styled(f'{label}:', style)} {text}\n")

    def _styled(self, text: str, style: str) -> str:
        return f"\x1b[{_COLOURS[style]}m{text}\x1b[0m" if self.colour and style and text else text

    def _show_prompt(self, messages: tuple[Message, ...]) -> None:
        prompt = "\n".join(_as_text(message) for message in messages)
        if self._prompt and prompt.startswith(self._prompt):
            self._say(f"--- added to the prompt ---\n{prompt[len(self._prompt):].strip()}\n---", "dim")
        else:
            self._say(f"--- the prompt ---\n{prompt.strip()}\n---", "dim")
        self._prompt = prompt


def _as_text(message: Message) -> str:
    calls = [f"[call] {call['function']['name']} {call['function']['arguments']}"
             for call in message.get("tool_calls") or ()]
    return "\n".join([f"({message['role']})", *filter(None, [message.get("content")]), *calls])


def _tokens(usage: Usage) -> str:
    if usage.prompt_tokens is None or usage.completion_tokens is None:
        return "tokens unknown"
    return f"{usage.prompt_tokens:,} + {usage.completion_tokens:,} tokens"
