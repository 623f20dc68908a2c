"""The side of a step: how it is declared, how steps fit together, and the context it is given.

The annotations of a step are all there is to read: the events it takes (its parameter) and returns. `Graph`
puts the steps of one workflow class together, refuses those that can't work before anything runs, and draws
them. A `Job` is one event at one step. `workflow.py` runs the jobs; users import every name from there.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import dataclasses
import inspect
import sys
import threading
import types
from collections import ChainMap
from collections.abc import Callable, Iterable, Mapping
from typing import (
    TYPE_CHECKING,
    Any,
    Generic,
    NamedTuple,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
    overload,
)

from .workflow_state import (
    MISSING,
    ContextSerializationError,
    Event,
    HumanResponseEvent,
    InputRequiredEvent,
    RetryPolicy,
    StartEvent,
    StateStore,
    StepFailedEvent,
    StopEvent,
    WorkflowCancelledError,
    WorkflowConfigurationError,
    WorkflowRuntimeError,
    WorkflowTimeoutError,
    check_number,
    pack,
    unpack,
)

if TYPE_CHECKING:
    from .workflow import Workflow, _Run

E = TypeVar("E", bound=Event)
S = TypeVar("S")
F = TypeVar("F", bound=Callable[..., Any])
_FROM_OUTSIDE = (StartEvent, HumanResponseEvent, StepFailedEvent)  # no step need return these
_TO_OUTSIDE = (StopEvent, InputRequiredEvent)  # no step need take these


@dataclasses.dataclass(frozen=True)
class StepSpec:
    """A step: its function, its options, and what its annotations say (empty until they can be read)."""

    name: str
    function: Callable[..., Any]
    is_async: bool
    num_workers: int = 4
    retry_policy: RetryPolicy | None = None
    for_steps: tuple[str, ...] | None = None
    free: bool = False  # a function added by add_step: called without self
    takes: tuple[type[Event], ...] = ()
    returns: tuple[type[Event], ...] = ()
    may_return_none: bool = False
    event_parameter: str = ""
    context_parameter: str | None = None
    state_type: Any = None

    def read(self, names: Mapping[str, Any]) -> StepSpec:
        """This step with its annotations read; NameError if one names what is not defined yet."""
        hints = get_type_hints(self.function, localns=dict(names))
        found: dict[str, Any] = {}
        for name, parameter in inspect.signature(self.function).parameters.items():
            hint = hints.get(name)
            if (get_origin(hint) or hint) is Context:
                state = next(iter(get_args(hint)), Any)
                found.update(context_parameter=name,
                             state_type=None if state is Any or isinstance(state, TypeVar) else state)
            elif name in hints and all(map(_is_event, _members(hint, but=types.NoneType))):
                if "takes" in found:
                    raise self.wrong(f"takes two events, {found['event_parameter']!r} and {name!r}: "
                                     "take one, annotated with both classes, as in `ev: A | B`")
                found.update(event_parameter=name, takes=_members(hint, but=types.NoneType))
            elif name != "self" and parameter.default is parameter.empty:
                raise self.wrong(f"has a parameter {name!r} that is no event: annotate it with the class of "
                                 f"event that the step takes, as in `{name}: StartEvent`, or with Context")
        if "takes" not in found:
            raise self.wrong("takes no event: add a parameter, as in `ev: StartEvent`")
        if "return" not in hints:
            raise self.wrong("does not say what it returns: annotate it, as in `-> StopEvent` (or `-> None`)")
        returns = _members(hints["return"])
        for kind in returns:
            if not _is_event(kind) and kind is not types.NoneType:
                raise self.wrong(f"is annotated to return {getattr(kind, '__name__', kind)}: "
                                 "a step returns an event or None")
        return dataclasses.replace(self, **found, returns=tuple(filter(_is_event, returns)),
                                   may_return_none=types.NoneType in returns)

    def wrong(self, what: str) -> WorkflowConfigurationError:
        """The error that says so of this step."""
        return WorkflowConfigurationError(f"step {self.name!r} {what}")


def _members(hint: Any, but: Any = None) -> tuple[Any, ...]:
    kinds = get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)
    return tuple(kind for kind in kinds if kind is not but)


def _is_event(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, Event)


@overload
def step(function: F) -> F: ...
@overload
def step(*, workflow: type[Workflow] | None = None, num_workers: int = 4,
         retry_policy: RetryPolicy | None = None) -> Callable[[F], F]: ...
def step(function: Any = None, *, workflow: type[Workflow] | None = None, num_workers: int = 4,
         retry_policy: RetryPolicy | None = None) -> Any:
    """Makes a method a step of its workflow: it runs for each event of the classes in its annotation.

    An event goes to every step that names its class, else to those that name its nearest base class. A step
    may also take a `Context`. `async def` steps run on the event loop; plain `def` steps run in a worker
    thread, so they may block, and they may use the methods of `Context` that are not awaited.

    Args:
        workflow: for a plain function: the workflow class to add it to (as `add_step` does).
        num_workers: how many events of one run the step works on at a time; the others wait in order.
        retry_policy: whether and when to try again after an error; never, if None.

    Raises:
        WorkflowConfigurationError: annotations are missing or unusable, or the class has a step of that name.
    """
    check_number("num_workers", num_workers, 1, int)
    if retry_policy is not None and not isinstance(retry_policy, RetryPolicy):
        raise WorkflowConfigurationError(f"retry_policy must be a RetryPolicy or None, not {retry_policy!r}")

    def decorate(function: F) -> F:
        _declare(function, num_workers=num_workers, retry_policy=retry_policy)
        if workflow is not None:
            workflow.add_step(function)
        return function

    return decorate if function is None else decorate(function)


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
    if isinstance(for_steps, str):
        raise WorkflowConfigurationError(f"for_steps must be a list of names, as in [{for_steps!r}]")

    def decorate(function: F) -> F:
        spec = _declare(function, for_steps=None if for_steps is None else tuple(for_steps))
        if spec.takes and spec.takes != (StepFailedEvent,):
            raise spec.wrong("is an error handler: annotate its parameter with StepFailedEvent")
        return function

    return decorate if function is None else decorate(function)


def _declare(function: Any, **options: Any) -> StepSpec:
    spec = StepSpec(function.__name__, function, inspect.iscoroutinefunction(function), **options)
    frame: Any = sys._getframe()
    while frame.f_globals is globals():
        frame = frame.f_back
    if "__qualname__" in frame.f_locals and hasattr(frame.f_locals.get(spec.name), "_step"):
        raise spec.wrong("stands twice in its class: give one of the two another name")
    scopes = []
    while frame is not None:  # a class that an enclosing function defines is only found in its frame
        if frame.f_globals is inspect.unwrap(function).__globals__:
            scopes.append(frame.f_locals)
        frame = frame.f_back
    with contextlib.suppress(NameError):  # an event defined further down: read again when the graph is made
        spec = spec.read(ChainMap(*scopes))
    function._step = spec
    return spec


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

    def __init__(self, owner: str, specs: Mapping[str, StepSpec], names: Mapping[str, Any]) -> None:
        self.owner = owner
        self.steps: dict[str, StepSpec] = {}
        for name, spec in specs.items():
            try:
                self.steps[name] = dataclasses.replace(spec if spec.takes else spec.read(names), name=name)
            except NameError as error:
                raise spec.wrong(f"has an annotation that can't be read ({error}): define or import the "
                                 "class before the workflow") from None
        self._routes: dict[type, tuple[StepSpec, ...]] = {}
        self._taken = {kind: spec.name for spec in self.steps.values() for kind in spec.takes}
        self._returned = {kind: spec.name for spec in self.steps.values() for kind in spec.returns}
        states = {get_origin(spec.state_type) or spec.state_type for spec in self.steps.values()} - {None}
        problems = self._ends() or [*self._events(), *self._handlers(), *self._paths()]
        if len(states) > 1:
            problems.append(f"the steps name {len(states)} state types: a context has one state")
        if problems:
            problems[:0] = [f"{len(problems)} problems"] if len(problems) > 1 else []
            raise WorkflowConfigurationError(f"{owner}: " + "\n- ".join(problems))
        self.start = next(kind for kind in self._taken if issubclass(kind, StartEvent))
        self.state_type: Any = next(iter(states), dict)
        self.classes = (*self._taken, *self._returned, self.state_type)

    def takers(self, kind: type[Event]) -> tuple[StepSpec, ...]:
        """The steps that name this class of event, else those that name its nearest base class."""
        found = self._routes.get(kind)
        if found is None:
            steps = self.steps.values()
            named = (tuple(spec for spec in steps if base in spec.takes) for base in kind.__mro__)
            found = self._routes[kind] = next(filter(None, named), ())
        return found

    def handler(self, failed: StepSpec) -> StepSpec | None:
        """The error handler of a step: one that names it, else the general one; a handler has none."""
        handlers = [spec for spec in self.steps.values() if StepFailedEvent in spec.takes]
        if failed in handlers:
            return None
        naming = [spec for spec in handlers if failed.name in (spec.for_steps or ())]
        return next(iter(naming or [spec for spec in handlers if spec.for_steps is None]), None)

    def draw(self) -> str:
        """The graph as a Mermaid flowchart."""
        lines = ["flowchart TD", *(f'    step_{name}["{name}"]' for name in self.steps)]
        kinds = {**self._taken, **self._returned}
        lines += [f'    event_{kind.__name__}(["{kind.__name__}"])' for kind in kinds]
        for name, spec in self.steps.items():
            lines += [f"    event_{kind.__name__} --> step_{name}" for kind in spec.takes]
            lines += [f"    step_{name} --> event_{kind.__name__}" for kind in spec.returns]
        return "\n".join(lines) + "\n"

    def _ends(self) -> list[str]:
        if not self.steps:
            return ["there are no steps: put @step on its methods"]
        starts = [kind.__name__ for kind in self._taken if issubclass(kind, StartEvent)]
        stops = [kind.__name__ for kind in self._returned if issubclass(kind, StopEvent)]
        problems = []
        if not starts:
            problems.append("no step takes the start event: add a step with `ev: StartEvent`")
        if not stops:
            problems.append("no step returns a stop event, so no run can end: add a step with `-> StopEvent`")
        for kinds, what in ((starts, "start"), (stops, "stop")):
            if len(kinds) > 1:
                problems.append(f"there is more than one kind of {what} event ({', '.join(kinds)}): keep one")
        return problems

    def _events(self) -> list[str]:
        problems = []
        for kind, name in self._taken.items():
            if issubclass(kind, StopEvent):
                problems.append(f"step {name!r} takes {kind.__name__}, which ends a run: take another event")
            elif kind in self._orphans():
                problems.append(f"step {name!r} takes {kind.__name__}, but no step returns it: annotate the "
                                f"one that does with `-> {kind.__name__}`, or derive the event from "
                                "HumanResponseEvent if it comes from outside")
        for kind, name in self._returned.items():
            if not issubclass(kind, _TO_OUTSIDE) and not self.takers(kind):
                problems.append(f"step {name!r} returns {kind.__name__}, but no step takes it: "
                                f"add a step with `ev: {kind.__name__}`")
        return problems

    def _orphans(self) -> set[type[Event]]:
        return {kind for kind in self._taken if not issubclass(kind, _FROM_OUTSIDE)
                and not any(issubclass(returned, kind) for returned in self._returned)}

    def _handlers(self) -> list[str]:
        named = [name for spec in self.steps.values() for name in spec.for_steps or ()]
        problems = [f"an error handler names the step {name!r}, which is not there"
                    for name in named if name not in self.steps]
        problems += [f"two error handlers name the step {name!r}: keep one"
                     for name in dict.fromkeys(named) if named.count(name) > 1]
        if sum(StepFailedEvent in spec.takes and spec.for_steps is None for spec in self.steps.values()) > 1:
            problems.append("two error handlers serve all steps: keep one, or name steps with for_steps")
        return problems

    def _paths(self) -> list[str]:
        reached: set[str] = set()
        todo: list[type[Event]] = [kind for kind in self._taken if issubclass(kind, _FROM_OUTSIDE)]
        while todo:
            for spec in self.takers(todo.pop()):
                if spec.name not in reached:
                    reached.add(spec.name)
                    todo += spec.returns
        lost = [name for name, spec in self.steps.items()
                if name not in reached and not self._orphans() & set(spec.takes)]
        ending: set[str] = set()
        for _ in self.steps:  # each round finds the steps one event further from an end
            ending |= {name for name, spec in self.steps.items() if spec.may_return_none or any(
                issubclass(kind, _TO_OUTSIDE) or not self.takers(kind)
                or any(taker.name in ending for taker in self.takers(kind)) for kind in spec.returns)}
        stuck = [name for name in self.steps if name in reached - ending]
        problems = []
        if lost:
            problems.append(f"no run gets to {listed(lost)}: let a step that is reached return what it takes")
        if stuck:
            problems.append(f"no run gets out of {listed(stuck)}: let one of them also return a StopEvent, "
                            "or an event that leads to one")
        return problems


def listed(names: Iterable[str]) -> str:
    """The names of steps for a message, each once: "step 'a'", "steps 'a', 'b'"."""
    names = list(dict.fromkeys(names))
    return f"step{'s' if len(names) > 1 else ''} {', '.join(map(repr, names))}"


class Job:
    """One event at one step, from its first attempt to its last.

    Attributes:
        attempts: how often the step was called for it.
        began: when the first attempt did, on the clock of the event loop.
        run: the run it is part of (of its last attempt).
        task: its last attempt, and `retry` the timer of the next one, if any.
        waits: the names of the waits of this attempt, in order.
        announced, answers, collected: what an attempt said to and got from outside, for the next one to find.
    """

    __slots__ = ("announced", "answers", "attempts", "began", "collected", "event", "retry", "run", "spec",
                 "task", "waits")

    def __init__(self, spec: StepSpec, event: Event) -> None:
        self.spec = spec
        self.event = event
        self.attempts = 0
        self.began = 0.0
        self.run: Any = None
        self.task: asyncio.Task[Any] | None = None
        self.retry: asyncio.TimerHandle | None = None
        self.waits: list[str] = []
        self.announced: list[str] = []
        self.answers: dict[str, Event] = {}
        self.collected: dict[str, list[Event] | None] = {}

    def to_dict(self) -> dict[str, Any]:
        """Its JSON form; raises ContextSerializationError."""
        what = {"event": self.event, "announced": self.announced, "answers": self.answers,
                "collected": self.collected}
        return {"step": self.spec.name,
                **{name: pack(value, f"step {self.spec.name!r}, {name}") for name, value in what.items()}}

    @classmethod
    def from_dict(cls, graph: Graph, data: Mapping[str, Any]) -> Job:
        """The job that `to_dict` saved; raises ContextSerializationError if the step is gone."""
        if data["step"] not in graph.steps:
            raise ContextSerializationError(f"{graph.owner} has no step {data['step']!r}, which was saved")
        spec = graph.steps[data["step"]]
        job = cls(spec, _loaded(data, "event", graph, spec.takes))
        job.announced = _loaded(data, "announced", graph, list)
        job.answers = _loaded(data, "answers", graph, dict, Event)
        job.collected = _loaded(data, "collected", graph, dict, (list, types.NoneType))
        return job


def _loaded(data: Any, name: Any, graph: Graph, kind: Any, items: Any = object) -> Any:
    """What was saved under this name; TypeError if it, or an item in it, is of another kind."""
    value = unpack(data[name], graph.classes)
    inside = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    if not isinstance(value, kind) or not all(isinstance(item, items) for item in inside):
        raise TypeError(f"{name}: {type(value).__name__} does not fit there")
    return value


current: contextvars.ContextVar[Job] = contextvars.ContextVar("hello_react_workflow_job")
"""The job that the running code works on; unset outside of steps."""


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
        self._workflow = workflow
        make: Any = workflow._checked_graph().state_type
        try:
            self.store: StateStore[S] = StateStore(make())
        except TypeError as error:
            raise WorkflowConfigurationError(f"{make.__name__} needs a default for each field") from error
        self._run: _Run | None = None
        self._paused: list[Job] | None = None  # what a cancelled or loaded run has still to do
        self._buffers: dict[tuple[str, str], list[Event]] = {}
        self._unclaimed: list[Event] = []
        self._lock = threading.Lock()

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
        if step is not None and step not in run.graph.steps:
            raise WorkflowRuntimeError(f"there is no step {step!r}; there are {', '.join(run.graph.steps)}")
        if step is not None and not isinstance(event, run.graph.steps[step].takes):
            takes = " and ".join(kind.__name__ for kind in run.graph.steps[step].takes)
            raise WorkflowRuntimeError(f"step {step!r} does not take {type(event).__name__}, but {takes}")
        run.post(run.route, event, step)

    def write_event_to_stream(self, event: Event) -> None:
        """Shows an event to the readers of `handler.stream_events()`; no step gets it.

        Raises:
            WorkflowRuntimeError: no run goes on, or it is no event.
        """
        run = self._expect_run("write_event_to_stream", event)
        run.post(run.write, event)

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
        if event is job.event and buffer_id in job.collected:  # another attempt: its event was counted before
            return job.collected[buffer_id]  # type: ignore[return-value]
        with self._lock:
            buffer = self._buffers.setdefault((job.spec.name, buffer_id), [])
            if isinstance(event, tuple(expected)):
                buffer.append(event)
            left, found = list(buffer), []
            for kind in expected if len(left) >= len(expected) else ():
                at = next((at for at, one in enumerate(left) if isinstance(one, kind)), None)
                if at is not None:
                    found.append(left.pop(at))
            complete = len(found) == len(expected)
            if complete:
                buffer[:] = left
        result: Any = found if complete else None
        if event is job.event:
            job.collected[buffer_id] = result
        return result  # type: ignore[no-any-return]

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
        job = self._expect_job("wait_for_event")
        run, name = job.run, waiter_id or kind.__name__
        job.waits.append(name)
        key = f"{name} {job.waits.count(name)}"
        if key in job.answers:
            return job.answers[key]  # type: ignore[return-value]
        waiter = Waiter(kind, requirements or {}, run.loop.create_future())
        if waiter_event is not None and key not in job.announced:
            self._unclaimed[:] = [event for event in self._unclaimed if not waiter.wants(event)]
            job.announced.append(key)
            run.write(waiter_event)
        early = next((at for at, event in enumerate(self._unclaimed) if waiter.wants(event)), None)
        if early is not None:
            job.answers[key] = self._unclaimed.pop(early)
            return job.answers[key]  # type: ignore[return-value]
        run.waiters.append(waiter)
        try:
            await asyncio.wait([waiter.future], timeout=timeout)
        finally:
            run.waiters.remove(waiter)
        if not waiter.future.done():
            raise WorkflowTimeoutError(f"step {job.spec.name!r} waited {timeout:g} s for {kind.__name__}")
        job.answers[key] = waiter.future.result()
        return job.answers[key]  # type: ignore[return-value]

    def to_dict(self) -> dict[str, Any]:
        """The state, and what the run has still to do, as JSON values; call it in the run's own loop.

        Steps that are done are not run again; one that is under way starts anew when the run goes on.

        Raises:
            ContextSerializationError: something can't be saved; the message names it.
        """
        jobs = self._run.pending() if self._run is not None and self._run.begun else self._paused
        return {"version": 1, "state": pack(self.store._state, "state"),
                "paused": None if jobs is None else [job.to_dict() for job in jobs],
                "buffers": [[*key, pack(events, f"step {key[0]!r}, collected")]
                            for key, events in self._buffers.items()],
                "unclaimed": pack(self._unclaimed, "events that nobody took")}

    @classmethod
    def from_dict(cls, workflow: Workflow, data: dict[str, Any]) -> Context[S]:
        """The context that `to_dict` saved; `workflow.run(ctx=...)` without a start event goes on with it.

        Raises:
            ContextSerializationError: it is no saved context, or does not fit this workflow.
        """
        ctx, graph = cls(workflow), workflow._checked_graph()
        try:
            if data["version"] != 1:
                raise ContextSerializationError(f"a saved context of version {data['version']} can't be read")
            ctx.store = StateStore(_loaded(data, "state", graph, graph.state_type))
            ctx._buffers = {(step, key): _loaded({"collected": events}, "collected", graph, list, Event)
                            for step, key, events in data["buffers"]}
            ctx._unclaimed = _loaded(data, "unclaimed", graph, list, Event)
            if data["paused"] is not None:
                ctx._paused = [Job.from_dict(graph, job) for job in data["paused"]]
        except (KeyError, TypeError, ValueError, RecursionError) as error:
            raise ContextSerializationError(f"this is no saved context: {error!r}") from error
        return ctx

    def _begin(self, resumed: bool) -> list[Job]:
        jobs = self._paused if resumed and self._paused else []
        self._paused = None
        if not resumed:
            self._buffers.clear()
            self._unclaimed.clear()
        for job in jobs:
            job.attempts = 0
        return jobs

    def _expect_run(self, method: str, event: Event) -> _Run:
        if not isinstance(event, Event):
            raise WorkflowRuntimeError(f"{method} takes an event, not {type(event).__name__}")
        job = current.get(None)
        run: _Run | None = job.run if job is not None and job.run.ctx is self else self._run
        if run is None:
            raise WorkflowRuntimeError(f"{method} needs a run: begin one with workflow.run(ctx=...)")
        return run

    def _expect_job(self, method: str) -> Job:
        job = current.get(None)
        if job is None or job.run.ctx is not self:
            raise WorkflowRuntimeError(f"{method} is for steps: call it on the context that a step is given")
        if job.run.outcome is not None:
            raise WorkflowCancelledError("the run is over: what this step does is no longer wanted")
        return job


class Waiter(NamedTuple):
    """A step that waits for an event."""

    kind: type[Event]
    requirements: dict[str, Any]
    future: asyncio.Future[Any]

    def wants(self, event: Event) -> bool:
        """Whether this event is what it waits for."""
        fields = vars(event)
        return isinstance(event, self.kind) and not self.future.done() and all(
            name in fields and fields[name] == value for name, value in self.requirements.items())
