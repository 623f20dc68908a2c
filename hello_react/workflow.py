"""A small event-driven engine (the workflow chapter): steps take events and return events, until a stop.

A step is a method under `@step`; its annotations say which events it takes and returns, and that is the
routing. This is the engine and what starts it; `workflow_steps.py` has the side of a step and
`workflow_state.py` events and state, and every name a user needs is imported from here. One process a run.

    >>> class Greeter(Workflow):
    ...     @step
    ...     async def greet(self, ev: StartEvent) -> StopEvent:
    ...         return StopEvent(result=f"Hello, {ev.name}!")
    >>> Greeter().run_sync(name="Ada")      # in a coroutine: await Greeter().run(name="Ada")
    'Hello, Ada!'
"""

from __future__ import annotations

import asyncio
import contextvars
import functools
import inspect
import logging
import sys
import threading
import types
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Generator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

from .workflow_state import (
    ContextSerializationError,
    Event,
    EventFieldError,
    HumanResponseEvent,
    InputRequiredEvent,
    RetryPolicy,
    StartEvent,
    StateKeyError,
    StateStore,
    StepFailedEvent,
    StopEvent,
    WorkflowCancelledError,
    WorkflowCancelledEvent,
    WorkflowConfigurationError,
    WorkflowError,
    WorkflowFailedEvent,
    WorkflowRuntimeError,
    WorkflowTimedOutEvent,
    WorkflowTimeoutError,
    check_number,
)
from .workflow_steps import Context, Graph, Job, StepSpec, Waiter, catch_error, current, listed, step

__all__ = [
    "Context", "ContextSerializationError", "Event", "EventFieldError", "HumanResponseEvent",
    "InputRequiredEvent", "RetryPolicy", "StartEvent", "StateKeyError", "StateStore", "StepFailedEvent",
    "StopEvent", "Workflow", "WorkflowCancelledError", "WorkflowCancelledEvent", "WorkflowConfigurationError",
    "WorkflowError", "WorkflowFailedEvent", "WorkflowHandler", "WorkflowRuntimeError",
    "WorkflowTimedOutEvent", "WorkflowTimeoutError", "catch_error", "step",
]

_logger = logging.getLogger("hello_react.workflow")


class _Run:
    """The engine. All happens in callbacks of one event loop; while no step is at work, no task is alive.

    An event makes a job for each step that takes it (`route`); a job gets a task when its step has a free
    worker (`queue`, `launch`); when the task is done (`step_done`), what it returned is the next event.
    """

    __slots__ = ("begun", "ctx", "finished", "future", "graph", "inbox", "jobs", "loop", "news", "outcome",
                 "queues", "resumed", "say", "stream", "thread", "timer", "waiters", "workers", "workflow")

    def __init__(self, ctx: Context[Any], start: StartEvent | None) -> None:
        self.ctx, self.workflow, self.graph = ctx, ctx._workflow, ctx._workflow._checked_graph()
        self.resumed = start is None
        self.inbox: list[tuple[Event, str | None]] = [] if start is None else [(start, None)]
        self.jobs: dict[Job, None] = {}  # under way, or between two attempts
        self.queues: dict[str, deque[Job]] = {}
        self.workers: dict[str, int] = {}
        self.waiters: list[Waiter] = []
        self.stream: list[Event] = []
        self.news: asyncio.Event | None = None
        self.timer: asyncio.TimerHandle | None = None
        self.loop: Any = None  # set by start, with the future and the thread
        self.future: Any = None
        self.thread = 0
        self.begun = self.finished = False
        self.outcome: StopEvent | BaseException | None = None
        said = self.workflow.verbose or _logger.isEnabledFor(logging.INFO)
        self.say = functools.partial(_say, self.workflow.verbose) if said else None

    def start(self) -> None:
        """Begins in the running loop, at once or when the workflow has a free place."""
        if self.loop is None and self.outcome is None:
            if self.ctx._run is not self:
                raise WorkflowRuntimeError("this context was given to another run before this one began")
            self.loop = asyncio.get_running_loop()
            self.future = self.loop.create_future()
            self.thread = threading.get_ident()
            if self.workflow._places is None:
                self.begin()
            else:
                self.workflow._places.admit(self)

    def begin(self) -> None:
        if self.outcome is None:
            self.begun = True
            if self.workflow.timeout is not None:
                self.timer = self.loop.call_later(self.workflow.timeout, self.time_out)
            for job in self.ctx._begin(self.resumed):
                self.queue(job)
            for event, name in self.inbox:
                self.route(event, name)

    def post(self, action: Callable[..., None], *values: Any) -> None:
        """Does something to the run, from whichever thread."""
        if self.loop is None or threading.get_ident() == self.thread:
            action(*values)
        elif self.outcome is None:
            self.loop.call_soon_threadsafe(action, *values)
        else:
            raise WorkflowCancelledError("the run is over: what this step does is no longer wanted")

    def write(self, event: Event) -> None:
        if self.outcome is None:
            self.stream.append(event)
            if self.news is not None:
                self.news.set()

    def route(self, event: Event, name: str | None = None, returned_by: str | None = None) -> None:
        """Gives an event to all who take it: the steps (or the named one) and the waits that it satisfies."""
        if self.outcome is not None:
            return
        if not self.begun:
            self.inbox.append((event, name))
            return
        if isinstance(event, StopEvent):
            self.end(event, event)
            return
        if isinstance(event, InputRequiredEvent):
            self.write(event)
        takers = self.graph.takers(type(event)) if name is None else (self.graph.steps[name],)
        waiters = [waiter for waiter in self.waiters if waiter.wants(event)] if name is None else []
        for waiter in waiters:
            waiter.future.set_result(event)
        for spec in takers:
            self.queue(Job(spec, event))
        if not takers and not waiters and not isinstance(event, InputRequiredEvent):
            if returned_by is not None:
                kind = type(event).__name__
                raise WorkflowRuntimeError(f"step {returned_by!r} returned {kind}, but no step takes it: "
                                           f"add a step with `ev: {kind}`")
            self.ctx._unclaimed.append(event)

    def queue(self, job: Job) -> None:
        name = job.spec.name
        busy = self.workers.get(name, 0)
        if busy < job.spec.num_workers:
            self.workers[name] = busy + 1
            self.launch(job)
        else:
            self.queues.setdefault(name, deque()).append(job)

    def launch(self, job: Job) -> None:
        spec = job.spec
        if job.attempts == 0:
            job.began = self.loop.time()
        job.attempts += 1
        job.run, job.retry, job.waits = self, None, []
        values: dict[str, Any] = {spec.event_parameter: job.event}
        if spec.context_parameter is not None:
            values[spec.context_parameter] = self.ctx
        call = spec.function if spec.free else getattr(self.workflow, spec.name)
        if self.say is not None:
            self.say(f"Running step {spec.name}")
        before = current.set(job)  # the new task copies the current context: so the step knows its job
        job.task = self.loop.create_task(call(**values) if spec.is_async else _in_thread(call, values))
        current.reset(before)
        self.jobs[job] = None
        job.task.add_done_callback(functools.partial(self.step_done, job))

    def step_done(self, job: Job, task: asyncio.Task[Any]) -> None:
        del self.jobs[job]
        error = None if task.cancelled() else task.exception()
        if self.outcome is not None:
            if not self.jobs:
                self.settle()
            return
        try:
            if task.cancelled():
                self.cancel(f"step {job.spec.name!r} was cancelled", job)
            elif error is not None:
                self.step_failed(job, error)
            else:
                self.step_returned(job, task.result())
        except WorkflowRuntimeError as wrong:
            self.fail(job, wrong)
        except BaseException as bug:  # in a retry policy, or in a comparison of a wait: the run must end
            self.fail(job, bug)
            raise
        if job.retry is None:
            self.workers[job.spec.name] -= 1
            if self.outcome is None and self.queues.get(job.spec.name):
                self.queue(self.queues[job.spec.name].popleft())

    def step_returned(self, job: Job, result: Any) -> None:
        name = job.spec.name
        if self.say is not None:
            what = "no event" if result is None else f"event {type(result).__name__}"
            self.say(f"Step {name} produced {what}")
        if isinstance(result, Event):
            self.route(result, None, name)
        elif result is not None:
            raise WorkflowRuntimeError(f"step {name!r} returned {type(result).__name__}: "
                                       "a step returns an event or None")

    def step_failed(self, job: Job, error: BaseException) -> None:
        policy, elapsed = job.spec.retry_policy, self.loop.time() - job.began
        delay = None if policy is None else policy.next(elapsed, job.attempts, error)
        handler = self.graph.handler(job.spec) if isinstance(error, Exception) else None
        if delay is not None:
            job.retry = self.loop.call_later(delay, self.launch, job)
            self.jobs[job] = None
        elif handler is not None:
            self.queue(Job(handler, StepFailedEvent(
                step_name=job.spec.name, input_event=job.event, exception=error, attempts=job.attempts,
                elapsed_seconds=elapsed)))
        else:
            self.fail(job, error)

    def fail(self, job: Job, error: BaseException) -> None:
        self.end(error, WorkflowFailedEvent(
            step_name=job.spec.name, exception=error, attempts=job.attempts,
            elapsed_seconds=self.loop.time() - job.began))

    def time_out(self) -> None:
        limit, active = self.workflow.timeout, list(dict.fromkeys(job.spec.name for job in self.jobs))
        why = f"active: {listed(active)}" if active else "no step was active, none had returned a stop event"
        if self.ctx._unclaimed:
            why += f"; nobody took: {', '.join(type(event).__name__ for event in self.ctx._unclaimed)}"
        self.end(WorkflowTimeoutError(f"{self.graph.owner} took longer than {limit:g} seconds ({why})"),
                 WorkflowTimedOutEvent(timeout=limit, active_steps=active))

    def cancel(self, why: str = "the run was cancelled", *undone: Job) -> None:
        if self.begun and self.outcome is None:
            self.ctx._paused = [*undone, *self.pending()]
        self.end(WorkflowCancelledError(f"{self.graph.owner}: {why}"), WorkflowCancelledEvent())

    def pending(self) -> list[Job]:
        """The work that is not done: under way, between two attempts, or waiting for a worker."""
        return [*self.jobs, *(job for queue in self.queues.values() for job in queue)]

    def end(self, outcome: StopEvent | BaseException, last: StopEvent) -> None:
        """Ends the run: nothing is written after the `last` event, and steps still at work are cancelled."""
        if self.outcome is not None:
            return
        self.write(last)
        self.outcome = outcome
        if self.timer is not None:
            self.timer.cancel()
        for job in list(self.jobs):
            if job.retry is not None:
                job.retry.cancel()
                del self.jobs[job]
            elif not getattr(job.task, "cancelling", int)():  # a second time would cut its clean-up short
                job.task.cancel()  # type: ignore[union-attr]
        if self.jobs:
            self.timer = self.loop.call_later(self.workflow.grace, self.settle)
        else:
            self.settle()

    def settle(self) -> None:
        """Tells the outcome to those who wait, once no step is at work (or one ignores its cancellation)."""
        if self.finished:
            return
        self.finished = True
        if self.timer is not None:
            self.timer.cancel()
        if self.jobs:
            _logger.warning("%s goes on although its run is over", listed(job.spec.name for job in self.jobs))
        if self.ctx._run is self:
            self.ctx._run = None
        if self.workflow._places is not None and self.loop is not None:
            self.workflow._places.leave(self)
        if self.news is not None:
            self.news.set()
        if self.future is not None and isinstance(self.outcome, BaseException):
            self.future.set_exception(self.outcome)
            if isinstance(self.outcome, WorkflowCancelledError) or not isinstance(self.outcome, Exception):
                self.future.exception()  # known anyway: asyncio need not report that nobody looked at it
        elif self.future is not None:
            self.future.set_result(None)


async def _in_thread(function: Callable[..., Any], values: dict[str, Any]) -> Any:
    def call() -> Any:
        try:
            return function(**values)
        except StopIteration as error:  # asyncio can't carry it out of a thread
            raise RuntimeError("the step raised StopIteration") from error
    result = await asyncio.to_thread(call)
    return await result if inspect.isawaitable(result) else result


class WorkflowHandler(Coroutine[Any, Any, Any]):
    """A run: await it for the result, read its stream, or cancel it.

    Made inside a running event loop the run begins at once, else as soon as it is awaited or read:
    `asyncio.run(workflow.run(...))` works too.
    """

    def __init__(self, run: _Run) -> None:
        self._run = run
        self._drivers: dict[Any, Coroutine[Any, Any, Any]] = {}

    @property
    def ctx(self) -> Context[Any]:
        """The context of the run."""
        return self._run.ctx

    def done(self) -> bool:
        """Whether the run has ended, well or not."""
        return self._run.finished

    def result(self) -> Any:
        """The result of a run that has ended; else what awaiting it raises.

        Raises:
            WorkflowRuntimeError: it has not ended.
        """
        run = self._run
        if not run.finished:
            raise WorkflowRuntimeError("the run has not ended: await the handler first")
        if run.future is not None:
            run.future.exception()  # seen
        if isinstance(run.outcome, BaseException):
            raise run.outcome
        return run.outcome.result if type(run.outcome) is StopEvent else run.outcome

    def wait(self) -> Any:
        """The result, for scripts and other code without `await`; blocks until the run ends.

        Raises:
            WorkflowRuntimeError: an event loop runs here (as in a notebook), or the run has begun in one.
        """
        if self._run.finished:
            return self.result()
        if _loop_is_running() or self._run.loop is not None:
            raise WorkflowRuntimeError("wait() would block the event loop of this run: `await` it there")
        return asyncio.run(self)

    def stream_events(self) -> AsyncIterator[Event]:
        """The events written to the stream, from the first on, as they come; the last is the stop event.

        Any number of readers may read, also later. Where the run ends with an error, the last event tells of
        it (`WorkflowFailedEvent`, `WorkflowTimedOutEvent` or `WorkflowCancelledEvent`), then it is raised.
        """
        return _Stream(self)

    def cancel_run(self) -> Awaitable[None]:
        """Cancels the run and its steps. Await what it returns to go on when none is at work any more.

        What was not done stays in the context: `workflow.run(ctx=handler.ctx)` takes it up again.
        """
        if self._run.outcome is None:
            self._run.post(self._run.cancel)
        return self._settled()

    @types.coroutine
    def _settled(self) -> Generator[Any, Any, None]:  # as a generator it may also be left without await
        if not self._run.finished:
            yield from asyncio.wait([self._run.future]).__await__()

    async def _result(self) -> Any:
        self._run.start()
        if not self._run.finished:
            if self._run.loop is not asyncio.get_running_loop():
                raise WorkflowRuntimeError("this run began in another event loop: await it there")
            try:
                await self._settled()
            except asyncio.CancelledError:
                await self.cancel_run()
                raise
        return self.result()

    def __await__(self) -> Generator[Any, Any, Any]:
        return self._result().__await__()

    def send(self, value: Any) -> Any:
        """For asyncio, as `throw` and `close`: a task made of the handler drives its own wait for the run."""
        return self._driver().send(value)

    def throw(self, *error: Any) -> Any:
        return self._driver().throw(*error)

    def close(self) -> None:
        self._drivers.clear()

    def _driver(self) -> Coroutine[Any, Any, Any]:
        task = asyncio.current_task()
        if task not in self._drivers:
            self._drivers[task] = self._result()
        return self._drivers[task]


class _Stream(AsyncIterator[Event]):
    def __init__(self, handler: WorkflowHandler) -> None:
        self._handler = handler
        self._next = 0

    async def __anext__(self) -> Event:
        run = self._handler._run
        run.start()
        while self._next >= len(run.stream):
            if run.finished:
                self._handler.result()  # raises the error of the run, if it ended with one
                raise StopAsyncIteration
            if run.news is None:
                run.news = asyncio.Event()
            run.news.clear()
            await run.news.wait()
        self._next += 1
        return run.stream[self._next - 1]


class Workflow:
    """Steps that work together: subclass it and put `@step` on methods; one object serves many runs at once.

    Args:
        timeout: seconds that a run may take, waits for a person included; None for no limit.
        verbose: writes to standard output which step runs and what it produced (the logger
            "hello_react.workflow" says the same at level INFO).
        num_concurrent_runs: how many runs of this object go on at a time, the others waiting; None: any.

    Attributes:
        grace: seconds that steps still at work have to clean up when their run ends; it does not wait longer.

    Raises:
        WorkflowConfigurationError: an option can't be used.
    """

    grace: ClassVar[float] = 5.0
    timeout: float | None = 45.0
    verbose: bool = False
    _places: _Places | None = None
    _added_steps: ClassVar[dict[str, StepSpec]] = {}
    _additions: ClassVar[int] = 0
    _checked: ClassVar[tuple[int, Graph] | None] = None

    def __init__(self, timeout: float | None = 45.0, verbose: bool = False,
                 num_concurrent_runs: int | None = None) -> None:
        number = isinstance(timeout, (int, float)) and not isinstance(timeout, bool)
        if timeout is not None and not (number and timeout > 0):
            raise WorkflowConfigurationError(f"timeout must be seconds above 0 or None, not {timeout!r}")
        if num_concurrent_runs is not None:
            check_number("num_concurrent_runs", num_concurrent_runs, 1, int)
        self.timeout = timeout
        self.verbose = verbose
        if num_concurrent_runs is not None:
            self._places = _Places(num_concurrent_runs)

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        for name, value in vars(cls).items():
            if hasattr(value, "_step") and hasattr(Workflow, name):
                raise WorkflowConfigurationError(f"step {name!r} hides Workflow.{name}: choose another name")

    @classmethod
    def add_step(cls, function: Callable[..., Any]) -> None:
        """Adds a function under `@step` to this class, and so to all its objects; they are checked again.

        Raises:
            WorkflowConfigurationError: it is not under `@step`, or a step has its name already.
        """
        spec: StepSpec | None = getattr(function, "_step", None)
        if spec is None:
            name = getattr(function, "__name__", function)
            raise WorkflowConfigurationError(f"function {name!r} is no step: put @step above it")
        if spec.name in cls._step_specs():
            raise WorkflowConfigurationError(f"{cls.__name__} has a step {spec.name!r}: choose another name")
        cls._added_steps = {**vars(cls).get("_added_steps", {}), spec.name: replace(spec, free=True)}
        Workflow._additions += 1

    @classmethod
    def _step_specs(cls) -> dict[str, StepSpec]:
        names = dict.fromkeys(name for owner in reversed(cls.__mro__) for name in vars(owner))
        methods = {name: getattr(getattr(cls, name, None), "_step", None) for name in names}
        specs = {name: spec for name, spec in methods.items() if isinstance(spec, StepSpec)}
        for owner in cls.__mro__:
            specs.update(vars(owner).get("_added_steps", {}))
        return specs

    @classmethod
    def _checked_graph(cls) -> Graph:
        checked = vars(cls).get("_checked")
        if checked is None or checked[0] != Workflow._additions:
            checked = cls._checked = (Workflow._additions, Graph(cls.__name__, cls._step_specs(), vars(cls)))
        return checked[1]

    def validate(self) -> None:
        """Checks the steps, as every run does before it begins.

        Raises:
            WorkflowConfigurationError: the steps don't fit together; the message says what to add where.
        """
        self._checked_graph()

    def draw(self, path: str | Path | None = None) -> str:
        """The steps and events as a Mermaid flowchart.

        Args:
            path: a file to write it to as well.

        Raises:
            WorkflowConfigurationError: the steps don't fit together.
        """
        text = self._checked_graph().draw()
        if path is not None:
            Path(path).write_text(text, encoding="utf-8")
        return text

    def run(self, ctx: Context[Any] | None = None, start_event: StartEvent | None = None,
            **fields: Any) -> WorkflowHandler:
        """Begins a run.

        Args:
            ctx: a context of this workflow: its state is used. If it holds a run that was cancelled or loaded
                and neither a start event nor fields are given, that run goes on.
            start_event: the event to begin with.
            fields: else the fields of the start event, which is made of them.

        Returns:
            The run: `await` it for the result.

        Raises:
            WorkflowConfigurationError: the steps don't fit together.
            WorkflowRuntimeError: the start event is of another class, or the context is in use or belongs to
                another workflow.
            EventFieldError: the start event declares other fields.
        """
        handler = self._new_run(ctx, start_event, fields)
        if _loop_is_running():
            handler._run.start()
        return handler

    def run_sync(self, ctx: Context[Any] | None = None, start_event: StartEvent | None = None,
                 **fields: Any) -> Any:
        """Runs to the end and gives the result: `run` for code without `await`; works in notebooks too.

        Where an event loop runs already, the run gets its own in a thread, and the caller's is blocked.
        """
        handler = self._new_run(ctx, start_event, fields)
        if not _loop_is_running():
            return asyncio.run(handler)
        with ThreadPoolExecutor(1) as pool:
            return pool.submit(contextvars.copy_context().run, asyncio.run, handler).result()

    def _new_run(self, ctx: Context[Any] | None, start: StartEvent | None,
                 fields: dict[str, Any]) -> WorkflowHandler:
        kind = self._checked_graph().start
        ctx = Context(self) if ctx is None else ctx
        if type(ctx._workflow) is not type(self):
            raise WorkflowRuntimeError(f"this context belongs to the workflow {type(ctx._workflow).__name__}")
        if ctx._run is not None and ctx._run.loop is not None:
            raise WorkflowRuntimeError("this context is in use by a run: await that run, or use another")
        if start is not None and fields:
            raise WorkflowRuntimeError(f"give a start_event or fields of one, not both: {', '.join(fields)}")
        if start is None and (fields or ctx._paused is None):
            start = kind(**fields)
        if start is not None and not isinstance(start, kind):
            raise WorkflowRuntimeError(f"start_event must be a {kind.__name__}, not {type(start).__name__}")
        ctx._workflow = self
        ctx._run = _Run(ctx, start)
        return WorkflowHandler(ctx._run)


class _Places:
    """Lets so many runs of a workflow go on at a time; the next in line begins when one ends."""

    def __init__(self, free: int) -> None:
        self.free = free
        self.waiting: deque[_Run] = deque()
        self.lock = threading.Lock()  # the runs of one workflow may be in several threads

    def admit(self, run: _Run) -> None:
        with self.lock:
            if self.free == 0:
                self.waiting.append(run)
                return
            self.free -= 1
        run.begin()

    def leave(self, run: _Run) -> None:
        with self.lock:
            if run in self.waiting:
                self.waiting.remove(run)
                return
            waiting = [other for other in self.waiting if not other.loop.is_closed()]
            self.waiting = deque(waiting[1:])
            if not waiting:
                self.free += 1
                return
        waiting[0].loop.call_soon_threadsafe(waiting[0].begin)


def _say(verbose: bool, text: str) -> None:
    _logger.info("%s", text)
    if verbose:
        sys.stdout.write(text + "\n")


def _loop_is_running() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
