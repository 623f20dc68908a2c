"""Iterate a generator in a worker thread, from asynchronous code: the async face of the one loop.

    >>> import asyncio
    >>> async def main():
    ...     return [number async for number in iterate_in_thread(iter(range(3)))]
    >>> asyncio.run(main())
    [0, 1, 2]
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from typing import TypeVar

Item = TypeVar("Item")


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

    threading.Thread(target=work, name="hello_react run", daemon=True).start()
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
