"""What a run says while it runs, and what is left of it at the end (chapter 05).

`ReActAgent.stream` yields these in order; the printer, the trace and the notebook view only listen:

    RunStarted
    ( StepStarted  Token*  Reply  Thought?
      then Action+ Observation+  |  Finish Observation?  |  Malformed Observation? )*
    RunEnded                                     always the last; a Notice may stand anywhere

There are as many Observations as Actions: the calls of one reply run side by side. A Finish is followed by
one where the answer was refused; the last Malformed of a run by none. A step that asks again, as when the
prompt was too long, begins again with StepStarted.

`Action`, `Finish` and `Malformed` are the very objects that `parser.parse` returns, `Reply` is what the model
client returns and `Observation` what a tool execution returns: one family, nothing wrapped twice.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Union

from .parser import Action, Finish, Malformed
from .text import broken_off, json_text

Message = dict[str, Any]
"""One chat message as servers read it: {"role": "user", "content": "..."}."""

Status = Literal["finished", "best_effort", "max_steps", "malformed", "repeating", "timed_out", "interrupted",
                 "failed"]
REASONS: dict[Status, str] = {
    "finished": "finished with an answer",
    "best_effort": "the step limit was reached; this is the best answer so far",
    "max_steps": "no answer within {max_steps}",
    "malformed": "no answer: {max_malformed} replies in a row did not keep to the format",
    "repeating": "no answer: the same call gave the same result three times",
    "timed_out": "no answer within {time_limit:g} seconds",
    "interrupted": "interrupted",
    "failed": "no answer: {error}",
}
"""How a run can end, in words for a person."""


@dataclass(frozen=True)
class Usage:
    """Tokens of one or several model calls; None means that the server did not say."""

    prompt_tokens: int | None = None
    completion_tokens: int | None = None

    @property
    def total_tokens(self) -> int | None:
        if self.prompt_tokens is None or self.completion_tokens is None:
            return None
        return self.prompt_tokens + self.completion_tokens

    @classmethod
    def total(cls, parts: Iterable[Usage]) -> Usage:
        """The sum; unknown as soon as one part is unknown (or there is none)."""
        parts = list(parts)

        def add(values: list[int | None]) -> int | None:
            known = [value for value in values if value is not None]
            return sum(known) if known and len(known) == len(values) else None

        return cls(add([p.prompt_tokens for p in parts]), add([p.completion_tokens for p in parts]))


@dataclass(frozen=True)
class ToolCall:
    """A native tool call of a model. What a client of one's own gives in another form becomes text.

    Attributes:
        id: as the server sent it; it may be empty, or that of another call too.
        name: the tool's name.
        arguments: the JSON text sent.
        extra: what the server wants back with this call, such as a signature of the thinking behind it.
    """

    id: str
    name: str
    arguments: str
    extra: dict[str, Any] | None = field(default=None, repr=False, hash=False)

    def __post_init__(self) -> None:
        for name in ("id", "name", "arguments"):
            object.__setattr__(self, name, json_text(getattr(self, name)))


@dataclass(frozen=True)
class Reply:
    """One whole reply of a model. None stands for a field's default: other packages have it in such places
    (but text without calls can't be None).

    Attributes:
        text: the visible text, without thinking.
        thinking: what a thinking model wrote apart ("" if nothing).
        tool_calls: native tool calls, complete and in order.
        usage: tokens, as far as the server said.
        finish_reason: "stop", "length", "tool_calls" or what the server sent; "" if it said nothing.
    """

    text: str = ""
    thinking: str = ""
    tool_calls: tuple[ToolCall, ...] = ()
    usage: Usage = Usage()
    finish_reason: str = ""

    def __post_init__(self) -> None:
        for name in [name for name, value in vars(self).items() if value is None]:
            if name != "text" or self.tool_calls:
                object.__setattr__(self, name, getattr(Reply, name))

    @property
    def cut(self) -> bool:
        """Whether the reply ended in mid-text: at the token limit, by a filter or by a failure."""
        return broken_off(self.finish_reason) != ""

    def __str__(self) -> str:
        return self.text or ""


@dataclass(frozen=True)
class Observation:
    """What came of one call.

    Attributes:
        text: what the model reads.
        ok: False when the tool did not run or failed.
        tool: the tool's name ("" when no tool was meant, as after an unreadable reply).
        error: why `ok` is False: "unknown_tool", "bad_input", "raised", "timed_out", "refused", "malformed",
            "not_run"; else "".
        seconds: how long the tool ran.
        value: what the tool returned, before it became text (None when it did not run).
    """

    text: str
    ok: bool = True
    tool: str = ""
    error: str = ""
    seconds: float = field(default=0.0, compare=False)
    value: Any = field(default=None, compare=False, repr=False)

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True)
class RunStarted:
    """A run begins: the question, the names of the tools, the step limit."""

    question: str
    tools: tuple[str, ...]
    max_steps: int


@dataclass(frozen=True)
class StepStarted:
    """A step begins: its number from 1, and the messages about to be sent."""

    number: int
    messages: tuple[Message, ...] = field(repr=False)


@dataclass(frozen=True)
class Token:
    """A piece of the reply as it arrives; `thinking` marks text that is not part of the reply itself."""

    text: str
    thinking: bool = False


@dataclass(frozen=True)
class Thought:
    """The thought of this step."""

    text: str


@dataclass(frozen=True)
class Notice:
    """Something the user should know: a retry, a shortened history, a server that cuts the prompt.

    `restart` says that the tokens shown so far in this step are void: the reply begins anew.
    """

    text: str
    restart: bool = False


@dataclass(frozen=True)
class Step:
    """One finished step of a run.

    Attributes:
        number: from 1.
        thought: the model's thought, or None.
        calls: the actions of this step (one with the text agent; empty after an ending or an unreadable
            reply).
        observations: one for each call, in order; the note to the model after an unreadable reply.
        reply: the model's whole reply.
        seconds: the step's time, model and tools together.
    """

    number: int
    thought: str | None
    calls: tuple[Action, ...]
    observations: tuple[Observation, ...]
    reply: Reply
    seconds: float = field(compare=False)

    @property
    def usage(self) -> Usage:
        return self.reply.usage


@dataclass(frozen=True)
class Result:
    """How a run ended.

    Attributes:
        question: what was asked.
        answer: the answer, or None when there is none.
        status: "finished"; "best_effort" (an answer asked for at the step limit); else why there is no
            answer: "max_steps", "malformed", "repeating", "timed_out", "interrupted", "failed".
        reason: the status in one sentence for a person.
        steps: what happened, step by step.
        usage: tokens of all steps; unknown (None) as soon as one step is.
        seconds: wall time of the run; two runs that differ in nothing else are equal.
        last_text: the model's last reply as it came; the only trace of an answer that never kept to the
            format.
    """

    question: str
    answer: str | None
    status: Status
    reason: str
    steps: tuple[Step, ...] = field(default=(), repr=False)
    seconds: float = field(default=0.0, repr=False, compare=False)
    usage: Usage = field(default=Usage(), repr=False)
    last_text: str = field(default="", repr=False)

    @property
    def sources(self) -> tuple[Observation, ...]:
        """The observations of tools that ran and gave a result: what the answer can rest on."""
        return tuple(seen for step in self.steps for seen in step.observations if seen.ok and seen.tool)

    def __bool__(self) -> bool:
        return self.status == "finished"

    def __str__(self) -> str:
        return self.answer if self.answer is not None else f"[{self.reason}]"

    def _repr_markdown_(self) -> str:
        from .display import summary

        return summary(self)


@dataclass(frozen=True)
class RunEnded:
    """The last event of every run."""

    result: Result


Event = Union[RunStarted, StepStarted, Token, Notice, Reply, Thought, Action, Finish, Malformed, Observation,
              RunEnded]
"""Everything `ReActAgent.stream` may yield."""

Messages = Sequence[Message]


def drain(events: Generator[Event, None, None], *listeners: Callable[[Event], None]) -> Result:
    """Pull a run to its end, give each event to the listeners, and return the result.

    Ctrl-C while a listener works reaches the run like any other: its `RunEnded` still comes, then it is
    raised.
    """
    result: Result | None = None
    for event in events:
        try:
            for listener in listeners:
                listener(event)
        except KeyboardInterrupt as stop:
            if isinstance(event, RunEnded):
                raise
            event = events.throw(stop)
            for listener in listeners:
                listener(event)
        if isinstance(event, RunEnded):
            result = event.result
    assert result is not None
    return result
