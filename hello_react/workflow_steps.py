"""The steps of a workflow, and how they fit together (users import every name from `workflow.py`).

The annotations of a step say which events it takes and returns; `Graph` puts the steps of one class together,
and refuses those that can't work. No step runs here: that is the engine, `workflow.py`.
"""

from __future__ import annotations

import contextlib
import dataclasses
import inspect
import itertools
import sys
import traceback
import typing
from collections import ChainMap
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator
from pathlib import Path
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Any, TypeVar, Union, overload

from .workflow_context import Context
from .workflow_events import (
    FROM_OUTSIDE,
    TO_OUTSIDE,
    Event,
    StartEvent,
    StepFailedEvent,
    StopEvent,
    WorkflowRuntimeError,
    check,
    check_number,
    is_a,
    listed,
)

if TYPE_CHECKING:
    from .workflow import Workflow

F = TypeVar("F", bound=Callable[..., Any])


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
            elif kinds and all(is_a(_origin(kind), Context) for kind in kinds):
                self.parameters[name] = "context"
                for state in typing.get_args(kinds[0]):
                    if state is not Any and not isinstance(state, TypeVar):
                        self.state_type = dict if hasattr(state, "__total__") else _origin(state)
            elif kinds and all(is_a(_origin(kind), Event) for kind in kinds):
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
            self.check(kind is NoneType or is_a(kind, Event),
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
