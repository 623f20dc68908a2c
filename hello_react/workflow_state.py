"""What a workflow moves around: events, state, retry policies, errors, and the JSON form that saves them.

Nothing runs here: `workflow_steps.py` has the side of a step, `workflow.py` the engine; users import every
name from there.

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
import copy
import dataclasses
import functools
import inspect
import sys
from collections.abc import AsyncIterator, ItemsView, Iterable, Iterator, KeysView, ValuesView
from contextlib import asynccontextmanager
from typing import Any, ClassVar, Generic, TypeVar, cast

from .errors import HelloReactError

S = TypeVar("S")
MISSING: Any = object()
"""Stands for a default that was not given."""
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


def check_number(name: str, value: Any, least: int, kind: Any) -> None:
    """Refuses an option that is no number of this kind, or below the least one."""
    if isinstance(value, bool) or not isinstance(value, kind) or not value >= least:
        whole = "whole " if kind is int else ""
        raise WorkflowConfigurationError(f"{name} must be a {whole}number from {least} on, not {value!r}")


class Event:
    """What steps pass to each other: a class with its fields as annotations, made by keyword.

    A class that declares fields takes exactly these; those with a default may be left out. A list, dict or
    set as a default is copied for each event, and `dataclasses.field(default_factory=...)` works too. A class
    that declares none takes any keyword. Values may be any Python object and are not converted. Fields read
    as attributes (`ev.city`) or as in a dict (`ev["city"]`, `ev.get("city", "Berlin")`, `"city" in ev`).

    Raises:
        EventFieldError: a field is missing or unknown.
    """

    _fields: ClassVar[dict[str, Any]] = {}

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        declared = [name for name, hint in inspect.get_annotations(cls).items()
                    if not name.startswith("_") and "ClassVar" not in str(hint)]
        cls._fields = {**cls._fields, **dict.fromkeys(declared, MISSING)}
        for name in cls._fields.keys() & vars(cls).keys():
            if not isinstance(vars(cls)[name], property):
                cls._fields[name] = vars(cls)[name]

    def __init__(self, /, **fields: Any) -> None:
        declared = self._fields
        if declared:
            given, fields = fields, {}
            for name, default in declared.items():
                fields[name] = given.pop(name) if name in given else _fresh(default)
            missing = [name for name, value in fields.items() if value is MISSING]
            if missing or given:
                wrong = [f"missing {name!r}" for name in missing] + [f"unknown {name!r}" for name in given]
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

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        fields = ", ".join(f"{name}={value!r}" for name, value in vars(self).items())
        return f"{type(self).__name__}({fields})"


class StartEvent(Event):
    """Begins a run: holds the keywords given to `Workflow.run`. Subclass it to declare them."""


class StopEvent(Event):
    """Ends a run. Awaiting the run gives its `result`; of a subclass, the event itself.

    Args:
        result: any object.
        fields: more fields, as with any event.
    """

    def __init__(self, result: Any = None, **fields: Any) -> None:
        super().__init__(**fields, **({"result": result} if "result" in self._fields else {}))
        self.__dict__["result"] = result


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
        if not all(isinstance(kind, type) and issubclass(kind, BaseException) for kind in kinds):
            raise WorkflowConfigurationError(
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
        delay = self.delay
        for _ in range(attempts - 1):
            delay = min(delay * self.multiplier, self.max_delay)
        return min(delay, self.max_delay)


class StateStore(Generic[S]):
    """The state of a context: a dict, or the dataclass or pydantic model named in `Context[MyState]`."""

    def __init__(self, state: S) -> None:
        self._state = state
        self._loop: asyncio.AbstractEventLoop | None = None

    async def get(self, key: str, default: Any = MISSING) -> Any:
        """The value under `key` (of a typed state: the attribute), or `default`.

        Raises:
            StateKeyError: there is none, and no default.
        """
        if isinstance(self._state, dict):
            value = self._state.get(key, default)
        else:
            value = getattr(self._state, key, default)
        if value is MISSING:
            raise StateKeyError(f"the state has no {key!r}: set it first, or give a default")
        return value

    async def set(self, key: str, value: Any) -> None:
        """Puts `value` under `key`.

        Raises:
            StateKeyError: a typed state declares no such attribute.
        """
        if isinstance(self._state, dict):
            self._state[key] = value
        elif hasattr(self._state, key):
            setattr(self._state, key, value)
        else:
            raise StateKeyError(f"{type(self._state).__name__} declares no {key!r}")

    async def get_state(self) -> S:
        """The state itself, not a copy."""
        return self._state

    async def set_state(self, state: S) -> None:
        """Replaces the whole state."""
        self._state = state

    @asynccontextmanager
    async def edit_state(self) -> AsyncIterator[S]:
        """The state, for changes that take several steps: one such block at a time."""
        loop = asyncio.get_running_loop()
        if self._loop is not loop:  # a lock serves one event loop, a context may see several
            self._loop, self._lock = loop, asyncio.Lock()
        async with self._lock:
            yield self._state


def pack(value: Any, where: str) -> Any:
    """`value` as JSON can hold it: events, dataclasses, pydantic models and tuples become tagged objects.

    An exception is saved as its text, and comes back as a WorkflowError that says it.

    Args:
        where: names the value in an error, such as "state".

    Raises:
        ContextSerializationError: something in it can't be saved; the message names its place.
    """
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
    if isinstance(value, Event):
        fields = vars(value)
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {field.name: getattr(value, field.name) for field in dataclasses.fields(value) if field.init}
    elif hasattr(type(value), "model_validate"):
        try:
            fields = value.model_dump(mode="json")
        except ValueError as error:
            problem = f"{where}: {type(value).__name__} can't be saved: {error}"
            raise ContextSerializationError(problem) from error
    else:
        raise ContextSerializationError(
            f"{where}: {type(value).__name__} can't be saved; keep JSON values, events, dataclasses "
            "or pydantic models there")
    kind = type(value)
    packed = {name: pack(item, f"{where}.{name}") for name, item in fields.items()}
    return {_TAG: f"{kind.__module__}:{kind.__qualname__}", "value": packed}


def unpack(value: Any, known: Iterable[type] = ()) -> Any:
    """The value that `pack` made this of. Only classes that are loaded already are used; nothing is imported.

    Args:
        known: classes found by name alone, also when their module is called otherwise here (as `__main__`).

    Raises:
        ContextSerializationError: a class is not there, or the data does not fit it.
    """
    if isinstance(value, list):
        return [unpack(item, known) for item in value]
    if not isinstance(value, dict):
        return value
    if _TAG not in value:
        return {key: unpack(item, known) for key, item in value.items()}
    content = unpack(value.get("value"), known)
    if value[_TAG] == "tuple" and isinstance(content, list):
        return tuple(content)
    if value[_TAG] == "error":
        return WorkflowError(content)
    kind = _find_class(str(value[_TAG]), known)
    try:
        return kind.model_validate(content) if hasattr(kind, "model_validate") else kind(**content)
    except (TypeError, ValueError, WorkflowError) as error:
        raise ContextSerializationError(f"the saved {kind.__name__} can't be read: {error}") from error


def _fresh(default: Any) -> Any:
    if isinstance(default, dataclasses.Field):
        if default.default_factory is not dataclasses.MISSING:
            return default.default_factory()
        default = MISSING if default.default is dataclasses.MISSING else default.default
    return copy.deepcopy(default) if isinstance(default, (list, dict, set)) else default


def _find_class(tag: str, known: Iterable[type]) -> Any:
    module, _, name = tag.partition(":")
    loaded = functools.reduce(lambda owner, part: getattr(owner, part, None), name.split("."),
                              cast(Any, sys.modules.get(module)))
    local = [kind for kind in _subclasses(Event) if (kind.__module__, kind.__qualname__) == (module, name)]
    for kind in [*(kind for kind in known if kind.__qualname__ == name), loaded, *reversed(local)]:
        if isinstance(kind, type) and (
                issubclass(kind, Event) or dataclasses.is_dataclass(kind) or hasattr(kind, "model_validate")):
            return kind
    raise ContextSerializationError(f"the saved data needs the class {name}: import {module} before loading")


def _subclasses(kind: type[Event]) -> Iterator[type[Event]]:
    for sub in kind.__subclasses__():
        yield sub
        yield from _subclasses(sub)
