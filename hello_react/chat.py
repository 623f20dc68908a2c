"""The chat: one conversation, until exit, quit, 退出 or the end of input (chapter 06).

A line is a question, or a command such as /help. Ctrl-C or a failure of the model ends an answer, not the
chat.

    >>> import io
    >>> from hello_react import ReActAgent, ScriptedLLM, ToolExecutor
    >>> agent = ReActAgent(ScriptedLLM(["Thought: Easy.\\nAction: Finish[2]"]), ToolExecutor())
    >>> lines, talk = iter(["What is 1 + 1?", "exit"]), Conversation()
    >>> chat(agent, read=lambda prompt: next(lines), conversation=talk, out=io.StringIO())
    0
    >>> talk.turns()
    [('What is 1 + 1?', '2')]
"""

from __future__ import annotations

import contextlib
import importlib
import os
import sys
from collections.abc import Callable, Sequence
from typing import TextIO

from .agent import ReActAgent
from .console import Printer, write
from .errors import HelloReactError
from .events import Event, drain
from .memory import Conversation
from .text import printable, sendable
from .trace import TraceWriter

EXITS = ("退出", "exit", "quit")
PROMPT = "You: "
WELCOME = "Ask a question. /help lists the commands, exit leaves."
LEAVE = f"Type exit or press {'Ctrl-Z and Enter' if os.name == 'nt' else 'Ctrl-D'} to leave."
HELP = """\
/reset        forget the conversation so far
/save FILE    save the conversation
/load FILE    go on with a saved conversation
/tools        list the tools
/trace FILE   record every event in a file; /trace alone stops that
/help         show this list
exit          leave; so do quit, 退出 and the end of input
Ctrl-C        stop an answer"""


def chat(agent: ReActAgent, *, printer: Callable[[Event], None] | None = None,
         conversation: Conversation | None = None, read: Callable[[str], str] | None = None,
         out: TextIO | None = None, err: TextIO | None = None, trace: str | None = None,
         secrets: Sequence[str] | None = None) -> int:
    """Talk with an agent until the user leaves.

    Args:
        agent: who answers.
        printer: shows the events of each answer (`console.Printer` on `out` if None).
        conversation: what was said before; each answer is added to it.
        read: asks for a line, as `input` does; None reads standard input.
        out: where the chat's own words go (standard output if None).
        err: where errors go (standard error if None).
        trace: a file to record every event in, from the start.
        secrets: keys that must not get into a trace; None for those in the settings or given to a client.

    Returns:
        The exit code, 0.

    Raises:
        TraceError: `trace` can't be written. KeyboardInterrupt: Ctrl-C where nobody sits at a terminal.
    """
    return _Chat(agent, printer, conversation, read, out or sys.stdout, err or sys.stderr, secrets).run(trace)


class _Chat:
    def __init__(self, agent: ReActAgent, printer: Callable[[Event], None] | None,
                 conversation: Conversation | None, read: Callable[[str], str] | None, out: TextIO,
                 err: TextIO, secrets: Sequence[str] | None) -> None:
        self.agent, self.out, self.err, self.secrets = agent, out, err, secrets
        self.printer = printer or Printer(out, reasons=err)
        self.conversation = Conversation() if conversation is None else conversation
        self.interactive = read is not None or (_stdin_is_open() and sys.stdin.isatty())
        self.read = read or self._read_stdin
        if read is None:
            _prepare_stdin(self.interactive)
        self.trace: TraceWriter | None = None
        self.open_trace = contextlib.ExitStack()
        self.commands = {"/reset": self._reset, "/save": self._save, "/load": self._load,
                         "/tools": self._tools, "/trace": self._trace, "/help": self._help}

    def run(self, trace: str | None) -> int:
        with self.open_trace:
            if trace:
                self._start_trace(trace)
            if self.interactive:
                self._say(WELCOME)
            while True:
                try:
                    try:
                        line = self.read(PROMPT)
                    except (EOFError, OSError):  # the end of input, or a terminal that is gone
                        if self.interactive:
                            self._say("")
                        return 0
                    text = sendable(line).strip()
                    if text.casefold().removeprefix("/") in EXITS:
                        return 0
                    if text:
                        self._take(text)
                except KeyboardInterrupt:
                    if not self.interactive:
                        raise
                    self._say(f"\n{LEAVE}")

    def _read_stdin(self, prompt: str) -> str:
        if not _stdin_is_open():
            raise EOFError
        if not self.interactive:
            prompt = ""
        elif not self.out.isatty():  # `input` would write the prompt into a file
            write(self.err, prompt)
            prompt = ""
        return input(prompt)

    def _take(self, text: str) -> None:
        word, *rest = ("/help" if text.casefold() in ("help", "?") else text).split(maxsplit=1)
        if not word.startswith("/") or "/" in word[1:]:  # a path such as /etc/hosts may begin a question
            self._answer(text)
            return
        command = self.commands.get(word.casefold())
        if command is None:
            self._complain(f"There is no command {word}. Commands: {', '.join(self.commands)}.")
            return
        try:
            command(os.path.expanduser("".join(rest).strip("\"'")))
        except HelloReactError as error:
            self._complain(str(error))

    def _answer(self, question: str) -> None:
        listeners = [self.trace, self.printer] if self.trace else [self.printer]
        try:
            drain(self.agent.stream(question, conversation=self.conversation), *listeners)
        except KeyboardInterrupt:
            if not self.interactive:
                raise
            self._say("(Stopped.)")
        except HelloReactError as error:
            self._complain(str(error))
        except Exception as error:  # a client of one's own may raise anything
            if not hasattr(error, "result"):  # it did not end the run: the printer or the trace raised it
                raise
            self._complain(f"{type(error).__name__}: {error}")

    # --- commands; each takes what stands behind its name

    def _reset(self, rest: str) -> None:
        self.conversation.clear()
        self._say("The conversation begins anew.")

    def _save(self, path: str) -> None:
        if not path:
            self._complain("Which file? /save FILE")
            return
        if self.trace and os.path.realpath(path) == os.path.realpath(self.trace.path):
            self._complain(f"{path} is being recorded: choose another name.")
            return
        kept = self.conversation.save(path)
        was = "What was there before is no conversation that this version reads"
        note = f" {was}; it is kept as {kept}." if kept else ""
        self._say(f"Saved {_turns(self.conversation)} to {path}.{note}")

    def _load(self, path: str) -> None:
        if not path:
            self._complain("Which file? /load FILE")
            return
        loaded = Conversation.load(path)
        self.conversation.clear()
        for turn in loaded:
            self.conversation.add(turn.question, turn.answer, turn.messages)
        note = f" Lines that could not be read: {loaded.skipped_lines}." if loaded.skipped_lines else ""
        self._say(f"Loaded {_turns(loaded)} from {path}.{note}")

    def _tools(self, rest: str) -> None:
        self._say(self.agent.tools.describe() or "There are no tools.")

    def _trace(self, path: str) -> None:
        if path:
            self._start_trace(path)
        elif self.trace is None:
            self._complain("Nothing is being recorded. /trace FILE starts that.")
        else:
            self.open_trace.close()
            if self.trace.error:
                self._complain(str(self.trace.error))
            else:
                self._say(f"Recorded in {self.trace.path}.")
            self.trace = None

    def _help(self, rest: str) -> None:
        self._say(HELP)

    def _start_trace(self, path: str) -> None:
        trace = TraceWriter(path, secrets=self.secrets)
        self.open_trace.close()
        self.trace = self.open_trace.enter_context(trace)
        self._say(f"Recording in {trace.path}.")

    # --- output

    def _say(self, text: str) -> None:
        write(self.out, printable(text) + "\n")

    def _complain(self, text: str) -> None:
        write(self.err, printable(text) + "\n")


def _stdin_is_open() -> bool:
    return sys.stdin is not None and not sys.stdin.closed


def _prepare_stdin(interactive: bool) -> None:
    if hasattr(sys.stdin, "reconfigure"):
        with contextlib.suppress(ValueError):  # closed, or lines were read from it before
            sys.stdin.reconfigure(errors="replace")
    if interactive:
        with contextlib.suppress(ImportError):  # arrow keys and the session's history; not on Windows
            importlib.import_module("readline")


def _turns(conversation: Conversation) -> str:
    return f"{len(conversation)} turn{'s' if len(conversation) != 1 else ''}"
