"""A run as JSON lines: written while it runs, read back, and replayed without model or tools (chapter 06).

    >>> import tempfile
    >>> from hello_react import ReActAgent, ScriptedLLM, ToolExecutor
    >>> agent = ReActAgent(ScriptedLLM(["Thought: I know it.\\nAction: Finish[Paris]"]), ToolExecutor())
    >>> with tempfile.TemporaryDirectory() as folder, TraceWriter(folder) as trace:
    ...     result = agent.run("What is the capital of France?", on_event=trace)
    ...     events = list(replay(trace.path))
    >>> events[-1].result == result
    True

A line is {"event": "Action", "step": 2, "time": ..., "tool": ..., "input": ...}; defaults are left out.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import re
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from datetime import datetime, timezone
from functools import lru_cache, partial
from itertools import takewhile
from pathlib import Path
from typing import IO, Any, cast, get_args

from . import __version__
from .agent import ReActAgent, Run
from .errors import SettingsError, ToolError, TraceError
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
from .guards import Deadline, History
from .llm import ScriptedLLM
from .parser import Action, Finish, Malformed, Turn
from .settings import NAMES, Settings
from .text import KNOWN_KEYS, open_file, printable, redact, sendable
from .tool_calling import ToolCallingAgent
from .tools import ToolExecutor

FORMAT, VERSION = "hello_react trace", 1
"""What the first line of a file names. Later versions that only add events or fields keep the number."""

_KEY_MARK = "[key]"  # what `redact` writes
_INSIDE_KEY = re.compile(r"[A-Za-z0-9_+/=.%~-]+")
_KINDS: dict[Any, Any] = {kind.__name__: kind for kind in get_args(Event)}
_log = logging.getLogger(__name__)


# --- writing


class TraceWriter:
    """A listener that writes each event as one line, at once: one run, or several one after the other.

    Every token is a line; one that may be a piece of a key waits for the next, so that no key gets through in
    pieces. Of a prompt only what it adds to the last one is written, so that a trace grows as its run does.

    If a line can't be written (the disk is full), the run goes on: the writer logs a warning and stops.

    Args:
        path: a file, which is added to if it is a trace already; or a folder, which gets a new file of a name
            that no other writer has, also one that begins in the same second.
        secrets: keys that must not be written; None for those in the settings or given to a client.

    Attributes:
        path: the file.
        error: why writing ended early, or None.

    Raises:
        TraceError: the file can't be written, or is something else than a trace.
    """

    def __init__(self, path: str | Path = ".", *, secrets: Sequence[str] | None = None) -> None:
        self._known = known_secrets(secrets)
        self._secrets = self._known()
        self.error: TraceError | None = None
        self._step: dict[str, int] = {}
        self._prompt: list[Message] = []
        self._held: list[dict[str, Any]] = []
        self._shown, self._thinking = "", False
        try:
            if str(path).endswith(("/", os.sep)):  # a folder is meant, also where there is none yet
                Path(path).mkdir(exist_ok=True)
            self._file = _open(Path(path))
        except (OSError, ValueError) as error:  # ValueError: a NUL in the path
            shown = printable(str(path))
            raise TraceError(f"The trace can't be written to {shown}: {_why(error)}.") from None
        self.path = Path(self._file.name)

    def __call__(self, event: Event) -> None:
        """Write an event."""
        self._unless_failed(self._record, event)

    def close(self) -> None:
        """Write what is held back, and close the file."""
        self._unless_failed(self._release)
        with contextlib.suppress(OSError):  # closing tries to write what could not be written before
            self._file.close()

    def __enter__(self) -> TraceWriter:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _unless_failed(self, work: Callable[..., None], *arguments: Any) -> None:
        try:
            if not self.error:
                work(*arguments)
        except (OSError, ValueError) as error:  # ValueError: the file is closed
            self.error = TraceError(f"The trace {self.path} ends early: {_why(error)}.")
            _log.warning("%s", self.error)

    def _record(self, event: Event) -> None:
        if isinstance(event, Token):
            self._hold(event)
            return
        self._release()
        self._shown, self._secrets = "", self._known()
        if isinstance(event, StepStarted):
            self._step = {"step": event.number}
        elif isinstance(event, (RunStarted, RunEnded)):
            self._step, self._prompt = {}, []
        line = self._line(event, lambda text: redact(_safe(text), self._secrets))
        if isinstance(event, StepStarted):
            messages = line["messages"]
            line.update(_added(messages, self._prompt))
            self._prompt = messages
        self._write(line)

    def _line(self, event: Event, clean: Callable[[str], str]) -> dict[str, Any]:
        time = datetime.now(timezone.utc).isoformat(timespec="milliseconds")
        return {"event": type(event).__name__, **self._step, "time": time, **plain(event, clean)}

    def _write(self, line: dict[str, Any]) -> None:
        self._file.write(_encoded(line))
        self._file.flush()

    # --- tokens: a key that comes in pieces is still found

    def _hold(self, token: Token) -> None:
        if token.thinking != self._thinking:
            self._release()
            self._shown, self._thinking = "", token.thinking
        goes_on = bool(self._held) and _INSIDE_KEY.fullmatch(token.text)
        self._held.append(self._line(token, _safe))
        if not goes_on and not self._may_end_in_key(self._shown + _joined(self._held)):
            self._release()

    def _may_end_in_key(self, text: str) -> bool:
        if re.search(r"://[^\s/@]{0,200}\Z", text):  # a login, if an @ follows
            return True
        more = "0" * 8  # what follows belongs to a key if `redact` takes it along
        if redact(text + more, self._secrets) != redact(text, self._secrets) + more:
            return True
        return any(text.endswith(secret[:size]) for secret in self._secrets for size in range(1, len(secret)))

    def _release(self) -> None:
        held, self._held = self._held, []
        text = self._shown + _joined(held)
        clean = redact(text, self._secrets)
        if clean != text:
            held = [{**held[0], "text": clean[len(self._shown):]}]
        self._shown = clean[-200:]
        for line in held:
            self._write(line)


def _safe(text: str) -> str:
    return sendable(text.replace("\0", "\ufffd"))  # taken out, it could make a label of what was none


def _joined(held: list[dict[str, Any]]) -> str:
    return "".join(line["text"] for line in held)


def known_secrets(given: Sequence[str] | None) -> Callable[[], tuple[str, ...]]:
    """What tells the keys that no trace, log or span may hold: those `given`, or for None those in the
    settings and all that a client was given until then."""
    if given is not None:
        return partial(tuple, given)
    try:
        Settings.load()  # puts what it finds into KNOWN_KEYS
    except SettingsError:  # a .env file that can't be read; keys in the environment are secret all the same
        KNOWN_KEYS.update(os.environ.get(name, "").strip() for name in NAMES if name.endswith("_KEY"))
    return partial(tuple, KNOWN_KEYS)


def _open(path: Path) -> IO[bytes]:
    """The file to write, begun with the header or, where a trace is added to, at a new line."""
    start = _encoded({"format": FORMAT, "version": VERSION, "package": __version__})
    if path.is_file() and path.stat().st_size:
        with path.open("rb") as before:
            _check_header(before.readline(1_000), path)
            before.seek(-1, os.SEEK_END)
            start = b"" if before.read(1) == b"\n" else b"\n"
    file = _open_new(path) if path.is_dir() else path.open("ab")
    try:
        file.write(start)
        file.flush()
    except OSError:
        with contextlib.suppress(OSError):  # as in `TraceWriter.close`
            file.close()
        raise
    return file


def _open_new(folder: Path) -> IO[bytes]:
    start, number = f"{datetime.now():run-%Y%m%d-%H%M%S}", 0
    while True:
        number += 1
        with contextlib.suppress(FileExistsError):
            return (folder / f"{start}-{number}.jsonl").open("xb")


def _why(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error)


def _encoded(line: dict[str, Any]) -> bytes:
    return json.dumps(line, ensure_ascii=False).encode() + b"\n"


def plain(value: Any, clean: Callable[[str], str]) -> Any:
    """`value` as JSON has it, each text made clean; of a dataclass all fields but defaults.

    `Observation.value` is left out: it may be anything.
    """
    if is_dataclass(value):
        told = {field: getattr(value, field.name) for field in fields(value) if field.name != "value"}
        return {field.name: plain(item, clean) for field, item in told.items() if item != field.default}
    if isinstance(value, dict):
        return {clean(str(name)): plain(item, clean) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item, clean) for item in value]
    return value if value is None or isinstance(value, (bool, int, float)) else clean(str(value))


def _added(messages: list[Message], last: list[Message]) -> dict[str, Any]:
    """What `messages` add to the `last` ones. "kept": how many of those, and signs of the next one's text."""
    whole, signs = _shared(messages, last), 0
    rest = messages[whole:]
    if rest and whole < len(last):
        old, new = last[whole].get("content"), rest[0].get("content")
        if isinstance(old, str) and isinstance(new, str):
            signs = _shared(old, new)
            rest[0] = {**rest[0], "content": new[signs:]}
    return {"kept": [whole, signs], "messages": rest} if whole or signs else {}


def _shared(one: Sequence[Any], other: Sequence[Any]) -> int:
    """How many items both begin with."""
    pairs = zip(one, other, strict=False)
    return next((place for place, (a, b) in enumerate(pairs) if a != b), min(len(one), len(other)))


# --- reading


@dataclass(frozen=True)
class Trace:
    """What a trace file holds.

    Attributes:
        runs: the events of each run, in order. An event of a kind unknown here is the line's raw dictionary.
        bad_lines: lines that could not be read, such as a last one that was cut.
    """

    runs: tuple[tuple[Event | dict[str, Any], ...], ...]
    bad_lines: int = 0

    @property
    def unknown_events(self) -> int:
        """How many events are of a kind unknown here."""
        return sum(isinstance(event, dict) for run in self.runs for event in run)


def read(path: str | Path) -> Trace:
    """Read a trace file; of a damaged one, its good lines.

    Raises:
        TraceError: it can't be read, is empty, no trace, or of another version.
    """
    try:
        with open_file(path) as file:
            data = file.read()
    except (OSError, ValueError) as error:
        raise TraceError(f"The trace {printable(str(path))} can't be read: {_why(error)}.") from None
    if not data.strip():
        raise TraceError(f"{path} is empty: no run was recorded in it.")
    header, *lines = data.split(b"\n")
    _check_header(header, path)
    runs: list[list[Any]] = []
    prompt: list[Message] = []
    bad = 0
    for line in filter(bytes.strip, lines):
        try:
            entry = json.loads(line)
            if "format" in entry:  # two writers began the file at the same moment
                continue
            kind = _KINDS.get(entry["event"])
            if kind is StepStarted:
                entry["messages"] = prompt = _whole_prompt(entry, prompt)
            event = _reader(kind)(entry) if kind else entry
        except (ValueError, TypeError, LookupError, AttributeError, RecursionError):
            bad += 1
            continue
        if kind is RunStarted or not runs or (kind and isinstance(runs[-1][-1], RunEnded)):
            runs.append([])
        runs[-1].append(event)
        if kind in (RunStarted, RunEnded):
            prompt = []
    return Trace(tuple(map(tuple, runs)), bad)


def _check_header(line: bytes, path: str | Path) -> None:
    try:
        header = json.loads(line)
        ours, version = header["format"] == FORMAT, header["version"]
    except (ValueError, TypeError, LookupError, RecursionError):
        ours = False
    if not ours:
        raise TraceError(f"{path} is not a trace of hello_react.")
    if version != VERSION:
        raise TraceError(f"{path} is of trace format {version}; this version of hello_react knows {VERSION}.")


def _whole_prompt(entry: dict[str, Any], last: list[Message]) -> list[Message]:
    """The messages of a step, from what it added to the `last` ones."""
    whole, signs = entry.get("kept", (0, 0))
    messages = [*last[:whole], *entry["messages"]]
    if signs:
        kept = last[whole]["content"][:signs]
        messages[whole] = {**messages[whole], "content": kept + messages[whole]["content"]}
    if whole > len(last) or (signs and len(kept) < signs):
        raise ValueError("the line with the last prompt is missing")
    return messages


@lru_cache
def _reader(kind: Any) -> Callable[[Any], Any]:
    """What turns JSON into an event of this kind; it raises ValueError where that does not fit."""
    from pydantic import TypeAdapter

    return TypeAdapter(kind).validate_python


# --- replaying


def replay(path: str | Path, run: int = -1) -> Generator[Event, None, None]:
    """Run the loop again on the replies and observations of a recorded run; the same events come, times too.

    No model is asked and no tool is run. A run that was interrupted, failed or ran out of time is replayed up
    to there, then its `RunEnded` comes, and nothing is raised. Where a recording breaks off (the program was
    killed), a `RunEnded` that says so is added.

    Args:
        path: the trace file.
        run: which of its runs, from 0; negative numbers count from the last.

    Raises:
        TraceError: at once if the file can't be read or has no such run; later where the loop of this version
            does something else than the recorded one did.
    """
    trace = read(path)
    try:
        recorded = [event for event in trace.runs[run] if not isinstance(event, dict)]
    except IndexError:
        raise TraceError(f"{path} holds {len(trace.runs)} runs; there is no run {run}.") from None
    damage = f" ({trace.bad_lines} lines of the file can't be read)" if trace.bad_lines else ""
    if not recorded or not isinstance(recorded[0], RunStarted):
        raise TraceError(f"{path} lacks the beginning of this run{damage}.")
    try:
        agent = (_ReplayingNative if _is_native(recorded) else _Replaying)(recorded)
    except (ValueError, ToolError) as error:
        raise TraceError(f"{path} can't be replayed: {error}") from None
    return agent.replay(recorded[0].question, damage)


class _Replaying(ReActAgent):
    """The same loop; all that came from outside comes from the recording, whose next event is `ahead`."""

    def __init__(self, events: Sequence[Event]) -> None:
        started, ended = events[0], events[-1]
        assert isinstance(started, RunStarted)
        self._events, self._position = events, 0
        tools = ToolExecutor()
        for name in started.tools:
            tools.register_tool(name, "Stands in for the recorded tool.", lambda text: text)
        last_step = max((event.number for event in events if isinstance(event, StepStarted)), default=0)
        max_malformed = len(events)
        if isinstance(ended, RunEnded) and ended.result.status == "malformed":
            moves = [event for event in reversed(events) if isinstance(event, (Action, Finish, Malformed))]
            max_malformed = len(list(takewhile(lambda move: isinstance(move, Malformed), moves)))
        super().__init__(ScriptedLLM(()), tools, started.max_steps, max_malformed=max_malformed,
                         best_effort=last_step > started.max_steps)

    def ahead(self, further: int = 0) -> Event | None:
        """The recorded event that comes next, or one further on; None past the end."""
        place = self._position + further
        return self._events[place] if place < len(self._events) else None

    def replay(self, question: str, damage: str) -> Generator[Event, None, None]:
        """The events; `damage` is added to what is said where the recording does not suffice."""
        run = Run(question, self.tools, _RecordedHistory(self), Deadline(None))
        number, ends = 1, ""
        with contextlib.closing(self._run(run)) as loop:
            while recorded := self.ahead():
                if isinstance(recorded, StepStarted):
                    number = recorded.number
                elif isinstance(recorded, RunEnded):
                    ends = recorded.result.status
                if ends not in ("timed_out", "interrupted", "failed"):
                    event = next(loop)
                    if not _same(event, recorded):
                        raise TraceError(f"The recording and this version part at step {number}: recorded is "
                                         f"{_brief(recorded)}, now comes {_brief(event)}{damage}.")
                self._position += 1
                yield recorded
                if ends:
                    return
            next(loop)  # lets the loop add the last step, if that was whole
        reason = f"the recording breaks off in step {number}{damage}"
        steps = tuple(replace(step, seconds=0.0) for step in run.steps)
        usage = Usage.total(step.usage for step in steps)
        yield RunEnded(Result(question, None, "interrupted", reason, steps, 0.0, usage, run.last_text))

    def prepare(self, run: Run) -> list[Message]:
        return []  # what was sent is in the recording

    def ask(self, run: Run, messages: list[Message]) -> Generator[Event, None, Reply]:
        while isinstance(event := self.ahead(), (StepStarted, Token, Notice)):
            yield event  # the replay moves on, and `ahead` with it
        if not isinstance(event, Reply):
            raise TraceError("no reply was recorded")
        yield event
        run.last_text = event.text
        if isinstance(notice := self.ahead(), Notice):
            yield notice
        return event

    def read(self, reply: Reply, run: Run) -> Turn:
        """Read the reply again. Where that can't be done (a key was cut out, or a native agent read a call in
        the text by its tool's parameters), what was read then is taken.
        """
        turn = super().read(reply, run)
        in_text = isinstance(turn.move, Action) and turn.move.id and not reply.tool_calls
        return self._recorded_turn(turn) if in_text or _KEY_MARK in repr(reply) else turn

    def _recorded_turn(self, turn: Turn) -> Turn:
        thought = event.text if isinstance(event := self.ahead(), Thought) else None
        coming = self._events[self._position + (thought is not None):]
        moves = list(takewhile(lambda event: isinstance(event, (Action, Finish, Malformed)), coming))
        return Turn(thought, cast(Any, moves[0]), cast(Any, tuple(moves[1:])) or turn.rest) if moves else turn

    def _act(self, run: Run, calls: Sequence[Action], turn: Turn) -> tuple[Observation, ...]:
        seen = [event for place in range(len(calls)) if isinstance(event := self.ahead(place), Observation)]
        if len(seen) < len(calls):
            raise TraceError("no observation was recorded")
        ended = self.ahead(len(calls))
        if isinstance(ended, RunEnded) and ended.result.status == "repeating":
            run.most_repeats = 3
        return tuple(seen)

    def _objections(self, answer: str) -> tuple[Observation, ...]:
        event = self.ahead()
        return (event,) if isinstance(event, Observation) else ()


class _RecordedHistory(History[Any]):
    """Says that steps were dropped where the recorded one did."""

    def __init__(self, agent: _Replaying) -> None:
        super().__init__(1, agent.entry_text, agent.cut_entry)
        self.agent = agent

    def add(self, entry: Any) -> int:
        return isinstance(self.agent.ahead(), Notice)


class _ReplayingNative(_Replaying, ToolCallingAgent):
    """The same for native tool calls."""


def _is_native(events: Sequence[Event]) -> bool:
    """Which kind of agent was recorded. Native calls have ids; if none was made, a system message tells."""
    ids = [event.id for event in events if isinstance(event, Action)]
    prompts = [event.messages for event in events if isinstance(event, StepStarted)]
    roles = [message.get("role") for messages in prompts for message in messages]
    return any(ids) if ids else "system" in roles


def _same(event: Event, recorded: Event) -> bool:
    """Whether both say the same, but for times; what held a key can't be compared any more."""
    if _KEY_MARK in repr(recorded):
        return type(event) is type(recorded)
    return _timeless(event) == _timeless(recorded)


def _timeless(event: Event) -> Event:
    if not isinstance(event, RunEnded):
        return event
    steps = tuple(replace(step, seconds=0.0) for step in event.result.steps)
    return RunEnded(replace(event.result, steps=steps, seconds=0.0))


def _brief(event: Event) -> str:
    text = f"RunEnded: {event.result.reason}" if isinstance(event, RunEnded) else repr(event)
    return text if len(text) <= 150 else f"{text[:150]}..."
