"""Tools: a name, a description and a function; the registry that describes and runs them (chapter 02).

    >>> tools = ToolExecutor()
    >>> @tools.tool
    ... def area(width: float, height: float) -> float:
    ...     "The area of a rectangle."
    ...     return width * height
    >>> tools.describe()
    '- area: The area of a rectangle. Input: a JSON object with "width" (number), "height" (number).'
    >>> tools.execute("area", '{"width": 2, "height": 3.5}').text
    '7.0'

Whatever goes wrong in a tool becomes an observation that tells the model what to do instead.
"""

from __future__ import annotations

import copy
import difflib
import inspect
import math
import re
import sys
import time
import types
import warnings
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property, partial
from typing import Any, TypeVar, overload

from . import arguments, background
from .errors import ToolError
from .events import Observation
from .parser import Action, parse
from .repairs import LABEL, is_finish, means_no_action, squeeze
from .text import KNOWN_KEYS, clip, in_words, mask, readable, redact, sendable

Function = TypeVar("Function", bound=Callable[..., Any])

OTHER_WAYS = "Try another input or another tool."


class Tool:
    """One tool.

    Args:
        name: what the model calls it.
        description: for the model: what the tool is for, and when to use it.
        function: takes text (one parameter), a JSON object's values (several) or nothing; may be async.
        timeout: seconds that a call may take; None for no limit, and then it runs in the caller's own thread.
        retries: how often a call that raised or timed out is tried again.

    Raises:
        ToolError: the name, the description or the function can't be used.
    """

    def __init__(self, name: str, description: str, function: Callable[..., Any], *,
                 timeout: float | None = 60.0, retries: int = 0) -> None:
        if isinstance(name, str) and (is_finish(name) or LABEL.match(f"{name}:") or means_no_action(name)):
            raise ToolError(f"{name!r} has a meaning of its own in a reply; give the tool another name.")
        if (not isinstance(name, str) or not re.fullmatch(r"[^\W][^\[\](){}:：`\n\"'“”*]{0,59}(?<!\s)", name)
                or parse(f"Action: {name}[x]", [name]).move != Action(name, "x")):
            better = re.sub(r"\W+", "_", str(name or ""))[:60].strip("_")
            raise ToolError("A tool's name has 1 to 60 characters, begins with a letter or digit, but not "
                            "as '1. x', has no brackets, quotes, colons or stars, ends with no dot, > or •: "
                            f"{name!r} can't be one." + (f" Try {better!r}." if better else ""))
        if not callable(function) or callable(description):
            raise ToolError(f"The tool {name!r} needs a function, not {type(function).__name__}. "
                            "The order is: name, description, function.")
        if not isinstance(description, str) or not description.strip():
            hint = " (python -OO drops docstrings.)" if sys.flags.optimize > 1 else ""
            raise ToolError(f"The tool {name!r} needs a description, such as its docstring.{hint}")
        if timeout is not None and (type(timeout) not in (int, float) or not 0 < timeout < math.inf):
            raise ToolError(f"The tool {name!r} needs a timeout above 0 seconds, or None, not {timeout!r}.")
        if type(retries) is not int or retries < 0:
            raise ToolError(f"The tool {name!r} needs a whole number of retries, 0 or more, not {retries!r}.")
        self.name, self.description, self.function = name, description.strip(), function
        self.timeout, self.retries = timeout, retries
        self.parameters = arguments.parameters(function)

    @classmethod
    def from_function(cls, function: Callable[..., Any], name: str | None = None,
                      description: str | None = None, **options: Any) -> Tool:
        """A tool from a function's own name, docstring (its first paragraph) and parameters."""
        if not callable(function):
            raise ToolError(f"A tool is made from a function, not from {function!r:.60}.")
        own = arguments.unwrapped(function)
        described = description or (inspect.getdoc(own) or "").strip().split("\n\n")[0]
        own_name: str = getattr(own, "__name__", "")
        return cls(name or own_name, " ".join(described.split()), function, **options)

    @cached_property
    def usage(self) -> str:
        """How the input is written; empty for the plain case, one text."""
        return arguments.usage(self.parameters)

    def __str__(self) -> str:
        return f"- {self.name}: {self.description} {self.usage}".rstrip()

    def call(self, input: str | Mapping[str, Any], timeout: float | None) -> Any:
        """Run the function on `input` for at most `timeout` seconds and return what it returned.

        Raises:
            ToolError: the input does not fit. TimeoutError: out of time. Else whatever the function raises.
        """
        args, kwargs = arguments.bind(self.name, self.parameters, input)
        return background.call(partial(self.function, *args, **kwargs), timeout, f"tool {self.name}")


def owner(function: Callable[..., Any]) -> Any:
    """The object whose method `function` is, or itself; also inside of a `functools.partial`."""
    function = arguments.unwrapped(function)
    return getattr(function, "__self__", function)


def _moved(function: Any, new: Any) -> Any:
    """`function`, a method, for the owner `new`."""
    if isinstance(function, partial):
        return partial(_moved(function.func, new), *function.args, **function.keywords)
    old, name = owner(function), getattr(function, "__name__", "")
    if old is function:
        return new
    if getattr(old, name, None) == function:
        return getattr(new, name)
    return types.MethodType(function.__func__, new)  # a decorator gave it another name


class ToolExecutor:
    """The registry: register tools, describe them to the model, execute what it calls."""

    def __init__(self) -> None:
        self._tools: dict[str, Tool] = {}

    def register_tool(self, name: str, description: str, function: Callable[..., Any], *,
                      timeout: float | None = 60.0, retries: int = 0) -> None:
        """Register `function` under `name`; see `Tool` for the arguments. A name used before is called out.
        """
        self.add(Tool(name, description, function, timeout=timeout, retries=retries))

    def add(self, tool: Tool) -> None:
        """Register a `Tool`.

        Raises:
            ToolError: no Tool, or a name that differs from a registered one by case, blanks, `_` or `-` only.
        """
        if not isinstance(tool, Tool):
            raise ToolError(f"add takes a Tool, not {tool!r:.60}: for a function there is register_tool.")
        for known in self._tools:
            if known != tool.name and squeeze(known) == squeeze(tool.name):
                raise ToolError(f"The tools {known!r} and {tool.name!r} are too much alike; rename one.")
        if tool.name in self._tools:
            told = f"The tool {tool.name!r} was registered before; the new one replaces it."
            warnings.warn(told, stacklevel=3)
        self._tools[tool.name] = tool

    @overload
    def tool(self, function: Function) -> Function: ...
    @overload
    def tool(self, function: None = None, **options: Any) -> Callable[[Function], Function]: ...

    def tool(self, function: Any = None, **options: Any) -> Any:
        """Decorator: register a function by its own name and docstring; `@tools.tool(name=..., timeout=...)`
        too.
        """
        if function is None:
            return lambda decorated: self.tool(decorated, **options)
        self.add(Tool.from_function(function, **options) if options else Tool.from_function(function))
        return function

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self._tools)

    def __repr__(self) -> str:
        return f"ToolExecutor({', '.join(self._tools)})"

    def __iter__(self) -> Iterator[Tool]:
        return iter(self._tools.values())

    def __len__(self) -> int:
        return len(self._tools)

    def get_tool(self, name: str) -> Callable[..., Any] | None:
        """The plain function registered under `name`, or None."""
        tool = self._tools.get(name)
        return tool.function if tool else None

    def get_available_tools(self) -> str:
        """One line a tool: its name, description and how its input is written."""
        return "\n".join(map(str, self._tools.values()))

    describe = get_available_tools
    registerTool, getTool, getAvailableTools = register_tool, get_tool, get_available_tools  # as in the book

    def for_run(self) -> ToolExecutor:
        """A copy for one run: tools that keep state (objects with `for_run()`) are asked for a fresh copy of
        themselves.
        """
        fresh, copies = ToolExecutor(), dict[int, Any]()
        for name, tool in self._tools.items():
            old = owner(tool.function)
            if hasattr(old, "for_run") and not inspect.isclass(old):
                tool = copy.copy(tool)
                tool.function = _moved(tool.function, copies.setdefault(id(old), old.for_run()))
            fresh._tools[name] = tool
        return fresh

    def execute(self, name: str, input: str | Mapping[str, Any], *, timeout: float | None = None,
                limit: int = 4_000) -> Observation:
        """Run one call and return what the model reads of it; never raises for what the tool does.

        Args:
            name: the tool's registered name.
            input: the text between the brackets, or a native call's JSON object.
            timeout: seconds left for all attempts; the tool's own time limit is for each of them.
            limit: characters of the result that the model reads.
        """
        tool = self._tools.get(name)
        if tool is None:
            near = difflib.get_close_matches(name, self.names, 1)
            hint = f" Did you mean {near[0]}?" if near else ""
            text = f"There is no tool named {name!r}.{hint} Tools: {', '.join(self.names) or 'none'}."
            return Observation(text, False, name, "unknown_tool")
        began = time.perf_counter()
        value, text, error = self._attempt(tool, input, math.inf if timeout is None else timeout)
        seconds = time.perf_counter() - began
        text = mask(sendable(clip(text, limit)), tuple(KNOWN_KEYS), least=16)  # a short one may be a word
        return Observation(text, not error, name, error, seconds, value)

    def _attempt(self, tool: Tool, input: str | Mapping[str, Any], timeout: float) -> tuple[Any, str, str]:
        """What the tool returned, the text of it, and the kind of error ("" if none)."""
        deadline = time.monotonic() + timeout
        for pause in (*(0.2 * 2 ** tried for tried in range(tool.retries)), 0.0):
            limit = min(tool.timeout or math.inf, max(0.0, round(deadline - time.monotonic(), 3)))
            try:
                value = tool.call(input, limit if limit < math.inf else None)
            except arguments.BadInput as error:
                return None, str(error), "bad_input"
            except ToolError as error:
                return None, redact(readable(error)), "raised"
            except TimeoutError as error:
                told, kind = f"timed out ({in_words(error)})".removesuffix(" ()"), "timed_out"
            except KeyboardInterrupt:
                raise
            except BaseException as error:  # noqa: BLE001  the tool boundary: a tool may raise anything
                told, kind = f"failed: {type(error).__name__}: {in_words(error)}".rstrip(": "), "raised"
            else:
                return value, readable(value), ""
            if time.monotonic() + pause >= deadline:
                break
            time.sleep(pause)
        return None, f"{tool.name} {redact(told)}. {OTHER_WAYS}", kind
