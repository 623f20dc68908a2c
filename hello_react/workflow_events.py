"""The events of a workflow, and all that can go wrong in one (users import every name from `workflow.py`).

An event is an object with typed fields, checked when it is made; the ones below begin a run, end it, or ask
a person. Leaves out: which step takes which event (`workflow_steps.py`).

    WorkflowError                   what the engine itself raises
    ├── WorkflowConfigurationError      the steps don't fit together, or an option can't be used
    ├── WorkflowRuntimeError            a run was used in a way that can't work
    │   ├── EventFieldError                 an event with a field missing or unknown; a TypeError too
    │   └── StateKeyError                   the state does not hold this key; a KeyError too
    ├── WorkflowTimeoutError            a run or a wait took too long; a TimeoutError too
    ├── WorkflowCancelledError          the run was cancelled
    └── ContextSerializationError       what can't be saved, or saved data that can't be read

    >>> class Ask(Event):
    ...     question: str
    ...     tags: list[str] = []
    >>> Ask(question="Which city?")
    Ask(question='Which city?', tags=[])
"""

from __future__ import annotations

import copy
import dataclasses
import inspect
import re
from collections.abc import ItemsView, Iterable, Iterator, KeysView, ValuesView
from dataclasses import MISSING
from typing import Any, ClassVar, TypeVar

from .errors import HelloReactError

E = TypeVar("E")


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


def subclasses(kind: type[E]) -> Iterator[type[E]]:
    """All classes derived from this one."""
    for sub in kind.__subclasses__():
        yield sub
        yield from subclasses(sub)


# --- what is refused


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


def is_a(kind: Any, base: type) -> bool:
    """Whether it is a class, and this one or derived from it; annotations may be anything."""
    return isinstance(kind, type) and issubclass(kind, base)


def anew(kind: type, *others: type) -> str:
    """What to add to a message that refuses a class, since others are wanted that may have the same name."""
    same = any(kind.__name__ == other.__name__ for other in others)
    return f" (another class of that name: was {kind.__name__} defined anew since?)" if same else ""


def listed(names: Iterable[str]) -> str:
    """The names of steps for a message, each once: "step 'a'", "steps 'a', 'b'"."""
    names = list(dict.fromkeys(names))
    return f"step{'s' if len(names) > 1 else ''} {', '.join(map(repr, names))}"
