"""The context that the steps of a run share, and how a run is waited for (users import from `workflow.py`).

`Context` sends and gathers events, asks a person, and saves what a run has still to do. `Awaited` is how a
run is waited for; `run_to_end` does so without `await`, and says what Ctrl-C does meanwhile.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import signal
import threading
import time
import types
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Generator, Iterable
from dataclasses import MISSING
from types import NoneType
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast

from .background import run_async_in_thread
from .text import clip
from .workflow_events import (
    ContextSerializationError,
    Event,
    WorkflowConfigurationError,
    WorkflowRuntimeError,
    WorkflowTimeoutError,
    anew,
    check,
    check_timeout,
    expect,
    is_a,
    listed,
)
from .workflow_state import Job, StateStore, current_job, pack, unpack

if TYPE_CHECKING:
    from .workflow import Workflow, WorkflowHandler
    from .workflow_steps import StepSpec

S = TypeVar("S")
C = TypeVar("C", bound="Context[Any]")
E = TypeVar("E")


class Awaited(Coroutine[Any, Any, Any]):
    """How a run is waited for: by `await`, as a task, without a loop, and by reading its stream."""

    ctx: Any
    _loop: Any = None
    _future: Any = None
    _finished = False
    _outcome: Any = None
    _last_error: tuple[str, BaseException] | None = None  # of a step whose error did not end the run

    def __init__(self) -> None:
        self._stream: list[Event] = []
        self._news: asyncio.Event | None = None
        self._drivers: dict[Any, Generator[Any, Any, Any]] = {}
        job = current_job.get(None)
        if job is not None:
            job.inner.add(self)

    def _why_late(self, active: list[str]) -> str:
        """What the run was at when its time was over: steps at work, events nobody took, the last error."""
        why = f"active: {listed(active)}" if active else "no step was active, none had returned a stop event"
        if nobodys := ", ".join(type(event).__name__ for event in self.ctx._unclaimed):
            why += f"; nobody took: {nobodys}"
        if self._last_error is not None:
            name, error = self._last_error
            why += f"; the last error, of step {name!r}: {type(error).__name__}: {clip(str(error), 200)}"
        return why

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

    async def aclose(self) -> None:
        """For `contextlib.aclosing`; the run goes on."""


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
        run = self._run  # what is pending may end it, and it lets go of this context
        to_do = run._pending() if run is not None and run._begun else self._paused
        return self._paused if run is not None and run._outcome is not None else to_do

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
    wrong = [kind for kind in kinds if not is_a(kind, Event)]
    check(not wrong, f"{method} takes a class of event, such as StopEvent, not {wrong[:1]!r:.80}",
          WorkflowRuntimeError)
