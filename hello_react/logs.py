"""A run as log records: a listener of its events, JSON lines, and how to switch them on (chapter 06).

    >>> from hello_react import ReActAgent, ScriptedLLM, ToolExecutor
    >>> agent = ReActAgent(ScriptedLLM(["Action: Finish[4]"]), ToolExecutor())
    >>> result = agent.run("What is 2 + 2?", on_event=LogListener())  # quiet until logging is configured

The text of prompts, replies, tools and answers is left out unless `record_text` asks for it, and no key
gets through. Why a run failed is told in the error's words: a server or a function of yours may quote a
text there. A listener follows one run at a time: runs side by side, or one inside another, get one each.
"""

from __future__ import annotations

import json as jsons
import logging
import math
import time
import uuid
from collections.abc import Callable, Sequence
from datetime import datetime, timezone
from typing import Any, TextIO

from . import events
from .parser import Action, Malformed
from .text import printable, readable, redact, sendable
from .trace import known_secrets

logging.getLogger("hello_react").addHandler(logging.NullHandler())
_log = logging.getLogger("hello_react.run")


def cleaner(secrets: Sequence[str] | None) -> Callable[[str], str]:
    """What makes a text fit to be recorded; `secrets` are keys, None stands for all that are known then."""
    known = known_secrets(secrets)
    return lambda text: redact(sendable(text), known())


def known_name(tool: str, tools: Sequence[str]) -> str:
    """A registered tool's name. One that the model made up is no name but text of the model."""
    return tool if tool in tools else "(unknown)"


# --- log records


class LogListener:
    """A listener that writes records to the logger "hello_react.run", with fields that begin with `react_`.

    What goes well is INFO, or DEBUG where it only begins; failed calls, unreadable replies, notices and a run
    without an answer are WARNING; a run that failed is ERROR. `react_run` is a random name of the run.

    Args:
        record_text: write texts too, as records of level DEBUG; else only their lengths.
        secrets: keys that must not be written; None for those in the settings or given to a client.
    """

    def __init__(self, *, record_text: bool = False, secrets: Sequence[str] | None = None) -> None:
        self._record_text, self._clean = record_text, cleaner(secrets)
        self._run, self._step, self._began, self._tools = "", 0, 0.0, tuple[str, ...]()

    def __call__(self, event: events.Event) -> None:
        """Write an event."""
        if isinstance(event, events.RunStarted):
            self._run, self._step, self._tools = uuid.uuid4().hex[:8], 0, event.tools
            self._write(logging.INFO, "run started", event.question, tools=len(event.tools),
                        max_steps=event.max_steps)
        elif isinstance(event, events.StepStarted):
            self._step, self._began = event.number, time.perf_counter()
            prompt = "\n".join(str(message.get("content") or "") for message in event.messages)
            self._write(logging.DEBUG, "model called", prompt, messages=len(event.messages))
        elif isinstance(event, events.Reply):
            self._write(logging.INFO, "model replied", event.text, seconds=time.perf_counter() - self._began,
                        finish_reason=event.finish_reason, **vars(event.usage))
        elif isinstance(event, Action):
            self._write(logging.DEBUG, "action", event.input, tool=known_name(event.tool, self._tools))
        elif isinstance(event, events.Observation):
            if event.tool:
                level, what = (logging.INFO, "tool done") if event.ok else (logging.WARNING, "tool failed")
                tool = known_name(event.tool, self._tools)
                self._write(level, what, event.text, tool=tool, error=event.error, seconds=event.seconds)
            elif event.error != "malformed":
                self._write(logging.WARNING, "answer refused", event.text)
        elif isinstance(event, Malformed):
            self._write(logging.WARNING, "reply unreadable", reason=event.reason)
        elif isinstance(event, events.Notice):
            self._write(logging.WARNING, "notice", message=event.text)
        elif isinstance(event, events.RunEnded):
            result, self._step = event.result, 0
            failed = logging.ERROR if result.status == "failed" else logging.WARNING
            self._write(failed if result.answer is None else logging.INFO, "run ended", result.answer or "",
                        status=result.status, reason=result.reason, steps=len(result.steps),
                        seconds=result.seconds, **vars(result.usage))

    def _write(self, level: int, what: str, text: str = "", **fields: Any) -> None:
        fields["characters"] = len(text) or None
        fields = {name: round(value, 3) if isinstance(value, float) else value
                  for name, value in fields.items() if value not in (None, "")}
        about = ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in fields.items())
        step = f"step {self._step}: " if self._step else ""
        fields = {"run": self._run, "event": what, "step": self._step, **fields}
        self._log(level, f"{step}{what}: {about}", fields)
        if self._record_text and text:
            self._log(logging.DEBUG, f"{step}{what}: {text}", {**fields, "text": text})

    def _log(self, level: int, message: str, fields: dict[str, Any]) -> None:
        # One line: what a model or a server wrote can't pass for a record of its own.
        line = printable(self._clean(message)).replace("\n", "\\n")
        _log.log(level, line, extra={f"react_{name}": self._clean(value) if isinstance(value, str) else value
                                     for name, value in fields.items()})


_STANDARD = {*vars(logging.makeLogRecord({})), "message", "asctime", "taskName"}


class JsonFormatter(logging.Formatter):
    """A record as one line of JSON: time (UTC), level, logger, message, exception and stack, its extra fields
    (`extra_time` for one that has the name of another).

    Args:
        secrets: keys that must not be written; None for those in the settings or given to a client.
    """

    def __init__(self, *, secrets: Sequence[str] | None = None) -> None:
        super().__init__("%(asctime)s %(levelname)s %(name)s: %(message)s")
        self._clean = cleaner(secrets)

    def format(self, record: logging.LogRecord) -> str:
        """The line, in ASCII: no stream's encoding can break it."""
        moment = datetime.fromtimestamp(record.created, timezone.utc).isoformat(timespec="milliseconds")
        line = {"time": moment, "level": record.levelname, "logger": record.name,
                "message": record.getMessage()}
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        if record.stack_info:
            line["stack"] = self.formatStack(record.stack_info)
        for name, value in vars(record).items():
            if name not in _STANDARD:
                line[f"extra_{name}" if name in line else name] = value
        return jsons.dumps({name: self._plain(value) for name, value in line.items()})

    def _plain(self, value: Any) -> Any:
        is_number = math.isfinite(value) if isinstance(value, float) else isinstance(value, int)
        if value is None or (is_number and abs(value) < 10**4000):  # Python writes no longer numbers
            return value
        return self._clean(value if isinstance(value, str) else readable(value))


class _LineFormatter(JsonFormatter):
    def format(self, record: logging.LogRecord) -> str:
        return self._clean(logging.Formatter.format(self, record))


def configure(level: str = "warning", json: bool = False, stream: TextIO | None = None, *,
              secrets: Sequence[str] | None = None) -> logging.Handler:
    """Write this program's log records to a stream; a second call replaces the first.

    Other packages are heard from WARNING on, and at level "debug" from INFO on: below that some log prompts.
    What other handlers heard before, they still hear.

    Args:
        level: the least level that is written: "debug", "info", "warning" or "error".
        json: JSON lines in place of lines for a person.
        stream: where to; None for standard error.
        secrets: keys that must not be written; None for those in the settings or given to a client.

    Raises:
        ValueError: there is no such level.
    """
    handler = logging.StreamHandler(stream)
    handler.set_name("hello_react.tracing.configure")
    handler.setLevel(str(level).upper())
    handler.setFormatter((JsonFormatter if json else _LineFormatter)(secrets=secrets))
    root = logging.getLogger()
    for earlier in [one for one in root.handlers if one.get_name() == handler.get_name()]:
        root.removeHandler(earlier)
    root.addHandler(handler)
    others = logging.INFO if handler.level <= logging.DEBUG else max(handler.level, logging.WARNING)
    handler.addFilter(lambda record: record.levelno >= others or record.name.split(".")[0] == "hello_react")
    root.setLevel(min(others, root.level))
    logging.getLogger("hello_react").setLevel(handler.level)
    return handler
