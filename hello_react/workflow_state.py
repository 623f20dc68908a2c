"""The state of a run and its saved form (users import every name from `workflow.py`).

`StateStore` is what the steps of a run keep for each other; a `Job` is one event at one step; in `Places`
runs wait for their turn. `pack` makes JSON of a state and of events, and `unpack` makes them again.

    >>> pack({"asked": ("Berlin", 2)}, "state")
    {'asked': {'__type__': 'tuple', 'value': ['Berlin', 2]}}
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import dataclasses
import functools
import inspect
import math
import sys
import threading
import weakref
from collections import deque
from collections.abc import AsyncIterator, Iterable
from dataclasses import MISSING
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast

from .workflow_events import (
    ContextSerializationError,
    Event,
    StateKeyError,
    StopEvent,
    WorkflowError,
    anew,
    expect,
    subclasses,
)

if TYPE_CHECKING:
    from .workflow import WorkflowHandler
    from .workflow_context import Awaited
    from .workflow_steps import StepSpec

S = TypeVar("S")
_TAG = "__type__"
_FILES = {f"hello_react.workflow_{name}" for name in ("events", "steps", "context", "state", "parts")}
"""The files of the engine; "parts" is of an earlier layout, whose saved states are still read."""


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


current_job: contextvars.ContextVar[Job] = contextvars.ContextVar("hello_react_workflow_job")
"""The job whose step is at work; set in steps alone."""


class StateStore(Generic[S]):
    """The state of a context: a dict, or the dataclass or pydantic model named in `Context[MyState]`."""

    def __init__(self, state: S, kind: type | None = None) -> None:
        self._state, self._kind = state, kind or type(state)
        self._editing = threading.Lock()
        self._in_turn: weakref.WeakKeyDictionary[Any, asyncio.Lock] = weakref.WeakKeyDictionary()  # by loop
        self._editor: Any = None

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
        editor = asyncio.current_task()
        expect(editor is None or self._editor is not editor,
               "edit_state stands inside another one, for which it would wait: change the state of that")
        async with self._in_turn.setdefault(asyncio.get_running_loop(), asyncio.Lock()):
            while not self._editing.acquire(blocking=False):  # a step in a thread may be at it
                await asyncio.sleep(0.001)
            try:
                self._editor = editor
                yield self._state
            finally:
                self._editor = None
                self._editing.release()


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
    return {_TAG: f"{_public(kind.__module__)}:{kind.__qualname__}", **{
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


def _public(module: str) -> str:
    """Where users import from: what is saved must not tell in which file of the engine a class stands."""
    return "hello_react.workflow" if module in _FILES else module


def _find_class(tag: str, known: Iterable[type], home: str) -> Any:
    module, _, name = tag.partition(":")
    module = _public(module)
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
