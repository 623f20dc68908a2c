"""A small event-driven engine (chapter 09): steps take events and return events, until a stop.

A step is a method under `@step`; its annotations say which events it takes and returns, and that is the
routing. This file is the engine: how a run goes from event to step to event. What it is made of stands in
`workflow_events.py`, `_steps`, `_context` and `_state`; every name a user needs is imported from here.

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
from collections import defaultdict, deque
from collections.abc import Awaitable, Callable, Generator
from pathlib import Path
from typing import Any, ClassVar

from .background import iterate_in_thread
from .console import write
from .workflow_context import Awaited, Context, loop_is_running, run_to_end

from .workflow_events import (  # isort: skip
    ContextSerializationError, Event, EventFieldError, HumanResponseEvent, InputRequiredEvent, StartEvent,
    StateKeyError, StepFailedEvent, StopEvent, WorkflowCancelledError, WorkflowCancelledEvent,
    WorkflowConfigurationError, WorkflowError, WorkflowFailedEvent, WorkflowRuntimeError,
    WorkflowTimedOutEvent, WorkflowTimeoutError, anew, check, check_number, check_timeout, expect, listed,
)
from .workflow_state import Job, Places, StateStore, current_job
from .workflow_steps import Graph, RetryPolicy, StepSpec, catch_error, declared, marked, step

__all__ = [
    "Context", "ContextSerializationError", "Event", "EventFieldError", "HumanResponseEvent",
    "InputRequiredEvent", "RetryPolicy", "StartEvent", "StateKeyError", "StateStore", "StepFailedEvent",
    "StopEvent", "Workflow", "WorkflowCancelledError", "WorkflowCancelledEvent", "WorkflowConfigurationError",
    "WorkflowError", "WorkflowFailedEvent", "WorkflowHandler", "WorkflowRuntimeError",
    "WorkflowTimedOutEvent", "WorkflowTimeoutError", "catch_error", "step",
]

_logger = logging.getLogger("hello_react.workflow")


class WorkflowHandler(Awaited):
    """A run: await it for the result, read its stream, or cancel it.

    Made inside a running event loop the run begins at once, else as soon as it is awaited or read:
    `asyncio.run(workflow.run(...))` works too.

    All happens in callbacks of one event loop; while no step is at work, no task is alive. An event makes a
    job for each step that takes it (`_route`); a job gets a task when its step has a free worker (`_queue`,
    `_launch`); when the task is done (`_step_done`), what it returned is the next event.

    Attributes:
        ctx: the context of the run.
    """

    def __init__(self, ctx: Context[Any]) -> None:
        super().__init__()
        self.ctx, self._workflow, self._graph = ctx, ctx._workflow, ctx._graph
        self._inbox: list[Event] = []  # what was sent before it began, and no step takes
        self._jobs: dict[Job, None] = {}  # under way, or between two attempts
        self._queues: dict[str, deque[Job]] = {}
        self._busy: dict[str, int] = defaultdict(int)
        self._waits: dict[tuple[Job, str], tuple[Callable[[Event], bool], asyncio.Future[None]]] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._begun = False

    def cancel_run(self) -> Awaitable[None]:
        """Cancels the run and its steps. Await what it returns to go on when none is at work any more.

        What was not done stays in the context: `workflow.run(ctx=handler.ctx)` takes it up again.
        """
        if self._outcome is None:
            self._post(self._cancel)
        return self._settled()

    def _start(self) -> None:
        """Begins in the running loop, at once or when the workflow has a free place."""
        if self._loop is None and not self._finished:
            with self.ctx._lock:
                expect(self.ctx._run is self,
                       "this context is in use: it was given to another run before this one began")
                self._thread, self._loop = threading.get_ident(), asyncio.get_running_loop()
            self._context = contextvars.copy_context()  # all steps run in it, whoever sends their events
            self._future = self._loop.create_future()
            if self._workflow._run_places is None:
                self._begin()
            else:
                self._workflow._run_places.admit(self)
        expect(self._finished or self._loop is asyncio.get_running_loop(),
               "this run began in another event loop: await it and read its stream there")

    def _begin(self) -> None:
        if self._outcome is not None:
            return
        self._begun = True
        if self._workflow.timeout is not None:
            self._timer = self._loop.call_later(self._workflow.timeout, self._time_out)
        for job in self.ctx._take_up():
            self._queue(job)
        for event in self._inbox:
            self._route(event)

    def _expect_on(self) -> None:
        if self._outcome is not None:
            raise WorkflowCancelledError("the run is over: what this step does is no longer wanted")

    def _post(self, action: Callable[..., None], *values: Any) -> None:
        """Does something to the run, from whichever thread."""
        if self._loop is None or threading.get_ident() == self._thread:
            action(*values)
        else:
            self._expect_on()
            self._loop.call_soon_threadsafe(action, *values)

    def _write(self, event: Event) -> None:
        if self._outcome is None:
            self._stream.append(event)
            if self._news is not None:
                self._news.set()

    def _route(self, event: Event, name: str | None = None, returned_by: str | None = None) -> None:
        """Gives an event to all who take it: the steps (or the named one) and the waits that it satisfies."""
        if self._outcome is not None:
            return
        takers = self._graph.takers(type(event)) if name is None else [self._graph.steps[name]]
        asks = isinstance(event, InputRequiredEvent)
        if not self._begun:
            if asks or isinstance(event, StopEvent):
                self._inbox.append(event)
            else:
                self.ctx._keep(event, takers)
            return
        if isinstance(event, StopEvent):
            self._end(event, event)
            return
        if asks:
            self._write(event)
        claimed = bool(takers) or asks
        for (job, key), (wanted, arrived) in self._waits.items() if name is None else ():
            if key not in job.answers and wanted(event):
                job.answers[key] = event
                arrived.set_result(None)
                claimed = True
        for spec in takers:
            self._queue(Job(spec, event))
        if not claimed:
            if returned_by is not None:
                raise WorkflowRuntimeError(self._graph.untaken(returned_by, "returned", type(event)))
            self.ctx._unclaimed.append(event)

    def _queue(self, job: Job) -> None:
        name = job.spec.name
        if self._busy[name] < job.spec.num_workers:
            self._busy[name] += 1
            self._launch(job)
        else:
            self._queues.setdefault(name, deque()).append(job)

    def _launch(self, job: Job, delay: float = 0.0) -> None:
        context = self._context.copy()
        # Not `create_task`: a loop with eager tasks would run the step before its job stands in `_jobs`.
        job.task = context.run(asyncio.Task, self._attempt(job, delay), loop=self._loop)
        self._jobs[job] = None
        job.task.add_done_callback(functools.partial(self._step_done, job), context=context)

    async def _attempt(self, job: Job, delay: float) -> Any:
        if delay > 0:
            await asyncio.sleep(delay)
        current_job.set(job)
        spec = job.spec
        job.began = job.began or self._loop.time()
        job.run, job.waits, job.gathered, job.attempts = self, [], [], job.attempts + 1
        parts = {"workflow": self._workflow, "event": job.event, "context": self.ctx}
        values = {name: parts[part] for name, part in spec.parameters.items()}
        self._say("Running step %s", spec.name)

        def in_thread() -> Generator[Any, None, None]:
            yield spec.function(**values)  # a generator: so a StopIteration becomes what asyncio can pass on

        async with job.ends_inner_runs():
            if spec.is_async:
                return await spec.function(**values)
            [result] = [value async for value in iterate_in_thread(in_thread())]
            return await result if inspect.isawaitable(result) else result

    def _step_done(self, job: Job, task: asyncio.Task[Any]) -> None:
        if job not in self._jobs or job.task is not task:
            return  # `_pending` was faster
        del self._jobs[job]
        name, error = job.spec.name, None if task.cancelled() else task.exception()
        if self._outcome is not None:
            if not self._jobs:
                self._settle()
            return
        try:
            if task.cancelled():
                self._cancel(f"step {name!r} was cancelled", job)
            elif error is not None:
                self._step_failed(job, error)
            else:
                result = task.result()
                kind = type(result).__name__
                self._say("Step %s produced %s", name, "no event" if result is None else f"event {kind}")
                expect(result is None or isinstance(result, Event),
                       f"step {name!r} returned {kind}: a step returns an event or None")
                if result is not None:
                    self._route(result, returned_by=name)
        except BaseException as wrong:
            self._fail(job, wrong)
            if not isinstance(wrong, Exception):
                raise
            if not isinstance(wrong, WorkflowRuntimeError):  # a bug in a retry policy, or in a comparison
                self._loop.call_exception_handler({"message": f"after step {name!r}", "exception": wrong})
        if self._outcome is None and job not in self._jobs:  # no other attempt: its worker is free
            self._busy[name] -= 1
            if self._queues.get(name):
                self._queue(self._queues[name].popleft())

    def _step_failed(self, job: Job, error: BaseException) -> None:
        facts = self._facts(job, error)
        delay = job.spec.delay(facts["elapsed_seconds"], job.attempts, error)
        handler = self._graph.handler(job.spec) if isinstance(error, Exception) else None
        self._last_error = job.spec.name, error
        if delay is not None:
            self._launch(job, delay)
        elif handler is not None:
            self._queue(Job(handler, StepFailedEvent(input_event=job.event, **facts)))
        else:
            self._fail(job, error)

    def _facts(self, job: Job, error: BaseException) -> dict[str, Any]:
        return {"step_name": job.spec.name, "exception": error, "attempts": job.attempts,
                "elapsed_seconds": self._loop.time() - job.began}

    def _fail(self, job: Job, error: BaseException) -> None:
        self._end(error, WorkflowFailedEvent(**self._facts(job, error)))

    def _time_out(self) -> None:
        limit, active = self._workflow.timeout, list(dict.fromkeys(job.spec.name for job in self._jobs))
        why = self._why_late(active)
        error = WorkflowTimeoutError(f"{self._graph.owner} took longer than {limit:g} seconds ({why})")
        error.__cause__ = self._last_error[1] if self._last_error else None
        self._end(error, WorkflowTimedOutEvent(timeout=limit, active_steps=active))

    def _cancel(self, why: str = "the run was cancelled", *undone: Job) -> None:
        pending = self._pending() if self._begun else ()
        if self._begun and self._outcome is None:
            self.ctx._paused = [*undone, *pending]
        self._end(WorkflowCancelledError(f"{self._graph.owner}: {why}"), WorkflowCancelledEvent())

    def _pending(self) -> list[Job]:
        """The work that is not done: under way, between two attempts, or waiting for a worker."""
        for job in [job for job in self._jobs if job.task.done()]:  # in this very turn of the loop
            self._step_done(job, job.task)
        return [*self._jobs, *(job for queue in self._queues.values() for job in queue)]

    def _end(self, outcome: StopEvent | BaseException, last: StopEvent) -> None:
        """Ends the run: nothing is written after the `last` event, and steps still at work are cancelled."""
        if self._outcome is not None:
            return
        self._write(last)
        self._outcome = outcome
        if self._timer is not None:
            self._timer.cancel()
        for job in self._jobs:
            if not getattr(job.task, "cancelling", int)():  # a second time would cut its clean-up short
                job.task.cancel()
        if self._jobs:
            self._timer = self._loop.call_later(self._workflow.grace, self._settle)
        else:
            self._settle()

    def _settle(self) -> None:
        """Tells the outcome to those who wait, once no step is at work (or one ignores its cancellation)."""
        if self._finished:
            return
        self._finished = True
        if self._timer is not None:
            self._timer.cancel()
        if self._jobs:
            _logger.warning("%s goes on although its run is over",
                            listed(job.spec.name for job in self._jobs))
        if self.ctx._run is self:
            self.ctx._run = None
        if self._news is not None:
            self._news.set()
        outcome = self._outcome
        if self._future is not None and isinstance(outcome, BaseException):
            self._future.set_exception(outcome)
            if isinstance(outcome, WorkflowCancelledError) or not isinstance(outcome, Exception):
                self._future.exception()  # known anyway: asyncio need not report that nobody looked at it
        elif self._future is not None:
            self._future.set_result(outcome.result if type(outcome) is StopEvent else outcome)
        if self._workflow._run_places is not None:
            self._workflow._run_places.admit()

    def _say(self, text: str, *values: str) -> None:
        _logger.info(text, *values)
        if self._workflow.verbose:
            write(sys.stdout, text % values + "\n")


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
    _run_places: Places | None = None
    _added_steps: ClassVar[dict[str, StepSpec]] = {}
    _checked: ClassVar[tuple[dict[Any, Any], Graph] | None] = None

    def __init__(self, timeout: float | None = 45.0, verbose: bool = False,
                 num_concurrent_runs: int | None = None) -> None:
        check_timeout(timeout, WorkflowConfigurationError)
        self.timeout, self.verbose = timeout, verbose
        if num_concurrent_runs is not None:
            check_number("num_concurrent_runs", num_concurrent_runs, 1, int)
            self._run_places = Places(num_concurrent_runs)

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        for name, value in vars(cls).items():
            check(not (hasattr(value, "_step") and hasattr(Workflow, name)),
                  f"step {name!r} hides Workflow.{name}: choose another name")

    @classmethod
    def add_step(cls, function: Callable[..., Any]) -> None:
        """Adds a function under `@step` to this class, and so to all its objects; they are checked again.

        Raises:
            WorkflowConfigurationError: it is not under `@step`, or a step has its name already.
        """
        name: Any = getattr(function, "__name__", function)
        spec: Any = getattr(function, "_step", None)
        check(spec is not None, f"function {name!r} is no step: put @step above it")
        check(name not in declared(cls), f"{cls.__name__} has a step {name!r}: choose another name")
        cls._added_steps = {**vars(cls).get("_added_steps", {}), name: spec}

    def _step_graph(self) -> Graph:
        cls, marks = type(self), marked(type(self))
        checked = vars(cls).get("_checked")
        if checked is None or checked[0] != marks:
            checked = cls._checked = marks, Graph(cls)
        own = [name for name in checked[1].steps if callable(vars(self).get(name))]
        check(not own, f"{listed(own)} set on the object would not run: set it on the class, under @step")
        return checked[1]

    def validate(self) -> None:
        """Checks the steps, as every run does before it begins.

        Raises:
            WorkflowConfigurationError: the steps don't fit together; the message says what to add where.
        """
        self._step_graph()

    def draw(self, path: str | Path | None = None) -> str:
        """The steps and events as a Mermaid flowchart.

        Args:
            path: a file to write it to as well.

        Raises:
            WorkflowConfigurationError: the steps don't fit together.
        """
        return self._step_graph().draw(path)

    def run(self, ctx: Context[Any] | None = None, start_event: StartEvent | None = None,
            **fields: Any) -> WorkflowHandler:
        """Begins a run. One that is begun in a step is cancelled if that step fails or is cancelled.

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
        if loop_is_running():
            handler._start()
        return handler

    def run_sync(self, ctx: Context[Any] | None = None, start_event: StartEvent | None = None,
                 **fields: Any) -> Any:
        """Runs to the end and gives the result: `run` for code without `await`; works in notebooks too.

        Where an event loop runs already, the run gets its own in a thread, and the caller's is blocked; that
        is refused where its runs hold all places of `num_concurrent_runs`. Ctrl-C cancels the run either way.
        """
        return run_to_end(self._new_run(ctx, start_event, fields))

    def _new_run(self, ctx: Context[Any] | None, start: StartEvent | None,
                 fields: dict[str, Any]) -> WorkflowHandler:
        graph = self._step_graph()
        ctx = Context(self) if ctx is None else ctx
        expect(isinstance(ctx, Context), f"ctx must be a Context, not {type(ctx).__name__}")
        owner, mine = type(ctx._workflow), type(self)
        expect(owner is mine, f"this context belongs to {owner.__name__}{anew(owner, mine)}")
        with ctx._lock:
            last = ctx._run  # another thread may be about to end it
            if last is not None and last._is_lost():
                last._cancel()  # so that what it had still to do is taken up
                last = None
            expect(last is None or last._loop is None,
                   "this context is in use by a run: await that run, or use another")
            names = ", ".join(fields)
            expect(not (start and fields), f"give a start_event or fields of one, not both: {names}")
            if start is None and (fields or ctx._paused is None):
                start = graph.start(**fields)
            expect(start is None or isinstance(start, graph.start),
                   f"start_event must be a {graph.start.__name__}, not {type(start).__name__}"
                   f"{anew(type(start), graph.start)}")
            ctx._workflow, ctx._graph = self, graph
            ctx._set_to_do(start)
            ctx._run = WorkflowHandler(ctx)
            return ctx._run
