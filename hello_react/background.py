"""Work in threads: a call with a time limit, and the async face of the one loop (chapter 06).

    >>> import asyncio
    >>> async def main():
    ...     return [number async for number in iterate_in_thread(iter(range(3)))]
    >>> asyncio.run(main())
    [0, 1, 2]
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import math
import os
import queue
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from functools import partial
from typing import Any, TypeVar

Item = TypeVar("Item")

MOST_ITEMS = 10_000
"""How many items of an iterator are read."""
MOST_IDLE = 8
"""How many threads are kept for the next calls."""


def call(function: Callable[[], Any], timeout: float | None, name: str) -> Any:
    """What `function` returns: awaited if it is awaitable, as a list if it is an iterator, async or not.

    Args:
        function: called in a thread named `name`; in this one if `timeout` is None.
        timeout: in seconds; then the thread is left to itself, but reads no further item.

    Raises:
        TimeoutError: out of time. Else whatever the function raises.
    """
    if timeout is not None:
        return run_in_thread(lambda given_up: _settled(function(), given_up), timeout, name)
    value = function()
    if isinstance(value, (Awaitable, AsyncIterator)):  # in a thread: a loop may be running in this one
        return run_in_thread(lambda given_up: _settled(value, given_up), None, name)
    return _settled(value, threading.Event())


def _settled(value: Any, given_up: threading.Event) -> Any:
    if isinstance(value, (Awaitable, AsyncIterator)):
        value = asyncio.run(_awaited(value, given_up))
    if not isinstance(value, Iterator):
        return value
    items = []
    for item in value:
        items.append(item)
        if len(items) > MOST_ITEMS or given_up.is_set():
            break
    return _noted(items)


async def _awaited(value: Any, given_up: threading.Event) -> Any:
    if isinstance(value, Awaitable):
        value = await value
    if not isinstance(value, AsyncIterator):
        return value
    items = []
    async for item in value:
        items.append(item)
        if len(items) > MOST_ITEMS or given_up.is_set():
            break
    return _noted(items)


def _noted(items: list[Any]) -> list[Any]:
    if len(items) > MOST_ITEMS:
        items[MOST_ITEMS:] = [f"[cut: the first {MOST_ITEMS:,} items shown]"]
    return items


_Job = tuple[Callable[[], None], str]
_idle: list[queue.SimpleQueue[_Job]] = []
"""The inboxes of threads that wait for work, which saves starting a new one for each call."""
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_idle.clear)


def _start(work: Callable[[], None], name: str) -> None:
    """Call `work`, which raises nothing, in a daemon thread named `name`: an idle one or a new one."""
    try:
        _idle.pop().put((work, name))
    except IndexError:
        inbox: queue.SimpleQueue[_Job] = queue.SimpleQueue()
        inbox.put((work, name))  # first, as Ctrl-C may break into `start`: the thread would wait for ever
        threading.Thread(target=_serve, args=(inbox,), daemon=True).start()


def _serve(inbox: queue.SimpleQueue[_Job]) -> None:
    process = os.getpid()
    while True:
        work, threading.current_thread().name = inbox.get()
        work()
        del work  # what it holds is not kept while the thread is idle
        if os.getpid() != process:  # `work` has forked, and this is the child: nobody would end it
            return
        asyncio.set_event_loop(None)  # the work may have left a closed one to the next
        threading.current_thread().name = "hello_react idle"
        _idle.append(inbox)
        if len(_idle) > MOST_IDLE:
            with contextlib.suppress(ValueError):  # taken meanwhile: there is work
                _idle.remove(inbox)
                return


def run_in_thread(run: Callable[[threading.Event], Any], timeout: float | None, name: str) -> Any:
    """What `run` returns or raises, called in another thread with this thread's context variables.

    It is given an event that is set as soon as nobody waits for it any more.

    Raises:
        TimeoutError: it took longer than `timeout` seconds; the thread is left to itself.
    """
    given_up = threading.Event()
    outcome: queue.SimpleQueue[tuple[Any, BaseException | None]] = queue.SimpleQueue()

    def work() -> None:
        try:
            outcome.put((run(given_up), None))
        except BaseException as error:  # noqa: BLE001  handed to the waiting thread, which raises it
            outcome.put((None, error))

    _start(partial(contextvars.copy_context().run, work), name)
    deadline = math.inf if timeout is None else time.monotonic() + timeout
    try:
        while True:
            try:  # in short pieces: on Windows a long wait can't be interrupted by Ctrl-C
                value, failure = outcome.get(timeout=min(0.5, max(0.0, deadline - time.monotonic())))
            except queue.Empty:
                if time.monotonic() >= deadline:
                    raise TimeoutError(f"no result within {timeout:g} seconds") from None
                continue
            if failure is not None:
                raise failure
            return value
    finally:
        given_up.set()


def run_async_in_thread(main: Coroutine[Any, Any, Any], stop: Callable[[], Any], patience: float,
                        name: str) -> Any:
    """What the coroutine returns or raises, run by an event loop of its own in a thread.

    Interrupted, as by Ctrl-C, this calls `stop` and gives the coroutine `patience` seconds to end; `stop`
    should do nothing where it has ended.
    """
    ended = threading.Event()

    def run(given_up: threading.Event) -> Any:
        try:
            return asyncio.run(main)
        finally:
            ended.set()

    try:
        return run_in_thread(run, None, name)
    except BaseException:
        stop()
        ended.wait(patience)
        raise


async def iterate_in_thread(items: Iterator[Item]) -> AsyncIterator[Item]:
    """Yield what `items` yields, each produced in one worker thread; its exception, if any, is raised here.

    Cancelled or closed, this returns at once; the thread ends at the next item and closes the generator.
    """
    loop = asyncio.get_running_loop()
    queue: asyncio.Queue[tuple[list[Item], BaseException | None]] = asyncio.Queue()
    stopped = threading.Event()

    def put(item: list[Item], error: BaseException | None) -> None:
        try:
            loop.call_soon_threadsafe(queue.put_nowait, (item, error))
        except RuntimeError:  # the loop was closed meanwhile: nobody listens any more
            stopped.set()

    def work() -> None:
        error: BaseException | None = None
        try:
            for item in items:
                put([item], None)
                if stopped.is_set():
                    break
            close = getattr(items, "close", None)
            if close is not None:
                close()
        except BaseException as raised:  # noqa: BLE001  handed to the asynchronous side, which raises it
            error = raised
        put([], error)

    context = contextvars.copy_context()
    threading.Thread(target=context.run, args=(work,), name="hello_react run", daemon=True).start()
    try:
        while True:
            item, error = await queue.get()
            if error is not None:
                raise error
            if not item:
                return
            yield item[0]
    finally:
        stopped.set()
