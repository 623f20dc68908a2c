"""What the workflow engine costs: time per event, and memory per run. Run by hand, on a quiet machine.

    python tests/benchmarks/workflow_overhead.py

Prints, measured in one process: a hand-over through bare `asyncio.Queue`s (two tasks that pass one item to
and fro), an event of this engine (one step that returns the next event), the same with
`llama-index-workflows` where that is installed, and ten thousand runs of a three-step workflow at once.
The exit status is 1 if a limit is missed: an event costs at most ten hand-overs, and less than the peer's.
"""

from __future__ import annotations

import asyncio
import statistics
import sys
import time
import tracemalloc
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from hello_react.workflow import Event, StartEvent, StopEvent, Workflow, step

EVENTS = 5_000
RUNS = 10_000
ROUNDS = 5


class Hop(Event):
    left: int


class Loop(Workflow):
    @step
    async def begin(self, ev: StartEvent) -> Hop:
        return Hop(left=ev.events)

    @step
    async def hop(self, ev: Hop) -> Hop | StopEvent:
        return Hop(left=ev.left - 1) if ev.left else StopEvent()


class First(Event):
    n: int


class Second(Event):
    n: int


class ThreeSteps(Workflow):
    @step
    async def one(self, ev: StartEvent) -> First:
        return First(n=ev.n)

    @step
    async def two(self, ev: First) -> Second:
        await asyncio.sleep(0.5)  # long enough for all runs to be under way together
        return Second(n=ev.n)

    @step
    async def three(self, ev: Second) -> StopEvent:
        return StopEvent(ev.n)


async def hand_overs(count: int) -> None:
    """Passes an item `count` times from one task to the other."""
    there: asyncio.Queue[int] = asyncio.Queue()
    back: asyncio.Queue[int] = asyncio.Queue()

    async def echo() -> None:
        for _ in range(count // 2):
            await back.put(await there.get())

    task = asyncio.create_task(echo())
    for n in range(count // 2):
        await there.put(n)
        await back.get()
    await task


async def one_way(count: int) -> None:
    """Passes `count` items from one task to the other through a queue with room for one."""
    queue: asyncio.Queue[int] = asyncio.Queue(maxsize=1)

    async def take() -> None:
        for _ in range(count):
            await queue.get()

    task = asyncio.create_task(take())
    for n in range(count):
        await queue.put(n)
    await task


async def engine(count: int) -> None:
    await Loop(timeout=None).run(events=count)


def peer() -> Any:
    """The same loop with llama-index-workflows, or None where it is not installed."""
    try:
        import workflows
        from workflows import events
    except ImportError:
        return None

    class PeerHop(events.Event):  # type: ignore[misc]
        left: int

    class PeerLoop(workflows.Workflow):  # type: ignore[misc]
        @workflows.step
        async def begin(self, ev: events.StartEvent) -> PeerHop:
            return PeerHop(left=ev.events)

        @workflows.step
        async def hop(self, ev: PeerHop) -> PeerHop | events.StopEvent:
            return PeerHop(left=ev.left - 1) if ev.left else events.StopEvent()

    async def run(count: int) -> None:
        await PeerLoop(timeout=None).run(events=count)

    return run


async def microseconds(run: Any, count: int) -> float:
    begin = time.perf_counter()
    await run(count)
    return (time.perf_counter() - begin) / count * 1e6


async def many_runs() -> None:
    workflow = ThreeSteps(timeout=300)
    begin = time.perf_counter()
    handlers = [workflow.run(n=n) for n in range(RUNS)]
    results = await asyncio.gather(*handlers)
    seconds = time.perf_counter() - begin
    assert results == list(range(RUNS))
    print(f"{RUNS:,} runs of three steps at once: {seconds:.2f} s, 0.5 s of it asleep in each run")
    del handlers, results
    tracemalloc.start()
    handlers = [workflow.run(n=n) for n in range(RUNS)]
    await asyncio.sleep(0.4)  # tracing slows the start, so all are under way by now, none is done
    size, _ = tracemalloc.get_traced_memory()
    print(f"memory per run: {size / RUNS / 1024:.2f} KiB while it is under way", end="")
    await asyncio.gather(*handlers)
    size, _ = tracemalloc.get_traced_memory()
    print(f", {size / RUNS / 1024:.2f} KiB when it has ended and its handler is kept")
    tracemalloc.stop()


async def main() -> int:
    runs = {"queue hand-over": hand_overs, "queue one way": one_way, "event of this engine": engine,
            "event of the peer": peer()}
    times: dict[str, list[float]] = {}
    for _ in range(ROUNDS):  # in turn, so that a noisy moment hits all alike
        for name, run in runs.items():
            if run is not None:
                count = EVENTS // 10 if name.endswith("peer") else EVENTS
                times.setdefault(name, []).append(await microseconds(run, count))
    middle = {name: statistics.median(values) for name, values in times.items()}
    bare, own = middle["queue hand-over"], middle["event of this engine"]
    print(f"Python {sys.version.split()[0]}, median of {ROUNDS} rounds")
    for name, value in middle.items():
        print(f"{name:22}{value:9.2f} µs {value / bare:8.1f} hand-overs")
    await many_runs()
    return int(own > 10 * bare or own >= middle.get("event of the peer", float("inf")))


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
