"""What a run of a workflow is made of: errors, events, declared steps, the context and its saved form.

No step runs here: the engine is `workflow.py`, and users import every name from there. The annotations of a
step say which events it takes and returns; `Graph` puts the steps of one class together, and refuses those
that can't work. A `Job` is one event at one step; `Context` is what steps share, and saves what a run has
still to do. `Awaited` is how a run is waited for; `run_to_end` does so without `await`, and says what Ctrl-C
does meanwhile.

    >>> class Ask(Event):
    ...     question: str
    ...     tags: list[str] = []
    >>> Ask(question="Which city?")
    Ask(question='Which city?', tags=[])
    >>> pack({"asked": ("Berlin", 2)}, "state")
    {'asked': {'__type__': 'tuple', 'value': ['Berlin', 2]}}
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import copy
import dataclasses
import functools
import inspect
import itertools
import math
import re
import signal
import sys
import threading
import time
import traceback
import types
import typing
import weakref
from collections import ChainMap, deque
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Coroutine,
    Generator,
    ItemsView,
    Iterable,
    Iterator,
    KeysView,
    ValuesView,
)
from dataclasses import MISSING
from pathlib import Path
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar, Union, cast, overload

from .background import run_async_in_thread
from .errors import HelloReactError

if TYPE_CHECKING:
    from .workflow import Workflow, WorkflowHandler

S = TypeVar("S")
F = TypeVar("F", bound=Callable[..., Any])
C = TypeVar("C", bound="Context[Any]")
E = TypeVar("E")
_TAG = "__type__"


class WorkflowError(HelloReactError):
    """Base of what the engine itself raises; an error of a step reaches the caller as it was raised."""


class WorkflowConfigurationError(WorkflowError):
    """The steps don't fit together, or an option can't be used; raised before anything runs."""


class WorkflowRuntimeError(WorkflowError):
    """A run was used in a way that can't work, or a step returned what is no event."""


class EventFieldError(WorkflowRuntimeError, TypeError):
    """An event was made with a field missing, or with one that it does not declare."""


class StateKeyError(WorkflowRuntimeError, KeyError):
    """A key was read that the state does not hold, and no default was given."""

    __str__ = Exception.__str__  # KeyError would show the message in quotes


class WorkflowTimeoutError(WorkflowError, TimeoutError):
    """A run, or a wait inside it, took longer than its limit."""


class WorkflowCancelledError(WorkflowError):
    """The run was cancelled before it ended."""


class ContextSerializationError(WorkflowError):
    """A context holds what JSON can't, or the saved data can't be read."""


def check(holds: Any, problem: str, error: type[WorkflowError] = WorkflowConfigurationError) -> None:
    """Raises this error, unless it holds."""
    if not holds:
        raise error(problem)


# --- events


class Event:
    """What steps pass to each other: a class with its fields as annotations, made by keyword.

    A class that declares fields takes exactly these and those of its base classes; those with a default may
    be left out. A list, dict or set as a default is copied for each event; `= field(...)` of dataclasses and
    `= Field(...)` of pydantic work too. A class that declares none takes any keyword. Values may be any
    Python object and are not converted. Fields read as attributes (`ev.city`) or as in a dict (`ev["city"]`,
    `ev.get("city", "Berlin")`, `"city" in ev`).

    Raises:
        EventFieldError: a field is missing or unknown.
    """

    _fields: ClassVar[dict[str, Any]] = {}
    __orig_class__ = property()  # `Box[int](value=1)`: else typing would write it among the fields

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        check(not vars(cls).get("__slots__"),
              f"{cls.__name__} has __slots__, but an event keeps its fields in a dict: leave out slots=True")
        cls._fields = {}
        for owner in reversed([owner for owner in cls.__mro__ if owner is not Event]):
            declared = [name for name, hint in inspect.get_annotations(owner).items()
                        if not name.startswith("_") and not re.match(r"(?:\w+\.)*ClassVar\b", str(hint))]
            cls._fields.update(dict.fromkeys(declared, MISSING))
            for name in cls._fields.keys() & vars(owner).keys():
                if not isinstance(vars(owner)[name], property):
                    cls._fields[name] = vars(owner)[name]

    def __init__(self, /, **fields: Any) -> None:
        declared = self._fields
        if declared:
            unknown = [name for name in fields if name not in declared]
            fields = {name: fields[name] if name in fields else _fresh(default)
                      for name, default in declared.items()}
            missing = [name for name, value in fields.items() if value is MISSING]
            if missing or unknown:
                wrong = [f"missing {name!r}" for name in missing] + [f"unknown {name!r}" for name in unknown]
                raise EventFieldError(f"{type(self).__name__} can't be made: {', '.join(wrong)}; "
                                      f"its fields: {', '.join(declared)}")
        self.__dict__.update(fields)

    def __getattr__(self, name: str) -> Any:
        has = ", ".join(vars(self)) or "no fields"
        raise AttributeError(f"{type(self).__name__} has no {name!r}; it has: {has}")

    def __getitem__(self, name: str) -> Any:
        return vars(self)[name]

    def __setitem__(self, name: str, value: Any) -> None:
        setattr(self, name, value)

    def get(self, name: str, default: Any = None) -> Any:
        """The value of a field, or `default` if the event has none of that name."""
        return vars(self).get(name, default)

    def keys(self) -> KeysView[str]:
        """The names of the fields."""
        return vars(self).keys()

    def values(self) -> ValuesView[Any]:
        """The values of the fields."""
        return vars(self).values()

    def items(self) -> ItemsView[str, Any]:
        """Names and values of the fields."""
        return vars(self).items()

    def to_dict(self) -> dict[str, Any]:
        """The fields as a new dict; the values are the same objects."""
        return dict(vars(self))

    def __contains__(self, name: object) -> bool:
        return name in vars(self)

    def __iter__(self) -> Iterator[str]:
        return iter(vars(self))

    def __len__(self) -> int:
        return len(vars(self))

    def __bool__(self) -> bool:
        return True

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and vars(other) == vars(self)

    def __repr__(self) -> str:
        fields = ", ".join(f"{name}={value!r}" for name, value in vars(self).items())
        return f"{type(self).__name__}({fields})"


def _fresh(default: Any) -> Any:
    if isinstance(default, dataclasses.Field):
        return default.default if default.default_factory is MISSING else default.default_factory()
    if type(default).__name__ == "FieldInfo":  # of pydantic, which is not imported for this
        return MISSING if default.is_required() else default.get_default(call_default_factory=True)
    return copy.deepcopy(default) if isinstance(default, (list, dict, set)) else default


class StartEvent(Event):
    """Begins a run: holds the keywords given to `Workflow.run`. Subclass it to declare them."""


class StopEvent(Event):
    """Ends a run. Awaiting the run gives its `result`; of a subclass, the event itself.

    Args:
        result: any object.
        fields: more fields, as with any event.
    """

    def __init__(self, result: Any = MISSING, **fields: Any) -> None:
        given = {} if result is MISSING else {"result": result}
        super().__init__(**fields, **(given if "result" in self._fields else {}))
        self.__dict__.setdefault("result", given.get("result"))


class InputRequiredEvent(Event):
    """Asks a person: a step returns it, the stream shows it, and no step need take it."""


class HumanResponseEvent(Event):
    """A person's word: comes from outside through `handler.ctx.send_event`, so no step need return it."""


class StepFailedEvent(Event):
    """What an error handler takes: a step raised, and its retries (if any) are used up.

    Attributes:
        step_name: the step.
        input_event: the event that it took.
        exception: what it raised.
        attempts: how often it was tried.
        elapsed_seconds: from the first attempt to this failure.
    """

    step_name: str
    input_event: Event
    exception: BaseException
    attempts: int
    elapsed_seconds: float


class WorkflowFailedEvent(StopEvent):
    """Last event of the stream when a step failed and nothing handled it; the error itself follows.

    Attributes: as in `StepFailedEvent`.
    """

    step_name: str
    exception: BaseException
    attempts: int
    elapsed_seconds: float


class WorkflowTimedOutEvent(StopEvent):
    """Last event of the stream when the run took longer than its limit; the error itself follows.

    Attributes:
        timeout: the limit in seconds.
        active_steps: the names of the steps that were under way.
    """

    timeout: float
    active_steps: list[str]


class WorkflowCancelledEvent(StopEvent):
    """Last event of the stream when the run was cancelled; the error itself follows."""


FROM_OUTSIDE = (StartEvent, HumanResponseEvent, StepFailedEvent)  # no step need return these
TO_OUTSIDE = (StopEvent, InputRequiredEvent)  # no step need take these


# --- steps, and how they fit together


def expect(holds: Any, problem: str) -> None:
    """Refuses a use of a run or a context that can't work, unless it holds."""
    check(holds, problem, WorkflowRuntimeError)


def check_number(name: str, value: Any, least: int, kind: Any) -> None:
    """Refuses an option that is no number of this kind, or below the least one."""
    fits = isinstance(value, kind) and not isinstance(value, bool) and value >= least
    whole = "whole " if kind is int else ""
    check(fits, f"{name} must be a {whole}number from {least} on, not {value!r}")


def check_timeout(timeout: Any, error: type[WorkflowError] = WorkflowRuntimeError) -> None:
    """Refuses a limit that is neither a number of seconds above 0 nor None."""
    number = isinstance(timeout, (int, float)) and not isinstance(timeout, bool)
    check(timeout is None or (number and timeout > 0),
          f"timeout must be seconds above 0 or None, not {timeout!r:.80}", error)


@dataclasses.dataclass(frozen=True)
class RetryPolicy:
    """Whether and when a failed step is tried again. Subclass it and override `next` for another rule.

    Args:
        maximum_attempts: tries in all, the first included.
        delay: seconds before the second try.
        multiplier: each further delay is this many times the one before (1 keeps it constant).
        max_delay: seconds that no delay exceeds.
        retry_on: the exception class, or a tuple of them, worth another try.
    """

    maximum_attempts: int = 3
    delay: float = 1.0
    multiplier: float = 1.0
    max_delay: float = 60.0
    retry_on: type[BaseException] | tuple[type[BaseException], ...] = Exception

    def __post_init__(self) -> None:
        check_number("maximum_attempts", self.maximum_attempts, 1, int)
        for name in ("delay", "multiplier", "max_delay"):
            check_number(name, getattr(self, name), 0, (int, float))
        kinds = self.retry_on if isinstance(self.retry_on, tuple) else (self.retry_on,)
        check(all(isinstance(kind, type) and issubclass(kind, BaseException) for kind in kinds),
              f"retry_on must be an exception class or a tuple of them, not {self.retry_on!r}")

    def next(self, elapsed_time: float, attempts: int, error: BaseException) -> float | None:
        """Seconds until the next try, or None to give up.

        Args:
            elapsed_time: seconds since the first try began.
            attempts: tries so far, at least 1.
            error: what the last one raised.
        """
        if attempts >= self.maximum_attempts or not isinstance(error, self.retry_on):
            return None
        delay = min(self.delay, self.max_delay)
        for _ in range(attempts - 1):
            delay = min(delay * self.multiplier, self.max_delay)
        return delay


@dataclasses.dataclass
class StepSpec:
    """A step: its function, its options, and what its annotations say (empty until they can be read).

    Attributes:
        for_steps: of an error handler, the steps that it serves; None for all.
        parameters: those of the function to be filled, and with what: "workflow", "event" or "context".
        takes, returns: classes of events; `returns` may also hold NoneType.
        state_type: the state that it names with its context, if any.
    """

    name: str
    function: Callable[..., Any]
    is_async: bool
    num_workers: int = 4
    retry_policy: RetryPolicy | None = None
    is_handler: bool = False
    for_steps: tuple[str, ...] | None = None
    parameters: dict[str, str] = dataclasses.field(default_factory=dict)
    takes: tuple[type[Event], ...] = ()
    returns: tuple[Any, ...] = ()
    state_type: Any = None

    def read(self, names: dict[str, Any]) -> None:
        """Reads the annotations; NameError or AttributeError if one names what is not defined yet."""
        try:
            hints = typing.get_type_hints(self.function, localns=names)
        except (SyntaxError, TypeError) as error:
            self.check(False, f"has an annotation that is no type ({error})")
        events: dict[str, tuple[type[Event], ...]] = {}
        self.parameters = {}
        for name, parameter in inspect.signature(self.function).parameters.items():
            if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
                continue
            self.check(parameter.kind is not parameter.POSITIONAL_ONLY,
                       f"has a parameter {name!r} before a `/`: take that out, steps are called by keyword")
            kinds = tuple(kind for kind in _members(hints.get(name)) if kind is not NoneType)
            if name == "self":
                self.parameters[name] = "workflow"
            elif kinds and all(_is_a(_origin(kind), Context) for kind in kinds):
                self.parameters[name] = "context"
                for state in typing.get_args(kinds[0]):
                    if state is not Any and not isinstance(state, TypeVar):
                        self.state_type = dict if hasattr(state, "__total__") else _origin(state)
            elif kinds and all(_is_a(_origin(kind), Event) for kind in kinds):
                self.parameters[name], events[name] = "event", tuple(map(_origin, kinds))
            else:
                self.check(parameter.default is not parameter.empty,
                           f"has a parameter {name!r} that is no event: annotate it with the class of event "
                           f"that the step takes, as in `{name}: StartEvent`, or with Context")
        self.check(events, "takes no event: add a parameter, as in `ev: StartEvent`")
        self.check(len(events) < 2, f"takes two events, {' and '.join(map(repr, events))}: "
                                    "take one, annotated with both classes, as in `ev: A | B`")
        self.check("return" in hints,
                   "does not say what it returns: annotate it, as in `-> StopEvent` (or `-> None`)")
        answer = hints["return"]
        if not self.is_async and typing.get_origin(answer) in (Awaitable, Coroutine):
            answer = typing.get_args(answer)[-1]
        (self.takes,), self.returns = events.values(), tuple(dict.fromkeys(map(_origin, _members(answer))))
        self.check(not self.is_handler or self.takes == (StepFailedEvent,),
                   "is an error handler: annotate its parameter with StepFailedEvent")
        for kind in self.returns:
            self.check(kind is NoneType or _is_a(kind, Event),
                       f"is annotated to return {getattr(kind, '__name__', kind)}: "
                       "a step returns an event or None")

    def delay(self, elapsed_time: float, attempts: int, error: BaseException) -> float | None:
        """Seconds until a failed step is tried again, or None; refuses what is neither."""
        policy = self.retry_policy
        try:
            delay = None if policy is None else policy.next(elapsed_time, attempts, error)
        except StopIteration as stop:  # no future can pass it on
            raise RuntimeError(f"the retry policy of step {self.name!r} raised StopIteration") from stop
        check(delay is None or isinstance(delay, (int, float)),
              f"the retry policy of step {self.name!r} returned {delay!r}: return seconds or None",
              WorkflowRuntimeError)
        return delay

    def check(self, holds: Any, problem: str) -> None:
        """Raises the error that says so of this step, unless it holds."""
        check(holds, f"step {self.name!r} {problem}")


def _members(hint: Any) -> tuple[Any, ...]:
    """The parts of a union, also of one that `type` gave a name."""
    hint = getattr(hint, "__value__", hint)
    if typing.get_origin(hint) not in (Union, UnionType):
        return (hint,)
    return tuple(kind for part in typing.get_args(hint) for kind in _members(part))


def _origin(kind: Any) -> Any:
    """The class itself of a generic one, such as `Box` of `Box[int]`."""
    return typing.get_origin(kind) or kind


def _is_a(kind: Any, base: type) -> bool:
    return isinstance(kind, type) and issubclass(kind, base)


@overload
def step(function: F) -> F: ...
@overload
def step(*, workflow: type[Workflow] | None = None, num_workers: int = 4,
         retry_policy: RetryPolicy | None = None) -> Callable[[F], F]: ...
def step(function: Any = None, *, workflow: type[Workflow] | None = None, num_workers: int = 4,
         retry_policy: RetryPolicy | None = None) -> Any:
    """Makes a method a step of its workflow: it runs for each event of the classes in its annotation.

    An event goes to every step that names its class, else to those that name its nearest base class. A step
    may also take a `Context`; it sees the context variables of whoever began the run. `async def` steps
    run on the event loop. A plain `def` step runs in a thread of its own, so it may block (the end of a run
    leaves it to itself), and it may use the methods of `Context` that are not awaited.

    Args:
        workflow: for a plain function: the workflow class to add it to (as `add_step` does).
        num_workers: how many events of one run the step works on at a time; the others wait in order.
        retry_policy: whether and when to try again after an error; never, if None.

    Raises:
        WorkflowConfigurationError: annotations are missing or unusable, or the class has a step of that name.
    """
    check_number("num_workers", num_workers, 1, int)
    check(retry_policy is None or isinstance(retry_policy, RetryPolicy),
          f"retry_policy must be a RetryPolicy or None, not {retry_policy!r}")
    return _decorator(function, workflow, num_workers=num_workers, retry_policy=retry_policy)


@overload
def catch_error(function: F) -> F: ...
@overload
def catch_error(*, for_steps: Iterable[str] | None = None) -> Callable[[F], F]: ...
def catch_error(function: Any = None, *, for_steps: Iterable[str] | None = None) -> Any:
    """Makes a method an error handler: it takes a `StepFailedEvent` and returns the event to go on with.

    It runs when a step has raised and no retry is left; not for a time limit, a cancellation, or an error of
    a handler, which ends the run.

    Args:
        for_steps: the names of the steps it serves; None for all that no other handler names.

    Raises:
        WorkflowConfigurationError: annotations are missing or name another event.
    """
    check(for_steps is None or (isinstance(for_steps, Iterable) and not isinstance(for_steps, str)),
          f"for_steps must be a list of names, as in [{str(for_steps)!r:.80}]")
    names = None if for_steps is None else tuple(dict.fromkeys(for_steps))
    return _decorator(function, None, is_handler=True, for_steps=names)


def _decorator(function: Any, workflow: type[Workflow] | None, **options: Any) -> Any:
    def declare(function: Any) -> Any:
        check(inspect.isfunction(function), f"{function!r} is no function: put @step on one, "
                                            "below @staticmethod and the like")
        spec = StepSpec(function.__name__, function, inspect.iscoroutinefunction(function), **options)
        names = ChainMap(*_names_around(function))
        twice = "__qualname__" in names.maps[0] and hasattr(names.maps[0].get(spec.name), "_step")
        spec.check(not twice, "stands twice in its class: give one of the two another name")
        with contextlib.suppress(NameError, AttributeError):  # of an event defined further down: read later
            spec.read(dict(names))
        function._step = spec
        if workflow is not None:
            workflow.add_step(function)
        return function

    return declare if function is None else declare(function)


def _names_around(function: Any) -> list[dict[str, Any]]:
    """The local names of the class and the functions that this one stands in, the innermost first."""
    owners = function.__qualname__.replace(".<locals>", "").split(".")[-2::-1]
    found = []
    for frame, _ in traceback.walk_stack(sys._getframe()):
        name = frame.f_code.co_name
        if name in owners and frame.f_globals is inspect.unwrap(function).__globals__:
            found.append(frame.f_locals)
            owners = owners[owners.index(name) + 1:]
    return found


def declared(workflow: type[Workflow]) -> dict[str, StepSpec]:
    """The steps of a class by name: methods and functions added, those of its base classes first.

    Raises:
        WorkflowConfigurationError: a method without @step takes the place of a step.
    """
    steps: dict[str, StepSpec] = {}
    for owner in reversed(workflow.__mro__):
        for name in vars(owner):
            own = getattr(owner, name, None)
            spec = getattr(own, "_step", None)
            if isinstance(spec, StepSpec):
                steps[name] = dataclasses.replace(spec, name=name, function=getattr(workflow, name))
            elif steps.pop(name, None):
                check(not callable(own),
                      f"{owner.__name__}.{name} takes the place of a step: put @step above it, or choose "
                      f"another name (`{name} = None` leaves the step out)")
        steps.update(vars(owner).get("_added_steps", {}))
    return steps


def marked(workflow: type[Workflow]) -> dict[tuple[type, str], Any]:
    """What a class and its base classes hold under the names of steps: another, once a step came, went or
    was replaced.
    """
    holders = [(owner, {**vars(owner)}) for owner in workflow.__mro__[:-1]]
    names = {name for _, held in holders for name, value in held.items() if hasattr(value, "_step")}
    return {(owner, name): held[name] for owner, held in holders for name in (*names, "_added_steps")
            if name in held}


class Graph:
    """The steps of one workflow class, checked.

    Attributes:
        steps: by name.
        start: the class of the start event.
        state_type: what makes the state of a new context.
        classes: the event classes and the state type: those that saved data may name.

    Raises:
        WorkflowConfigurationError: the steps don't fit together; the message says what to add where.
    """

    def __init__(self, workflow: type[Workflow]) -> None:
        steps = declared(workflow)
        self.owner, self.steps = workflow.__name__, steps
        names = ChainMap(*({**vars(owner)} for owner in workflow.__mro__))
        for spec in steps.values():
            try:
                if not spec.takes:
                    spec.read(dict(names))
            except (NameError, AttributeError) as error:
                spec.check(False, f"has an annotation that can't be read ({error}): define or import the "
                                  "class before the workflow")
        self._routes: dict[type, list[StepSpec]] = {}
        self._taken = {kind: spec.name for spec in steps.values() for kind in spec.takes}
        self._returned = {kind: spec.name for spec in steps.values() for kind in spec.returns
                          if kind is not NoneType}
        self._orphans = [kind for kind in self._taken if not issubclass(kind, (*FROM_OUTSIDE, StopEvent))
                         and not any(issubclass(returned, kind) for returned in self._returned)]
        states = {spec.state_type for spec in steps.values()} - {None}
        problems = self._missing_ends() or [*self._loose_events(), *self._handlers(), *self._dead_ends()]
        if len(states) > 1:
            problems.append(f"the steps name {len(states)} state types: a context has one state")
        problems[:0] = [f"{len(problems)} problems"] if len(problems) > 1 else []
        check(not problems, f"{self.owner}: " + "\n- ".join(problems))
        self.start = next(kind for kind in self._taken if issubclass(kind, StartEvent))
        self.state_type: Any = next(iter(states), dict)
        self.classes = (*self._taken, *self._returned, self.state_type)

    def takers(self, kind: type[Event]) -> list[StepSpec]:
        """The steps that name this class of event, else those that name its nearest base class."""
        if kind not in self._routes:
            named = ([spec for spec in self.steps.values() if base in spec.takes] for base in kind.__mro__)
            self._routes[kind] = next(filter(None, named), [])
        return self._routes[kind]

    def handler(self, failed: StepSpec) -> StepSpec | None:
        """The error handler of a step: one that names it, else the general one; a handler has none."""
        handlers = [spec for spec in self.steps.values() if StepFailedEvent in spec.takes]
        naming = [spec for spec in handlers if failed.name in (spec.for_steps or ())]
        general = [spec for spec in handlers if spec.for_steps is None]
        return None if failed in handlers else next(iter(naming or general), None)

    def untaken(self, name: str, does: str, kind: type[Event]) -> str:
        """Says of a step that nobody takes what it "returns" or "returned"."""
        alike = [taker for taken, taker in self._taken.items() if taken.__name__ == kind.__name__]
        return f"step {name!r} {does} {kind.__name__}, but no step takes it: " + (
            f"step {alike[0]!r} takes another class of that name. If it was defined anew since, define the "
            "workflow anew, too" if alike else f"add a step with `ev: {kind.__name__}`")

    def draw(self, path: str | Path | None) -> str:
        """The graph as a Mermaid flowchart, also written to this file."""
        lines = ["flowchart TD", *(f'    step_{name}["{name}"]' for name in self.steps)]
        kinds = [kind for kind in {**self._taken, **self._returned}  # not a base class that only steps name
                 if kind in self._returned or issubclass(kind, FROM_OUTSIDE)]
        names = [kind.__name__ for kind in kinds]
        nodes: dict[Any, str] = {}
        for kind, name in zip(kinds, names, strict=True):
            ends = itertools.chain([""], (f"_{number}" for number in itertools.count(1)))
            nodes[kind] = next(node for end in ends if (node := f"event_{name}{end}") not in nodes.values())
            module = f"{kind.__module__}." if names.count(name) > 1 else ""
            lines.append(f'    {nodes[kind]}(["{module}{name}"])')
        for name, spec in self.steps.items():
            lines += [f"    {nodes[kind]} --> step_{name}" for kind in kinds
                      if spec in self.takers(kind) and not issubclass(kind, StopEvent)]
            lines += [f"    step_{name} --> {nodes[kind]}" for kind in spec.returns if kind in nodes]
        text = "\n".join(lines) + "\n"
        if path is not None:
            Path(path).write_text(text, encoding="utf-8")
        return text

    def _missing_ends(self) -> list[str]:
        starts = [kind.__name__ for kind in self._taken if issubclass(kind, StartEvent)]
        stops = [kind.__name__ for kind in self._returned if issubclass(kind, StopEvent)]
        several = "there is more than one kind of {} event ({}): keep one".format
        problems = {
            "there are no steps: put @step on its methods": not self.steps,
            "no step takes the start event: add a step with `ev: StartEvent`": self.steps and not starts,
            "no step returns a stop event, so no run can end: add a step with `-> StopEvent`":
                self.steps and not stops,
            several("start", ", ".join(starts)): len(starts) > 1,
            several("stop", ", ".join(stops)): len(stops) > 1}
        return [problem for problem, is_so in problems.items() if is_so]

    def _loose_events(self) -> Iterator[str]:
        for kind, name in self._taken.items():
            if issubclass(kind, StopEvent):
                yield f"step {name!r} takes {kind.__name__}, which ends a run: take another event"
            elif kind in self._orphans:
                yield (f"step {name!r} takes {kind.__name__}, but no step returns it: annotate the one that "
                       f"does with `-> {kind.__name__}`, or derive the event from HumanResponseEvent if it "
                       "comes from outside")
        for kind, name in self._returned.items():
            if not issubclass(kind, TO_OUTSIDE) and not self.takers(kind):
                yield self.untaken(name, "returns", kind)

    def _handlers(self) -> Iterator[str]:
        named = [name for spec in self.steps.values() for name in spec.for_steps or ()]
        for name in dict.fromkeys(named):
            if name not in self.steps:
                yield f"an error handler names the step {name!r}, which is not there"
            elif named.count(name) > 1:
                yield f"two error handlers name the step {name!r}: keep one"
        if sum(spec.for_steps is None and StepFailedEvent in spec.takes for spec in self.steps.values()) > 1:
            yield "two error handlers serve all steps: keep one, or name steps with for_steps"

    def _dead_ends(self) -> Iterator[str]:
        leads = {name: {taker.name for kind in spec.returns for taker in self.takers(kind)}
                 for name, spec in self.steps.items()}
        entries: tuple[type, ...] = (*FROM_OUTSIDE, *self._orphans)  # all is said of an orphan already
        reached = {name for name, spec in self.steps.items() if any(
            issubclass(kind, entries) for kind in spec.takes)}
        ending = {name for name, spec in self.steps.items() if any(
            issubclass(kind, TO_OUTSIDE) or not self.takers(kind) for kind in spec.returns)}
        for _ in self.steps:  # each round finds the steps that are one event further
            reached |= {after for name in reached for after in leads[name]}
            ending |= {name for name in self.steps if leads[name] & ending}
        lost = [name for name in self.steps if name not in reached]
        stuck = [name for name in self.steps if name in reached - ending]
        if lost:
            yield f"no run gets to {listed(lost)}: let a step that is reached return what it takes"
        if stuck:
            yield (f"no run gets out of {listed(stuck)}: let one of them also return a StopEvent, "
                   "or an event that leads to one")


def anew(kind: type, *others: type) -> str:
    """What to add to a message that refuses a class, since others are wanted that may have the same name."""
    same = any(kind.__name__ == other.__name__ for other in others)
    return f" (another class of that name: was {kind.__name__} defined anew since?)" if same else ""


def listed(names: Iterable[str]) -> str:
    """The names of steps for a message, each once: "step 'a'", "steps 'a', 'b'"."""
    names = list(dict.fromkeys(names))
    return f"step{'s' if len(names) > 1 else ''} {', '.join(map(repr, names))}"


# --- state and its saved form


@dataclasses.dataclass(eq=False, slots=True)
class Job:
    """One event at one step, from its first attempt to its last.

    Attributes:
        attempts: how often the step was called for it.
        began: when the first attempt did, on the clock of the event loop.
        run: the run it is part of (of its last attempt).
        task: its last attempt.
        inner: the runs that its step began.
        waits, gathered: the names of the waits of this attempt, and the buffers it gathered in, in order.
        announced, answers, collected: what an attempt said to and got from outside, for the next one to find.
    """

    spec: StepSpec
    event: Event
    attempts: int = 0
    began: float = 0.0
    run: Any = None
    task: Any = None
    inner: weakref.WeakSet[Awaited] = dataclasses.field(default_factory=weakref.WeakSet)
    waits: list[str] = dataclasses.field(default_factory=list)
    gathered: list[str] = dataclasses.field(default_factory=list)
    announced: list[str] = dataclasses.field(default_factory=list)
    answers: dict[str, Event] = dataclasses.field(default_factory=dict)
    collected: dict[str, list[Event] | None] = dataclasses.field(default_factory=dict)

    @contextlib.asynccontextmanager
    async def ends_inner_runs(self) -> AsyncIterator[None]:
        """A block of its step: if that fails or is cancelled, the runs that the step began are cancelled."""
        try:
            yield
        except (Exception, asyncio.CancelledError):
            for run in list(self.inner):
                if not run._is_lost():
                    settled = run.cancel_run()
                    if run._loop is self.run._loop:
                        await settled
            raise


class Places:
    """Lets so many runs of a workflow go on at a time; the next in line begins when one ends."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.taken: list[WorkflowHandler] = []
        self.waiting: deque[WorkflowHandler] = deque()
        self.lock = threading.Lock()  # the runs of one workflow may be in several threads

    def expect_free(self) -> None:
        """Refuses to block this thread's event loop where its own runs take all places."""
        here = asyncio.get_running_loop()
        with self.lock:
            blocked = sum(run._loop is here and not run._finished for run in [*self.taken, *self.waiting])
        expect(blocked < self.number,
               f"run_sync would wait for ever: num_concurrent_runs is {self.number}, and so many runs go on "
               "in the event loop that it blocks: await them first")

    def admit(self, *runs: WorkflowHandler) -> None:
        with self.lock:
            self.waiting.extend(runs)
            self.taken = [run for run in self.taken if not (run._finished or run._is_lost())]
            while self.waiting and len(self.taken) < self.number:
                run = self.waiting.popleft()
                if not (run._finished or run._is_lost()):
                    self.taken.append(run)
                    run._loop.call_soon_threadsafe(run._begin, context=run._context)


# --- how code waits for a run


class Awaited(Coroutine[Any, Any, Any]):
    """How a run is waited for: by `await`, as a task, without a loop, and by reading its stream."""

    _loop: Any = None
    _future: Any = None
    _finished = False
    _outcome: Any = None

    def __init__(self) -> None:
        self._stream: list[Event] = []
        self._news: asyncio.Event | None = None
        self._drivers: dict[Any, Generator[Any, Any, Any]] = {}
        job = current_job.get(None)
        if job is not None:
            job.inner.add(self)

    def _is_lost(self) -> bool:  # its loop was closed before it ended
        return self._outcome is None and self._loop is not None and self._loop.is_closed()

    def _start(self) -> None:
        """Begins the run, if it has not begun."""
        raise NotImplementedError

    def cancel_run(self) -> Awaitable[None]:
        """Cancels the run."""
        raise NotImplementedError

    def done(self) -> bool:
        """Whether the run has ended, well or not."""
        return self._finished

    def result(self) -> Any:
        """The result of a run that has ended; else what awaiting it raises.

        Raises:
            WorkflowRuntimeError: it has not ended.
        """
        expect(self._finished, "the run has not ended: await the handler first")
        if self._future is not None:
            return self._future.result()
        raise self._outcome  # cancelled before it began

    def wait(self) -> Any:
        """The result, for scripts and other code without `await`; blocks until the run ends.

        Ctrl-C cancels the run.

        Raises:
            WorkflowRuntimeError: an event loop runs here (as in a notebook), or the run has begun in one.
        """
        if self._finished:
            return self.result()
        expect(not loop_is_running() and self._loop is None,
               "wait() would block the event loop of this run: `await` it there")
        return run_to_end(cast("WorkflowHandler", self))

    def stream_events(self) -> AsyncIterator[Event]:
        """The events written to the stream, from the first on, as they come; the last is the stop event.

        Any number of readers may read, also later. Where the run ends with an error, the last event tells of
        it (`WorkflowFailedEvent`, `WorkflowTimedOutEvent` or `WorkflowCancelledEvent`), then it is raised.
        """
        return _Stream(self)

    @types.coroutine
    def _settled(self) -> Generator[Any, Any, None]:  # as a generator it may also be left without await
        if not self._finished:
            yield from asyncio.wait([self._future]).__await__()

    def __await__(self) -> Generator[Any, Any, Any]:
        self._start()
        if not self._finished:
            try:
                yield from asyncio.wait([self._future]).__await__()
            except asyncio.CancelledError:
                self.cancel_run()
                yield from asyncio.wait([self._future]).__await__()
                raise
        return self.result()

    def send(self, value: Any) -> Any:
        """For asyncio, as `throw` and `close`: a task made of the handler drives its own wait for the run."""
        return self._drivers.setdefault(asyncio.current_task(), self.__await__()).send(value)

    def throw(self, *error: Any) -> Any:
        if asyncio.current_task() not in self._drivers and not self._finished:
            self.send(None)  # cancelled before its first turn: now the driver is where it can catch that
        return self._drivers.setdefault(asyncio.current_task(), self.__await__()).throw(*error)

    def close(self) -> None:
        self._drivers.clear()


@dataclasses.dataclass
class _Stream(AsyncIterator[Event]):
    run: Awaited
    read: int = 0

    async def __anext__(self) -> Event:
        run = self.run
        run._start()
        while self.read >= len(run._stream):
            if run._finished:
                try:
                    run.result()  # raises the error of the run, if it ended with one
                except StopAsyncIteration as error:  # here it would pass for the end of the stream
                    raise RuntimeError("a step raised StopAsyncIteration") from error
                raise StopAsyncIteration
            run._news = run._news or asyncio.Event()
            run._news.clear()
            await run._news.wait()
        self.read += 1
        return run._stream[self.read - 1]


def loop_is_running() -> bool:
    """Whether an event loop runs in this thread."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def run_to_end(run: WorkflowHandler) -> Any:
    """The result of a run, begun here; where an event loop runs already, in a thread with one of its own.

    Ctrl-C cancels the run, whenever it comes, and is raised once the steps have cleaned up. (Raised at once
    it might break into asyncio's own work; and before Python 3.11 a loop that closes cancels all tasks in any
    order, so that a run may cancel a step once more that is cleaning up already.) Further ones are ignored
    meanwhile, unless a step blocks the loop: the next then breaks in, after half a second where nobody heard
    of the cancellation, after `grace` seconds where the run has.
    """
    in_thread, over = loop_is_running(), False
    if in_thread and run._workflow._run_places is not None:
        run._workflow._run_places.expect_free()
    came: list[float] = []  # when Ctrl-C came
    unwanted: list[bool] = []
    orders: list[asyncio.Handle] = []  # to cancel the run

    async def main() -> Any:
        nonlocal over
        try:
            run._start()
            if unwanted:  # since before its loop was known
                run._cancel()
            return await run
        finally:
            over = True

    def stop() -> None:
        unwanted.append(True)
        if run._loop is not None:
            with contextlib.suppress(RuntimeError):  # the loop is closed: the run is over
                orders.append(run._loop.call_soon_threadsafe(run._cancel))

    def interrupt(*_: Any) -> None:
        came.append(time.monotonic())
        limit = 0.5 if run._outcome is None else run._workflow.grace
        if over or came[-1] - came[0] > limit:
            signal.signal(signal.SIGINT, signal.default_int_handler)
            for order in orders if not in_thread else ():
                order.cancel()  # KeyboardInterrupt ends the step that blocks, and that ends the run
            raise KeyboardInterrupt
        stop()
        if in_thread and run._loop is not None and len(came) == 1:
            raise KeyboardInterrupt  # this thread is but waiting; now it waits for `patience` at most

    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        with contextlib.suppress(ValueError):  # not the main thread: Ctrl-C does not come here
            signal.signal(signal.SIGINT, interrupt)
    try:
        if in_thread:
            patience = run._workflow.grace + 1
            return run_async_in_thread(main(), stop, patience, "hello_react workflow")
        return asyncio.run(main())
    finally:
        if signal.getsignal(signal.SIGINT) is interrupt:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        if came:
            raise KeyboardInterrupt


class StateStore(Generic[S]):
    """The state of a context: a dict, or the dataclass or pydantic model named in `Context[MyState]`."""

    def __init__(self, state: S, kind: type | None = None) -> None:
        self._state, self._kind = state, kind or type(state)
        self._editing = threading.Lock()
        self._in_turn: weakref.WeakKeyDictionary[Any, asyncio.Lock] = weakref.WeakKeyDictionary()  # by loop

    async def get(self, key: str, default: Any = MISSING) -> Any:
        """The value under `key` (of a typed state: the attribute), or `default`.

        Raises:
            StateKeyError: there is none, and no default.
        """
        state: Any = self._state
        value = state.get(key, default) if isinstance(state, dict) else (
            getattr(state, key) if self._declares(key) else default)
        if value is MISSING:
            raise StateKeyError(f"the state has no {key!r}: set it first, or give a default")
        return value

    async def set(self, key: str, value: Any) -> None:
        """Puts `value` under `key`.

        Raises:
            StateKeyError: a typed state declares no such attribute.
        """
        self._expect_wanted()
        if isinstance(self._state, dict):
            self._state[key] = value
        elif self._declares(key):
            setattr(self._state, key, value)
        else:
            raise StateKeyError(f"{type(self._state).__name__} declares no {key!r}")

    def _expect_wanted(self) -> None:
        """Refuses what a step changes when its run is over: the state may be another run's by now."""
        job = current_job.get(None)
        if job is not None and job.run.ctx.store is self and job.run._finished:
            job.run._expect_on()

    def _declares(self, key: str) -> bool:
        value = getattr(self._state, key, MISSING)
        is_method = inspect.ismethod(value) and value.__self__ in (self._state, type(self._state))
        return value is not MISSING and not is_method

    async def get_state(self) -> S:
        """The state itself, not a copy."""
        return self._state

    async def set_state(self, state: S) -> None:
        """Replaces the whole state.

        Raises:
            WorkflowRuntimeError: it is of another class.
        """
        self._expect_wanted()
        kind = type(state)
        expect(isinstance(state, self._kind),
               f"the state is a {self._kind.__name__}, not a {kind.__name__}{anew(kind, self._kind)}")
        self._state = state

    @contextlib.asynccontextmanager
    async def edit_state(self) -> AsyncIterator[S]:
        """The state, for changes that take several steps: one such block at a time."""
        self._expect_wanted()
        async with self._in_turn.setdefault(asyncio.get_running_loop(), asyncio.Lock()):
            while not self._editing.acquire(blocking=False):  # a step in a thread may be at it
                await asyncio.sleep(0.001)
            try:
                yield self._state
            finally:
                self._editing.release()


current_job: contextvars.ContextVar[Job] = contextvars.ContextVar("hello_react_workflow_job")
"""The job whose step is at work; set in steps alone."""


class Context(Generic[S]):
    """What the steps of a run share: state, events to send and to gather, the stream, a person's word.

    Steps ask for it with a parameter `ctx: Context`, or `ctx: Context[MyState]` for a typed state (a
    dataclass or pydantic model whose fields all have defaults). Made beforehand and given to one run after
    another, it carries the state from run to run.

    Args:
        workflow: the workflow whose runs it serves.

    Attributes:
        store: the state.
    """

    def __init__(self, workflow: Workflow) -> None:
        expect(not isinstance(workflow, type) and hasattr(workflow, "_step_graph"),
               f"a context is made of a workflow object, as in Context(MyWorkflow()), not {workflow!r:.80}")
        self._workflow, self._graph = workflow, workflow._step_graph()
        make = self._graph.state_type
        try:
            self.store: StateStore[S] = StateStore(make(), make)
        except (TypeError, ValueError) as error:  # a ValueError is pydantic's
            raise WorkflowConfigurationError(f"{make.__name__} needs a default for each field") from error
        self._paused: list[Job] | None = None  # what a run that is new, cancelled or loaded has to do
        self._buffers: dict[tuple[str, str], list[Event]] = {}
        self._unclaimed: list[Event] = []
        self._lock = threading.Lock()
        self._run: WorkflowHandler | None = None

    async def get(self, key: str, default: Any = MISSING) -> Any:
        """Short for `ctx.store.get`: the value under `key`, else `default`.

        Raises:
            StateKeyError: there is none, and no default (it is a KeyError too).
        """
        return await self.store.get(key, default)

    async def set(self, key: str, value: Any) -> None:
        """Short for `ctx.store.set`."""
        await self.store.set(key, value)

    def send_event(self, event: Event, step: str | None = None) -> None:
        """Sends an event to all steps that take it and the waits it satisfies; also from outside the run.

        An event that nobody takes is kept for the next `wait_for_event` that wants it and asks nothing new.

        Args:
            event: the event.
            step: the name of the one step to send it to.

        Raises:
            WorkflowRuntimeError: no run is on, it is no event, or the named step is missing or takes others.
        """
        run = self._expect_run("send_event", event)
        if step is not None:
            steps = run._graph.steps
            expect(isinstance(step, str) and step in steps,
                   f"there is no step {step!r:.80}; there are {', '.join(steps)}")
            takes = steps[step].takes
            expect(isinstance(event, takes), f"step {step!r} does not take {type(event).__name__}, "
                                             f"but {' and '.join(kind.__name__ for kind in takes)}"
                                             f"{anew(type(event), *takes)}")
        run._post(run._route, event, step)

    def write_event_to_stream(self, event: Event) -> None:
        """Shows an event to the readers of `handler.stream_events()`; no step gets it.

        Raises:
            WorkflowRuntimeError: no run goes on, or it is no event.
        """
        run = self._expect_run("write_event_to_stream", event)
        run._post(run._write, event)

    def collect_events(self, event: Event, expected: list[type[E]],
                       buffer_id: str = "default") -> list[E] | None:
        """Gathers events over several calls of a step: all that are `expected`, in that order; None before.

        Events of one class come in order of arrival; surplus ones wait for the next round, others go by.

        Args:
            event: the event at hand.
            expected: the classes, one for each event wanted, such as `[Found] * 3`.
            buffer_id: tells gatherings of the same step apart.

        Raises:
            WorkflowRuntimeError: called outside a step.
        """
        job = self._expect_job("collect_events")
        expect(isinstance(buffer_id, str), f"buffer_id must be text, not {buffer_id!r:.80}")
        return self._gather_once(job, event, expected, buffer_id)

    async def wait_for_event(self, kind: type[E], waiter_event: Event | None = None,
                             waiter_id: str | None = None, requirements: dict[str, Any] | None = None,
                             timeout: float | None = None) -> E:
        """Waits for an event from outside (or from another step), such as a person's word.

        A run that is saved meanwhile, and loaded elsewhere, runs the waiting step again from its start: waits
        that were answered return their answer at once, `waiter_event` is not shown twice, and all else before
        the wait is done twice. Where that matters, let one step return an InputRequiredEvent and another take
        the HumanResponseEvent: then nothing runs twice.

        Args:
            kind: the class of event to wait for.
            waiter_event: the question, shown in the stream as the wait begins; only later answers count.
            waiter_id: names this wait in the saved data; needed only where the order of waits may change.
            requirements: fields that the event must have, with these values.
            timeout: seconds; None waits as long as the run may.

        Raises:
            WorkflowTimeoutError: no such event came in time (it is a TimeoutError too).
            WorkflowRuntimeError: called outside a step.
        """
        job, wanted = self._expect_job("wait_for_event"), matching(kind, requirements)
        expect(waiter_event is None or isinstance(waiter_event, Event),
               f"waiter_event is an event, not {type(waiter_event).__name__}")
        if not (isinstance(timeout, (int, float)) and timeout <= 0):  # one that is over already is no mistake
            check_timeout(timeout)
        run, name = job.run, waiter_id or kind.__name__
        expect(asyncio.get_running_loop() is run._loop, "wait_for_event is for `async def` steps: await it")
        job.waits.append(name)
        key = f"{name} {job.waits.count(name)}"
        if waiter_event is not None and key not in job.announced:
            while self._claim(wanted) is not None:
                pass  # what came before the question is no answer to it
            job.announced.append(key)
            run._write(waiter_event)
        early = None if key in job.answers else self._claim(wanted)
        if early is not None:
            job.answers[key] = early
        if key not in job.answers:
            arrived = run._loop.create_future()
            run._waits[job, key] = wanted, arrived
            try:
                await asyncio.wait([arrived], timeout=timeout)
            finally:
                del run._waits[job, key]
        if key not in job.answers:
            raise WorkflowTimeoutError(f"step {job.spec.name!r} waited {timeout:g} s for {kind.__name__}")
        return job.answers[key]  # type: ignore[return-value]

    def to_dict(self) -> dict[str, Any]:
        """The state, and what the run has still to do, as JSON values; call it in the run's own loop.

        Steps that are done are not run again; one that is under way starts anew when the run goes on. What
        stands in the stream is not shown again: read all its questions before. Private attributes of pydantic
        models are not saved.

        Raises:
            ContextSerializationError: something can't be saved; the message names it.
        """
        def saved(job: Job) -> dict[str, Any]:
            return {"step": job.spec.name, **{
                name: pack(getattr(job, name), f"step {job.spec.name!r}, {name}")
                for name in ("event", "announced", "answers", "collected")}}

        jobs = self._to_do()
        data = {"version": 1, "state": pack(self.store._state, "state"),
                "paused": None if jobs is None else [saved(job) for job in jobs],
                "buffers": [[*key, pack(events, f"step {key[0]!r}, collected")]
                            for key, events in self._buffers.items()],
                "unclaimed": pack(self._unclaimed, "events that nobody took")}
        try:
            self.from_dict(self._workflow, data)
        except ContextSerializationError as error:
            raise ContextSerializationError(f"what is saved could not be loaded again: {error}") from error
        return data

    def _set_to_do(self, start: Event | None) -> None:
        """Leaves nothing to do but this event, and no events left over; of None, all as it is."""
        if start is not None:
            self._paused = [Job(spec, start) for spec in self._graph.takers(type(start))]
            self._buffers.clear()
            self._unclaimed.clear()

    def _keep(self, event: Event, takers: Iterable[StepSpec]) -> None:
        """Adds an event to what there is to do, or to those that nobody took."""
        jobs = [Job(spec, event) for spec in takers]
        self._paused = [*(self._paused or ()), *jobs]
        self._unclaimed += [] if jobs else [event]

    def _take_up(self) -> list[Job]:
        """What a run begins with: that which is still to do."""
        jobs, self._paused = self._paused, None
        return [dataclasses.replace(job, attempts=0, began=0.0) for job in jobs or ()]

    def _gather_once(self, job: Job, event: Event, expected: list[type[E]], buffer: str) -> list[E] | None:
        """As `_gather`, but what a job got from outside counts once, however often its step is tried."""
        job.gathered.append(buffer)
        key = f"{buffer} {job.gathered.count(buffer)}"
        counts_once = any(event is one for one in (job.event, *job.answers.values()))
        known = counts_once and key in job.collected
        result: Any = job.collected[key] if known else self._gather((job.spec.name, buffer), event, expected)
        if counts_once:
            job.collected[key] = result
        return None if result is None else [*result]  # the step may change what it is given

    def _gather(self, key: tuple[str, str], event: Event, expected: list[type[Any]]) -> list[Event] | None:
        """Adds an event to those gathered; once all are there, takes out those `expected`, in that order."""
        if key not in self._buffers:  # once will do: there may be thousands
            check(isinstance(expected, (list, tuple)),
                  f"collect_events takes a list of classes, as in [Found] * 3, not {expected!r:.80}",
                  WorkflowRuntimeError)
            check_kinds("collect_events", *expected)
        with self._lock:  # steps in threads gather, too
            buffer = self._buffers.setdefault(key, [])
            if isinstance(event, tuple(expected)):
                buffer.append(event)
            left, found = list(buffer), {}
            places = range(len(expected) if len(left) >= len(expected) else 0)
            for place in sorted(places, key=lambda place: -len(expected[place].__mro__)):  # subclasses first
                at = next((at for at, one in enumerate(left) if isinstance(one, expected[place])), None)
                if at is not None:
                    found[place] = left.pop(at)
            if len(found) < len(expected):
                return None
            buffer[:] = left
            return [found[place] for place in places]

    def _claim(self, wanted: Callable[[Event], bool]) -> Event | None:
        """Takes out the first of the events that came before anybody wanted them."""
        at = next((at for at, event in enumerate(self._unclaimed) if wanted(event)), None)
        return None if at is None else self._unclaimed.pop(at)

    @classmethod
    def from_dict(cls: type[C], workflow: Workflow, data: dict[str, Any]) -> C:
        """The context that `to_dict` saved; `workflow.run(ctx=...)` without a start event goes on with it.

        Raises:
            ContextSerializationError: it is no saved context, or does not fit this workflow.
        """
        ctx = cls(workflow)
        try:
            check(data["version"] == 1, f"a saved context of version {data['version']} can't be read",
                  ContextSerializationError)
            ctx.store = StateStore(ctx._read(data, "state", ctx._graph.state_type), ctx._graph.state_type)
            for step, key, events in data["buffers"]:
                ctx._buffers[step, key] = ctx._read([events], 0, list, Event)
            ctx._unclaimed = ctx._read(data, "unclaimed", list, Event)
            if data["paused"] is not None:
                ctx._paused = [ctx._read_job(job) for job in data["paused"]]
        except (KeyError, TypeError, ValueError, RecursionError) as error:
            raise ContextSerializationError(f"this is no saved context: {error!r}") from error
        return ctx

    def _read_job(self, data: dict[str, Any]) -> Job:
        graph, name = self._graph, data["step"]
        check(name in graph.steps, f"{graph.owner} has no step {name!r}, which was saved",
              ContextSerializationError)
        spec = graph.steps[name]
        return Job(spec, self._read(data, "event", spec.takes), announced=self._read(data, "announced", list),
                   answers=self._read(data, "answers", dict, Event),
                   collected=self._read(data, "collected", dict, (list, NoneType)))

    def _read(self, data: Any, name: Any, kind: Any, items: Any = object) -> Any:
        value = unpack(data[name], self._graph.classes, type(self._workflow).__module__)
        inside = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
        if not isinstance(value, kind) or not all(isinstance(item, items) for item in inside):
            raise TypeError(f"{name}: {type(value).__name__} does not fit there")
        return value

    def _to_do(self) -> list[Job] | None:
        to_do = self._run._pending() if self._run is not None and self._run._begun else self._paused
        is_over = self._run is not None and self._run._outcome is not None
        return self._paused if is_over else to_do

    def _expect_run(self, method: str, event: Event) -> WorkflowHandler:
        expect(isinstance(event, Event), f"{method} takes an event, not {type(event).__name__}")
        job = current_job.get(None)
        run: Any = job.run if job is not None and job.run.ctx is self else self._run
        expect(run and not run._is_lost(), f"{method} needs a run: begin one with workflow.run(ctx=...)")
        return run  # type: ignore[no-any-return]

    def _expect_job(self, method: str) -> Job:
        job: Any = current_job.get(None)
        expect(job is not None and job.run.ctx is self,
               f"{method} is for steps: call it on the context that a step is given")
        job.run._expect_on()
        return job  # type: ignore[no-any-return]


def matching(kind: type[E], requirements: dict[str, Any] | None) -> Callable[[Event], bool]:
    """Tells the events of a class whose fields have these values."""
    check_kinds("wait_for_event", kind)
    check(requirements is None or isinstance(requirements, dict),
          f"requirements must be a dict of fields and values, not {requirements!r:.80}", WorkflowRuntimeError)
    wanted_fields = dict(requirements or {})

    def wanted(event: Event) -> bool:
        return isinstance(event, kind) and all(
            name in event and event[name] == value for name, value in wanted_fields.items())

    return wanted


def check_kinds(method: str, *kinds: Any) -> None:
    """Refuses what is no class of event."""
    wrong = [kind for kind in kinds if not _is_a(kind, Event)]
    check(not wrong, f"{method} takes a class of event, such as StopEvent, not {wrong[:1]!r:.80}",
          WorkflowRuntimeError)


def pack(value: Any, where: str) -> Any:
    """`value` as JSON can hold it: events, dataclasses, pydantic models and tuples become tagged objects.

    An exception is saved as its text, and comes back as a WorkflowError that says it. A field of a dataclass
    with `metadata={"saved": False}` is left out.

    Args:
        where: names the value in an error, such as "state".

    Raises:
        ContextSerializationError: something in it can't be saved; the message names its place.
    """
    if type(value) is float and not math.isfinite(value):
        return {_TAG: "float", "value": str(value)}
    if value is None or type(value) in (bool, int, float, str):
        return value
    if len(where) > 1000:
        raise ContextSerializationError(f"{where[:60]}... holds itself, or is nested too deeply to be saved")
    if type(value) is list:
        return [pack(item, f"{where}[{at}]") for at, item in enumerate(value)]
    if type(value) is dict and all(type(key) is str for key in value) and _TAG not in value:
        return {key: pack(item, f"{where}[{key!r}]") for key, item in value.items()}
    if type(value) is tuple:
        return {_TAG: "tuple", "value": pack(list(value), where)}
    if isinstance(value, BaseException):
        return {_TAG: "error", "value": f"{type(value).__name__}: {value}"}
    kind = type(value)
    try:
        fields, more = _fields_of(value)
        if isinstance(value, Event) or dataclasses.is_dataclass(value):
            _expect_same(value, fields, more)
    except ValueError as error:
        raise ContextSerializationError(f"{where}: {kind.__name__} can't be saved: {error}") from error
    parts = {"value": fields, "more": more} if more else {"value": fields}
    return {_TAG: f"{kind.__module__}:{kind.__qualname__}", **{
        part: {name: pack(item, f"{where}.{name}") for name, item in values.items()}
        if isinstance(values, dict) else pack(values, where) for part, values in parts.items()}}


def _fields_of(value: Any) -> tuple[Any, dict[str, Any]]:
    """What to make the object of again, and the attributes that it is then to be given."""
    if isinstance(value, Event):
        taken: Any = value._fields or vars(value)
        if isinstance(value, StopEvent):
            taken = (*taken, "result")
        all_fields = vars(value)  # not `value.items()`: a field may have that name
        more = {name: item for name, item in all_fields.items() if name not in taken}
        return {name: item for name, item in all_fields.items() if name in taken}, more
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = [field for field in dataclasses.fields(value)
                  if field.metadata.get("saved", True) and hasattr(value, field.name)]
        made, given = ({field.name: getattr(value, field.name) for field in fields if field.init is init}
                       for init in (True, False))
        return made, given
    if hasattr(type(value), "model_validate"):
        if type(value).__name__.endswith("]"):  # `Box[int]` is not found by its name
            raise ValueError(f"derive a class of it, as in `class Mine({type(value).__name__})`")
        return _dumped(value), {}
    if type(value) is dict:
        raise ValueError(f"the key {_TAG!r} is reserved" if _TAG in value else "its keys must be text")
    raise ValueError("keep JSON values, events, dataclasses or pydantic models there")


def _expect_same(value: Any, fields: dict[str, Any], more: dict[str, Any]) -> None:
    """Refuses an object that would be another one if it were made of these again."""
    try:
        again = _made(type(value), fields, more)
    except ContextSerializationError:  # `to_dict` tells of it
        return
    there = _fields_of(again)[0]
    lost = [name for name, item in fields.items() if [there.get(name, MISSING)] != [item]]
    lost += [name for name in getattr(value, "__dict__", ())
             if name not in vars(again) and not hasattr(type(value), name)]
    if lost:
        raise ValueError(f"{', '.join(lost)} would not come back the same")


def _made(kind: Any, content: Any, more: dict[str, Any]) -> Any:
    try:
        made = kind.model_validate(content) if hasattr(kind, "model_validate") else kind(**content)
        for name, item in more.items():
            object.__setattr__(made, name, item)  # also where the class is frozen
    except (TypeError, ValueError, AttributeError, WorkflowError) as error:
        raise ContextSerializationError(f"the saved {kind.__name__} can't be read: {error}") from error
    return made


def _dumped(model: Any) -> Any:
    """A pydantic model as JSON values, of which a model like it can be made."""
    lost: list[str] = []
    for by_alias in (False, True):
        dumped = model.model_dump(mode="json", by_alias=by_alias, round_trip=True)
        with contextlib.suppress(ValueError):
            again = type(model).model_validate(dumped)
            lost = [name for name, field in type(model).model_fields.items()
                    if not field.exclude and [getattr(again, name)] != [getattr(model, name)]]
            if not lost and again.model_extra == model.model_extra:
                return dumped
    raise ValueError(f"{', '.join(lost) or 'it'} would not come back the same")


def unpack(value: Any, known: Iterable[type] = (), home: str = "") -> Any:
    """The value that `pack` made this of. Only classes that are loaded already are used; nothing is imported.

    Args:
        known: classes found by name alone, also when their module is called otherwise here (as `__main__`).
        home: a module to look for other classes in.

    Raises:
        ContextSerializationError: a class is not there, or the data does not fit it.
    """
    if isinstance(value, list):
        return [unpack(item, known, home) for item in value]
    if not isinstance(value, dict):
        return value
    if _TAG not in value:
        return {key: unpack(item, known, home) for key, item in value.items()}
    content = unpack(value.get("value"), known, home)
    if value[_TAG] == "tuple" and isinstance(content, list):
        return tuple(content)
    if value[_TAG] == "error":
        return WorkflowError(content)
    if value[_TAG] == "float":
        return float(content)
    more = unpack(value.get("more", {}), known, home)
    return _made(_find_class(str(value[_TAG]), known, home), content, more)


def _find_class(tag: str, known: Iterable[type], home: str) -> Any:
    module, _, name = tag.partition(":")
    named = [kind for kind in known if kind.__qualname__ == name]
    loaded, at_home = (functools.reduce(lambda owner, part: getattr(owner, part, None), name.split("."),
                                        cast(Any, sys.modules.get(place))) for place in (module, home))
    local = [kind for kind in subclasses(Event) if (kind.__module__, kind.__qualname__) == (module, name)]
    # "__main__" was perhaps another script: there, the name counts for more than the module.
    by_name = [*named, at_home, loaded] if module == "__main__" else [loaded, *named, at_home]
    for kind in [*(kind for kind in named if kind.__module__ == module), *by_name, *reversed(local)]:
        if isinstance(kind, type) and (
                issubclass(kind, Event) or dataclasses.is_dataclass(kind) or hasattr(kind, "model_validate")):
            return kind
    remedy = "define it outside of a function" if "<locals>" in name else f"import {module} before loading"
    raise ContextSerializationError(f"the saved data needs the class {name}: {remedy}")


def subclasses(kind: type[E]) -> Iterator[type[E]]:
    """All classes derived from this one."""
    for sub in kind.__subclasses__():
        yield sub
        yield from subclasses(sub)
