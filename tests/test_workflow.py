"""The workflow engine: steps, events, runs, contexts, and what goes wrong with them."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import dataclasses
import functools
import gc
import json
import logging
import os
import queue
import subprocess
import sys
import textwrap
import threading
import time
import typing
import weakref
from collections.abc import Awaitable, Coroutine
from pathlib import Path
from typing import Any, ClassVar, Generic, Optional, TypedDict, TypeVar, Union

import pytest
from pydantic import BaseModel, Field, PrivateAttr, RootModel, SecretStr, computed_field

from hello_react.errors import HelloReactError
from hello_react.workflow import (
    Context,
    ContextSerializationError,
    Event,
    EventFieldError,
    HumanResponseEvent,
    InputRequiredEvent,
    RetryPolicy,
    StartEvent,
    StateKeyError,
    StepFailedEvent,
    StopEvent,
    Workflow,
    WorkflowCancelledError,
    WorkflowCancelledEvent,
    WorkflowConfigurationError,
    WorkflowError,
    WorkflowFailedEvent,
    WorkflowRuntimeError,
    WorkflowTimedOutEvent,
    WorkflowTimeoutError,
    catch_error,
    step,
)
from hello_react.workflow_steps import declared

ROOT = Path(__file__).resolve().parents[1]
T = TypeVar("T")


class One(Event):
    n: int = 0


class Two(Event):
    n: int = 0


class Three(Event):
    n: int = 0


class Answer(HumanResponseEvent):
    text: str


class Question(InputRequiredEvent):
    text: str


class City(StartEvent):
    city: str


class Report(StopEvent):
    text: str


class Note(BaseModel):
    title: str
    stars: int = 0


@dataclasses.dataclass(frozen=True)
class Point:
    x: int
    y: int


@dataclasses.dataclass
class Counts:
    total: int = 0
    names: list[str] = dataclasses.field(default_factory=list)


class Chain(Workflow):
    @step
    async def first(self, ev: StartEvent) -> One:
        return One(n=ev.get("n", 1))

    @step
    async def second(self, ev: One) -> Two:
        return Two(n=ev.n + 1)

    @step
    async def third(self, ev: Two) -> StopEvent:
        return StopEvent(result=ev.n * 10)


def go(main: Any) -> Any:
    """Runs a coroutine function in a loop of its own, and checks that it leaves no task behind."""
    async def checked() -> Any:
        result = await asyncio.wait_for(main(), 20)
        assert asyncio.all_tasks() == {asyncio.current_task()}
        return result
    return asyncio.run(checked())


async def read(handler: Any) -> tuple[list[Event], BaseException | None]:
    """All events of a stream, and the error it ended with."""
    seen: list[Event] = []
    try:
        async for event in handler.stream_events():
            seen.append(event)
    except (WorkflowError, ValueError, ArithmeticError) as error:
        return seen, error
    return seen, None


async def read_first(handler: Any) -> Event:
    """The first event of a stream."""
    async for event in handler.stream_events():
        return event  # type: ignore[no-any-return]
    raise AssertionError("the stream is empty")


def refused(workflow: type[Workflow]) -> str:
    """What a run of the class is refused with."""
    with pytest.raises(WorkflowConfigurationError) as caught:
        workflow().run()
    return str(caught.value)


# Events.

def test_fields_are_checked_and_read_as_attributes_or_keys() -> None:
    event = Answer(text="yes")
    assert event.text == event["text"] == event.get("text") == "yes"
    assert "text" in event
    assert event.get("other", 5) == 5
    assert list(event) == ["text"]
    assert len(event) == 1
    assert dict(event.items()) == event.to_dict() == {"text": "yes"}
    assert (list(event.keys()), list(event.values())) == (["text"], ["yes"])
    assert event == Answer(text="yes")
    assert event != Answer(text="no")
    assert repr(event) == "Answer(text='yes')"
    event["text"] = "no"
    assert event.text == "no"
    with pytest.raises(AttributeError, match="Answer has no 'txet'; it has: text"):
        _ = event.txet
    with pytest.raises(KeyError):
        _ = event["txet"]
    with pytest.raises(TypeError, match="unhashable"):
        hash(event)


@pytest.mark.parametrize(("fields", "words"), [
    ({}, "Answer can't be made: missing 'text'; its fields: text"),
    ({"text": "a", "more": 1}, "unknown 'more'"),
    ({"txet": "a"}, "missing 'text', unknown 'txet'"),
])
def test_missing_and_unknown_fields_are_named(fields: dict[str, Any], words: str) -> None:
    with pytest.raises(EventFieldError) as caught:
        Answer(**fields)
    assert words in str(caught.value)
    assert isinstance(caught.value, (TypeError, HelloReactError))


def test_events_without_declared_fields_take_any_keyword() -> None:
    event = StartEvent(input="Hello!", self=1)
    assert event.input == "Hello!"
    assert event.get("name", "?") == "?"
    assert event["self"] == 1
    assert bool(Event())
    assert repr(Event()) == "Event()"
    with pytest.raises(AttributeError, match="StartEvent has no 'name'; it has: input"):
        _ = StartEvent(input="").name
    with pytest.raises(AttributeError, match="Event has no 'name'; it has: no fields"):
        _ = Event().name


def test_mutable_defaults_are_not_shared() -> None:
    class Bag(Event):
        items: list[int] = []  # noqa: RUF012  # a field may have the name of a method
        table: dict[str, list[int]] = {"a": [1]}  # noqa: RUF012
        made: list[int] = dataclasses.field(default_factory=lambda: [7])
        plain: int = dataclasses.field(default=3)
        needed: str = dataclasses.field()
        kind: ClassVar[str] = "bag"
        _hidden: int = 1

    one, two = Bag(needed="x"), Bag(needed="y")
    one.items.append(1)
    one.table["a"].append(2)
    one.made.append(8)
    assert (two.items, two.table, two.made, two.plain) == ([], {"a": [1]}, [7], 3)
    assert vars(two).keys() == {"items", "table", "made", "plain", "needed"}
    with pytest.raises(EventFieldError, match="missing 'needed'"):
        Bag()


def test_fields_are_inherited_and_defaults_may_change() -> None:
    class Base(Event):
        a: int
        b: int = 2

    class Derived(Base):
        b = 5
        c: int = 3

        @property
        def total(self) -> int:
            return self.a + self.b + self.c

    assert Derived(a=1).total == 9
    assert repr(Derived(a=1)) == "Derived(a=1, b=5, c=3)"
    assert Base(a=1).b == 2


def test_fields_come_from_all_base_classes() -> None:
    class Priced:
        price: int
        currency: str = "NOK"

    class Offer(One, Answer, Priced):
        note: str = ""

    offer = Offer(text="a", price=3)
    assert offer.to_dict() == {"n": 0, "text": "a", "price": 3, "currency": "NOK", "note": ""}
    with pytest.raises(EventFieldError, match="missing 'price', missing 'text'"):
        Offer()


def test_defaults_may_be_fields_of_pydantic() -> None:
    class Bag(Event):
        items: list[int] = Field(default_factory=list)
        table: dict[str, int] = Field({}, description="counts")
        plain: int = Field(default=3, ge=0)
        needed: str = Field(..., description="what for")
        _hidden: int = PrivateAttr(1)

    one, two = Bag(needed="x"), Bag(needed="y")
    one.items.append(1)
    one.table["a"] = 2
    assert two.to_dict() == {"items": [], "table": {}, "plain": 3, "needed": "y"}
    with pytest.raises(EventFieldError, match="missing 'needed'"):
        Bag()


def test_an_event_may_be_generic() -> None:
    class Box(Event, Generic[T]):
        value: T

    class Boxing(Workflow):
        @step
        async def start(self, ev: StartEvent) -> Box[int]:
            return Box[int](value=3)

        @step
        async def end(self, ev: Box[int]) -> StopEvent:
            return StopEvent(ev.to_dict())

    assert Boxing().run_sync() == {"value": 3}


def test_an_event_has_no_slots() -> None:
    with pytest.raises(WorkflowConfigurationError, match=r"^Order has __slots__, .* leave out slots=True$"):
        @dataclasses.dataclass(slots=True)
        class Order(Event):
            number: int = 0


def test_fields_hold_any_object_as_it_is() -> None:
    class Mixed(Event):
        note: Note
        lock: Any

    lock, note = threading.Lock(), Note(title="a")
    event = Mixed(note=note, lock=lock)
    assert event.note is note
    assert event.lock is lock


def test_stop_event_takes_its_result_by_place_or_name() -> None:
    assert StopEvent(3).result == StopEvent(result=3).result == 3
    assert StopEvent().result is None
    assert StopEvent(1, cost=2).cost == 2
    assert Report(text="a", result=1).result == 1
    assert Report(text="a").result is None

    class Typed(StopEvent):
        result: dict[str, int]

    assert Typed(result={"a": 1}).result == {"a": 1}

    class Computed(StopEvent):
        @property
        def result(self) -> str:  # type: ignore[override]
            return "computed"

    assert Computed().result == "computed"


# Routing.

def test_chain_runs_from_start_to_stop() -> None:
    async def main() -> None:
        assert await Chain().run() == 20
        assert await Chain().run(n=4) == 50
        assert await Chain().run(start_event=StartEvent(n=2)) == 30
    go(main)


def test_unions_and_several_steps_for_one_event() -> None:
    class Fork(Workflow):
        @step
        async def start(self, ev: StartEvent) -> One | Two:
            return Two() if ev.get("two") else One()

        @step
        async def left(self, ev: One) -> Three:
            return Three(n=1)

        @step
        async def right(self, ev: Union[One, Two]) -> Optional[Three]:  # noqa: UP045
            return Three(n=2)

        @step
        async def join(self, ctx: Context, ev: Three) -> StopEvent | None:
            await ctx.set("seen", [*await ctx.get("seen", default=[]), ev.n])
            wanted = await ctx.get("wanted", 2)
            seen = await ctx.get("seen")
            return StopEvent(sorted(seen)) if len(seen) == wanted else None

    async def main() -> None:
        assert await Fork().run() == [1, 2]
        ctx: Context[Any] = Context(Fork())
        await ctx.set("wanted", 1)
        assert await Fork().run(two=True, ctx=ctx) == [2]
    go(main)


def test_the_nearest_base_class_takes_an_event_that_no_step_names() -> None:
    class Special(One):
        pass

    class Other(One):
        pass

    class Pick(Workflow):
        @step
        async def start(self, ev: StartEvent) -> Special | Other:
            return ev.make()

        @step
        async def general(self, ev: One) -> StopEvent:
            return StopEvent("general")

        @step
        async def special(self, ev: Special) -> StopEvent:
            return StopEvent("special")

    async def main() -> None:
        assert await Pick().run(make=Special) == "special"
        assert await Pick().run(make=Other) == "general"
    go(main)


def test_loops_go_round_until_a_step_stops() -> None:  # W07
    class Countdown(Workflow):
        @step
        async def start(self, ev: StartEvent) -> One:
            return One(n=ev.n)

        @step
        async def again(self, ev: One) -> One | StopEvent:
            return One(n=ev.n - 1) if ev.n else StopEvent("lift-off")

    async def main() -> None:
        assert await Countdown().run(n=500) == "lift-off"
    go(main)


def test_an_event_may_be_returned_that_the_annotation_does_not_list() -> None:
    class Sly(Workflow):
        @step
        async def start(self, ev: StartEvent) -> One:
            return One(n=3)

        @step
        async def work(self, ev: One) -> StopEvent:
            return One(n=ev.n - 1) if ev.n else StopEvent("done")  # type: ignore[return-value]

    async def main() -> None:
        assert await Sly().run() == "done"
    go(main)


def test_returning_nothing_is_fine() -> None:  # W09
    class Quiet(Workflow):
        @step
        async def start(self, ctx: Context, ev: StartEvent) -> One | None:
            ctx.send_event(One(n=8))
            return None

        @step
        async def note(self, ev: One) -> None:
            return None

        @step
        async def work(self, ev: One) -> StopEvent:
            return StopEvent(ev.n)

    async def main() -> None:
        assert await Quiet().run() == 8
    go(main)


@pytest.mark.parametrize(("value", "name"), [("text", "str"), (3, "int"), ([One()], "list"), (One, "type")])
def test_returning_no_event_names_step_and_type(value: Any, name: str) -> None:  # W08
    class Wrong(Workflow):
        calls = 0

        @step(retry_policy=RetryPolicy(delay=0))
        async def start(self, ev: StartEvent) -> StopEvent:
            self.calls += 1
            return value  # type: ignore[no-any-return]

    async def main() -> None:
        workflow = Wrong()
        with pytest.raises(WorkflowRuntimeError) as caught:
            await workflow.run()
        assert str(caught.value) == f"step 'start' returned {name}: a step returns an event or None"
        assert workflow.calls == 1  # trying again would not help
    go(main)


def test_returning_an_event_that_nobody_takes_names_both() -> None:
    class Lost(Workflow):
        @step
        async def start(self, ev: StartEvent) -> StopEvent:
            return Two()  # type: ignore[return-value]

    async def main() -> None:
        with pytest.raises(WorkflowRuntimeError) as caught:
            await Lost().run()
        assert str(caught.value) == ("step 'start' returned Two, but no step takes it: "
                                     "add a step with `ev: Two`")
    go(main)


def test_custom_start_and_stop_events() -> None:
    class Weather(Workflow):
        @step
        async def look(self, ev: City) -> Report:
            return Report(text=f"sun in {ev.city}")

    async def main() -> None:
        report = await Weather().run(city="Rome")
        assert isinstance(report, Report)
        assert report.text == "sun in Rome"
        assert (await Weather().run(start_event=City(city="Oslo"))).text == "sun in Oslo"
    go(main)


def test_a_wrong_start_is_named() -> None:  # W11
    class Weather(Workflow):
        @step
        async def look(self, ev: City) -> StopEvent:
            return StopEvent()

    workflow = Weather()
    for wrong, name in ((object(), "object"), (StartEvent(city="Rome"), "StartEvent"), (City, "type"),
                        ({"city": "Rome"}, "dict")):
        with pytest.raises(WorkflowRuntimeError) as caught:
            workflow.run(start_event=wrong)  # type: ignore[arg-type]
        assert str(caught.value) == f"start_event must be a City, not {name}"
    with pytest.raises(WorkflowRuntimeError, match="City can't be made: missing 'city', unknown 'town'"):
        workflow.run(town="Rome")
    with pytest.raises(WorkflowRuntimeError, match="City can't be made: missing 'city'"):
        workflow.run()
    with pytest.raises(WorkflowRuntimeError, match="not both: city"):
        workflow.run(start_event=City(city="Rome"), city="Rome")


def test_plain_steps_run_in_threads_side_by_side() -> None:
    meet = threading.Barrier(2, timeout=10)

    class Blocking(Workflow):
        @step
        def start(self, ctx: Context, ev: StartEvent) -> One | None:
            ctx.write_event_to_stream(Event(thread=threading.get_ident()))
            ctx.send_event(One(n=1))
            ctx.send_event(One(n=2))
            return None

        @step
        def work(self, ev: One) -> Two:
            meet.wait()
            return Two(n=ev.n)

        @step
        def join(self, ctx: Context, ev: Two) -> StopEvent | None:
            found = ctx.collect_events(ev, [Two] * 2)
            return None if found is None else StopEvent(sorted(one.n for one in found))

    async def main() -> None:
        handler = Blocking().run()
        seen, _ = await read(handler)
        assert await handler == [1, 2]
        assert seen[0].thread != threading.get_ident()
    go(main)


def test_as_many_plain_steps_at_a_time_as_there_are_workers() -> None:
    meet = threading.Barrier(40, timeout=10)

    class Wide(Workflow):
        @step
        def start(self, ctx: Context, ev: StartEvent) -> One | None:
            for n in range(40):
                ctx.send_event(One(n=n))
            return None

        @step(num_workers=40)
        def work(self, ev: One) -> Two:
            meet.wait()
            return Two(n=ev.n)

        @step
        def join(self, ctx: Context, ev: Two) -> StopEvent | None:
            return StopEvent("met") if ctx.collect_events(ev, [Two] * 40) else None

    assert Wide().run_sync() == "met"


def test_a_script_does_not_wait_for_a_thread_beyond_the_time_limit() -> None:
    go_on = threading.Event()
    told: queue.Queue[BaseException] = queue.Queue()

    class Stuck(Workflow):
        @step
        def start(self, ctx: Context, ev: StartEvent) -> StopEvent:
            go_on.wait(20)
            try:
                ctx.write_event_to_stream(Event())
            except WorkflowError as error:
                told.put(error)
            return StopEvent()

    began = time.monotonic()
    with pytest.raises(WorkflowTimeoutError):
        Stuck(timeout=0.05).run_sync()
    assert time.monotonic() - began < 10
    go_on.set()
    assert isinstance(told.get(timeout=10), WorkflowCancelledError)  # its event loop is closed by now


def test_a_thread_that_goes_on_after_the_end_is_told() -> None:
    told: list[BaseException] = []
    ended = threading.Event()

    class Long(Workflow):
        @step
        def start(self, ctx: Context, ev: StartEvent) -> StopEvent:
            try:
                while True:
                    ctx.write_event_to_stream(Event())
                    time.sleep(0.01)
            except WorkflowCancelledError as error:
                told.append(error)
                ended.set()
                raise

    async def main() -> None:
        with pytest.raises(WorkflowTimeoutError):
            await Long(timeout=0.1).run()
        await asyncio.to_thread(ended.wait, 5)
    go(main)
    assert len(told) == 1


def test_a_thread_may_raise_anything_even_stop_iteration() -> None:
    class Empty(Workflow):
        @step
        def start(self, ev: StartEvent) -> StopEvent:
            return StopEvent(next(iter([])))

    async def main() -> None:
        with pytest.raises(RuntimeError, match="StopIteration"):
            await Empty().run()
    go(main)


@pytest.mark.parametrize("kind", [Awaitable[StopEvent], Coroutine[Any, Any, StopEvent | None]])
def test_a_plain_function_may_say_that_it_returns_an_awaitable(kind: Any) -> None:
    async def later() -> StopEvent:
        return StopEvent("later")

    class Handing(Workflow):
        @step
        def start(self, ev: StartEvent) -> kind:
            return later()

    assert Handing().run_sync() == "later"


def test_a_plain_function_may_return_an_awaitable() -> None:
    async def answer() -> StopEvent:
        return StopEvent("awaited")

    class Wrapped(Workflow):
        @step
        def start(self, ev: StartEvent) -> StopEvent:
            return answer()  # type: ignore[return-value]

    async def main() -> None:
        assert await Wrapped().run() == "awaited"
    go(main)


def test_context_variables_of_the_caller_reach_the_steps() -> None:
    user: contextvars.ContextVar[str] = contextvars.ContextVar("user")

    class Who(Workflow):
        @step
        async def start(self, ev: StartEvent) -> One:
            return One()

        @step
        def end(self, ev: One) -> StopEvent:
            return StopEvent(user.get())

    async def main() -> None:
        user.set("Ada")
        assert await Who().run() == "Ada"
        assert Who().run_sync() == "Ada"
    go(main)


@pytest.mark.parametrize("at_once", [None, 1])
def test_context_variables_of_each_run_are_those_of_whoever_began_it(at_once: int | None) -> None:
    user: contextvars.ContextVar[str] = contextvars.ContextVar("user")
    seen: list[tuple[str, str]] = []

    class Again(RetryPolicy):
        def next(self, elapsed_time: float, attempts: int, error: BaseException) -> float | None:
            seen.append(("policy", user.get()))
            return 0 if attempts == 1 else None

    class Asks(Workflow):
        @step
        async def start(self, ev: StartEvent) -> Question:
            await asyncio.sleep(0.01)
            seen.append((ev.who, user.get()))
            user.set("nobody")  # stays in this step
            return Question(text=ev.who)

        @step(retry_policy=Again())
        async def end(self, ctx: Context, ev: Answer) -> StopEvent:
            seen.append((ev.text, user.get()))
            if seen.count((ev.text, user.get())) == 1:
                raise OSError("once")
            return StopEvent(user.get())

    async def answer(handler: Any) -> None:
        async for event in handler.stream_events():
            if isinstance(event, Question):
                user.set("a clerk")
                handler.ctx.send_event(Answer(text="yes"))

    async def request(workflow: Asks, who: str) -> str:
        user.set(who)
        handler = workflow.run(who=who)
        await asyncio.create_task(answer(handler))
        return await handler

    async def main() -> None:
        workflow, names = Asks(num_concurrent_runs=at_once), ["ada", "bob", "cyd"]
        assert await asyncio.gather(*(asyncio.create_task(request(workflow, who)) for who in names)) == names
        for who in names:
            assert [one for one in seen if one[1] == who] == [
                (who, who), ("yes", who), ("policy", who), ("yes", who)]
        assert len(seen) == 12
    go(main)


@pytest.mark.skipif(not hasattr(asyncio, "eager_task_factory"), reason="eager tasks came with Python 3.12")
def test_a_loop_may_run_its_tasks_eagerly() -> None:
    class Saves(Workflow):
        @step
        async def start(self, ctx: Context, ev: StartEvent) -> StopEvent:
            return StopEvent([job["step"] for job in ctx.to_dict()["paused"]])

    class Stops(Workflow):
        went_on = False

        @step
        async def start(self, ctx: Context, ev: StartEvent) -> StopEvent:
            ctx.send_event(StopEvent("over"))
            await asyncio.sleep(0)
            Stops.went_on = True
            return StopEvent()

    async def main() -> None:
        asyncio.get_running_loop().set_task_factory(asyncio.eager_task_factory)  # type: ignore[attr-defined]
        assert await Saves().run() == ["start"]
        assert await Stops().run() == "over"
        assert not Stops.went_on
        assert await Chain().run(n=3) == Chain().run_sync(n=3)
    go(main)


# Steps as functions, and the check before a run.

def test_functions_become_steps() -> None:
    class Grown(Workflow):
        @step
        async def start(self, ev: StartEvent) -> One:
            return One(n=1)

    @step
    async def finish(ctx: Context, ev: Two) -> StopEvent:
        await ctx.set("seen", True)
        return StopEvent(ev.n)

    @step(workflow=Grown, num_workers=2)
    def middle(ev: One) -> Two:
        return Two(n=ev.n + 1)

    Grown.add_step(finish)

    class Child(Grown):
        pass

    async def main() -> None:
        assert await Grown().run() == 2
        assert await Child().run() == 2  # inherited
        assert middle(One(n=5)) == Two(n=6)  # still a function
    go(main)


def test_a_step_added_after_a_run_is_checked() -> None:  # W33
    class Grown(Workflow):
        @step
        async def start(self, ev: StartEvent) -> StopEvent:
            return StopEvent(1)

    @step
    async def orphan(ev: Three) -> StopEvent:
        return StopEvent(2)

    async def main() -> None:
        workflow = Grown()
        assert await workflow.run() == 1
        workflow.add_step(orphan)
        with pytest.raises(WorkflowConfigurationError, match="'orphan' takes Three, but no step returns it"):
            workflow.run()
    go(main)


def test_a_step_replaced_after_a_run_is_checked() -> None:
    class Base(Workflow):
        @step
        async def start(self, ev: StartEvent) -> One:
            return One()

        @step
        async def end(self, ev: One) -> StopEvent:
            return StopEvent("real")

    class Child(Base):
        pass

    async def fake(self: Any, ev: One) -> StopEvent:
        return StopEvent("fake")

    def runs(kind: Any) -> Any:
        return kind().run_sync()

    assert (runs(Base), runs(Child)) == ("real", "real")
    Child.end = fake  # type: ignore[method-assign,assignment]
    with pytest.raises(WorkflowConfigurationError, match=r"Child.end takes the place of a step: put @step"):
        runs(Child)
    del Child.end
    assert runs(Child) == "real"
    Base.end = step(fake)  # type: ignore[method-assign,assignment]
    assert (runs(Base), runs(Child)) == ("fake", "fake")
    Child.more = step(Chain.second)  # type: ignore[attr-defined]
    with pytest.raises(WorkflowConfigurationError, match="'more' returns Two, but no step takes it"):
        runs(Child)
    Child.more = None  # type: ignore[attr-defined]
    assert runs(Child) == "fake"
    del Base.end
    with pytest.raises(WorkflowConfigurationError, match="no step returns a stop event"):
        runs(Base)


def test_a_step_can_not_be_replaced_on_one_object() -> None:
    workflow: Any = Chain()
    workflow.second = lambda ev: Two()
    for call in (workflow.validate, workflow.run_sync, workflow.draw, lambda: Context(workflow)):
        with pytest.raises(WorkflowConfigurationError,
                           match=r"^step 'second' set on the object would not run: set it on the class, "):
            call()
    workflow.second = None  # nothing that could be meant to run
    assert workflow.run_sync(n=3) == Chain().run_sync(n=3)


def test_names_are_unique_and_functions_decorated() -> None:  # W10
    class Base(Workflow):
        @step
        async def start(self, ev: StartEvent) -> StopEvent:
            return StopEvent()

    @step
    async def start(ev: StartEvent) -> StopEvent:
        return StopEvent()

    async def bare(ev: StartEvent) -> StopEvent:
        return StopEvent()

    with pytest.raises(WorkflowConfigurationError, match="Base has a step 'start': choose another name"):
        Base.add_step(start)
    with pytest.raises(WorkflowConfigurationError, match="function 'bare' is no step: put @step above it"):
        Base.add_step(bare)
    with pytest.raises(WorkflowConfigurationError, match="step 'twice' stands twice in its class"):
        class Double(Workflow):
            @step
            async def twice(self, ev: StartEvent) -> StopEvent:
                return StopEvent()

            @step(num_workers=2)
            async def twice(self, ev: StartEvent) -> StopEvent:  # noqa: F811
                return StopEvent()
    with pytest.raises(WorkflowConfigurationError, match=r"step 'run' hides Workflow\.run"):
        class Hiding(Workflow):
            @step
            async def run(self, ev: StartEvent) -> StopEvent:  # type: ignore[override]
                return StopEvent()


def test_a_child_class_may_replace_a_step() -> None:
    class Child(Chain):
        @step
        async def second(self, ev: One) -> Two:
            return Two(n=100)

    class Named(Workflow):
        @staticmethod
        @step
        async def start(ev: StartEvent) -> StopEvent:
            return StopEvent("static")

        again = Chain.second
        more = Chain.first

    class Grown(Workflow):
        @step
        async def start(self, ev: StartEvent) -> One:
            return One()

    @step(workflow=Grown)
    async def end(ev: One) -> StopEvent:
        return StopEvent("added")

    class Regrown(Grown):
        @step
        async def end(self, ev: One) -> StopEvent:
            return StopEvent("replaced")

    async def main() -> None:
        assert [await Grown().run(), await Regrown().run()] == ["added", "replaced"]
        assert await Child().run() == 1000
        assert (await Chain().run()) == 20
    go(main)
    assert "more" in declared(Named)


def test_a_method_that_is_no_step_can_not_take_the_place_of_one() -> None:
    class Forgot(Chain):
        async def second(self, ev: One) -> Two:
            return Two(n=100)

    class Without(Chain):
        second = None  # type: ignore[assignment]

    words = "Forgot.second takes the place of a step: put @step above it, or choose another name (`second = None`"
    assert refused(Forgot).startswith(words)
    assert "step 'first' returns One, but no step takes it" in refused(Without)


@pytest.mark.parametrize(("signature", "words"), [
    ("self, ev) -> StopEvent", "step 'work' has a parameter 'ev' that is no event: annotate it"),
    ("self, ev: int) -> StopEvent", "step 'work' has a parameter 'ev' that is no event"),
    ("self) -> StopEvent", "step 'work' takes no event: add a parameter, as in `ev: StartEvent`"),
    ("self, ctx: Context) -> StopEvent", "step 'work' takes no event"),
    ("self, ev: StartEvent)", "step 'work' does not say what it returns: annotate it, as in `-> StopEvent`"),
    ("self, ev: StartEvent) -> str", "'work' is annotated to return str: a step returns an event or None"),
    ("self, ev: StartEvent) -> 'One | list[int]'", "is annotated to return list"),
    ("self, a: StartEvent, b: One) -> StopEvent", "takes two events, 'a' and 'b': take one"),
    ("self, ev: StartEvent, /) -> StopEvent", "has a parameter 'self' before a `/`: take that out"),
    ("self, *args: StartEvent) -> StopEvent", "step 'work' takes no event"),
    ("self, ev: None) -> StopEvent", "step 'work' has a parameter 'ev' that is no event"),
    ("self, ev: StartEvent) -> Awaitable[StopEvent]", "is annotated to return Awaitable"),
])
def test_annotations_that_say_too_little(signature: str, words: str) -> None:
    names = {**globals()}
    with pytest.raises(WorkflowConfigurationError) as caught:
        exec(f"@step\nasync def work({signature}:\n    pass\n", names)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_only_functions_become_steps() -> None:
    for wrong in (staticmethod(len), int, 5, Chain()):
        for mark in (step, catch_error):
            with pytest.raises(WorkflowConfigurationError, match="is no function: put @step on one"):
                mark(wrong)  # type: ignore[call-overload]


def test_extra_parameters_with_defaults_are_left_alone() -> None:
    class Extra(Workflow):
        @step
        async def start(self, ev: StartEvent | None = None, loud: bool = False) -> StopEvent:
            return StopEvent((type(ev), loud))

    assert Extra().run_sync() == (StartEvent, False)


def test_what_may_be_left_out_is_left_alone() -> None:
    class Loose(Workflow):
        @step
        async def start(self, ev: StartEvent, *args: Any, **options: Any) -> StopEvent:
            return StopEvent((args, options))

    assert Loose().run_sync() == ((), {})


@pytest.mark.parametrize("hint", ["Context", "Optional[Context]", "Context[Counts] | None", "Optional[Context[Any]]"])
@pytest.mark.parametrize("default", ["", " = None"])
def test_a_context_is_given_whatever_its_default(hint: str, default: str) -> None:
    names: dict[str, Any] = {**globals()}
    exec(f"class Given(Workflow):\n    @step\n"
         f"    async def start(self, ev: StartEvent, *, ctx: {hint}{default}) -> StopEvent:\n"
         f"        return StopEvent(ctx)\n", names)
    assert isinstance(names["Given"]().run_sync(), Context)


@pytest.mark.skipif(sys.version_info < (3, 12), reason="needs the type statement")
def test_a_union_may_have_a_name() -> None:
    names: dict[str, Any] = {**globals()}
    exec(textwrap.dedent("""
        type Either = One | Two
        type Maybe = Either | None

        class Named(Workflow):
            @step
            async def start(self, ev: StartEvent) -> Maybe:
                return One()

            @step
            async def end(self, ev: Either) -> StopEvent:
                return StopEvent(ev)
    """), names)
    assert names["Named"]().run_sync() == One()


def test_annotations_may_name_classes_defined_later_or_locally() -> None:
    source = textwrap.dedent("""
        from __future__ import annotations
        from hello_react.workflow import Event, StartEvent, StopEvent, Workflow, step

        class Late(Workflow):
            @step
            async def start(self, ev: StartEvent) -> Later:
                return Later()

            @step
            async def end(self, ev: Later) -> StopEvent:
                return StopEvent("late")

        class Never(Workflow):
            @step
            async def start(self, ev: StartEvent) -> Nowhere:
                return None

        class Nested(Workflow):
            @step
            async def start(self, ev: StartEvent) -> Later.Inner:
                return None

        class Later(Event):
            pass
    """)
    names: dict[str, Any] = {"__name__": "late_module"}
    exec(compile(source, "late_module", "exec", dont_inherit=True), names)
    assert names["Late"]().run_sync() == "late"
    with pytest.raises(WorkflowConfigurationError, match="'start' has an annotation that can't") as caught:
        names["Never"]().run()
    assert "'Nowhere' is not defined" in str(caught.value)
    with pytest.raises(WorkflowConfigurationError, match=r"can't be read .* has no attribute 'Inner'"):
        names["Nested"]().run()


@pytest.mark.parametrize("hint", ["StartEvent |", "StartEvent | 3"])
def test_an_annotation_that_is_no_type_is_named(hint: str) -> None:
    async def look(ev: Any) -> None: ...
    look.__annotations__["ev"] = hint
    with pytest.raises(WorkflowConfigurationError, match="step 'look' has an annotation that is no type"):
        step(look)


class Nearby(Event): ...


def make_search() -> type[Workflow]:
    class Search(Workflow):
        @step
        async def look(self, ev: StartEvent) -> Nearby:
            return Nearby()

        @step
        async def tell(self, ev: Nearby) -> StopEvent:
            return StopEvent("ok")
    return Search


def test_local_names_of_a_caller_do_not_count() -> None:
    class Nearby(Event): ...

    assert make_search()().run_sync() == "ok"
    assert Nearby


def test_a_workflow_may_have_attributes_called_as_the_engine_might() -> None:
    class Roads(Workflow):
        def __init__(self) -> None:
            super().__init__(num_concurrent_runs=1)
            self._graph, self._places = {"Oslo": ["Bergen"]}, ["Oslo"]

        @step
        async def look(self, ctx: Context, ev: StartEvent) -> StopEvent:
            return StopEvent(self._graph[self._places[0]])
    assert Roads().run_sync() == ["Bergen"]


def test_options_are_checked() -> None:
    for workers in (0, -1, 1.5, True, "2"):
        with pytest.raises(WorkflowConfigurationError, match="num_workers must be a whole number from 1 on"):
            step(num_workers=workers)  # type: ignore[arg-type]
    for wrong in [*(("timeout", value) for value in (0, -1.0, "5", True, [1], float("nan"))),
                  *(("num_concurrent_runs", value) for value in (0, "2", 1.5, True, float("nan")))]:
        with pytest.raises(WorkflowConfigurationError, match=rf"^{wrong[0]} must be .*, not "):
            Chain(**dict([wrong]))  # type: ignore[arg-type]
    for policy in [*(("maximum_attempts", value) for value in (0, "3", 1.5, None, True)),
                   *((name, value) for name in ("delay", "multiplier", "max_delay")
                     for value in (-1, "1", None, True, float("nan"))),
                   *(("retry_on", value) for value in ("x", None, int, [OSError], (OSError, "x")))]:
        with pytest.raises(WorkflowConfigurationError, match=rf"^{policy[0]} must be .*, not "):
            RetryPolicy(**dict([policy]))  # type: ignore[arg-type]
    assert RetryPolicy(delay=0, max_delay=float("inf"), retry_on=()).next(0.0, 1, OSError()) is None
    for retry in (3, "x", RetryPolicy):
        with pytest.raises(WorkflowConfigurationError, match=r"^retry_policy must be a RetryPolicy"):
            step(retry_policy=retry)  # type: ignore[call-overload]
    with pytest.raises(WorkflowConfigurationError, match=r"for_steps must be a list of names, as in \['start'\]"):
        catch_error(for_steps="start")
    with pytest.raises(WorkflowConfigurationError, match="annotate its parameter with StepFailedEvent"):
        @catch_error
        async def handle(self: Any, ev: StartEvent) -> StopEvent:
            return StopEvent()


def test_a_class_that_forgets_to_call_the_base_still_works() -> None:
    class Forgetful(Chain):
        def __init__(self) -> None:
            self.model = "any"

    assert Forgetful().run_sync() == 20


def test_no_steps() -> None:
    class Empty(Workflow):
        pass

    assert refused(Empty) == "Empty: there are no steps: put @step on its methods"


def test_no_step_takes_the_start_event() -> None:  # W01
    class NoStart(Workflow):
        @step
        async def work(self, ev: One) -> One | StopEvent:
            return StopEvent()

    assert refused(NoStart) == "NoStart: no step takes the start event: add a step with `ev: StartEvent`"


def test_no_step_returns_a_stop_event() -> None:  # W02
    class NoStop(Workflow):
        @step
        async def work(self, ev: StartEvent) -> None:
            return None

    class NoStop2(Workflow):
        @step
        async def work(self, ev: StartEvent) -> One:
            return One()

        @step
        async def more(self, ev: One) -> One:
            return One()

    for kind in (NoStop, NoStop2):
        assert refused(kind) == (f"{kind.__name__}: no step returns a stop event, so no run can end: "
                                 "add a step with `-> StopEvent`")


def test_events_produced_and_never_taken_or_the_reverse() -> None:  # W03
    class Loose(Workflow):
        @step
        async def start(self, ev: StartEvent) -> One | StopEvent:
            return StopEvent()

    class Orphan(Workflow):
        @step
        async def start(self, ev: StartEvent) -> StopEvent:
            return StopEvent()

        @step
        async def wait(self, ev: Two) -> StopEvent:
            return StopEvent()

    class Both(Workflow):
        @step
        async def start(self, ev: StartEvent) -> One | StopEvent:
            return StopEvent()

        @step
        async def wait(self, ev: Two) -> StopEvent:
            return StopEvent()

    assert refused(Loose) == (
        "Loose: step 'start' returns One, but no step takes it: add a step with `ev: One`")
    assert refused(Orphan) == (
        "Orphan: step 'wait' takes Two, but no step returns it: annotate the one that does with `-> Two`, "
        "or derive the event from HumanResponseEvent if it comes from outside")
    message = refused(Both)
    assert message.startswith("Both: 2 problems\n- step 'wait' takes Two,")
    assert "\n- step 'start' returns One," in message


def test_a_step_that_takes_the_stop_event() -> None:  # W04
    class Greedy(Workflow):
        @step
        async def start(self, ev: StartEvent) -> StopEvent:
            return StopEvent()

        @step
        async def after(self, ev: StopEvent) -> None:
            return None

    assert refused(Greedy) == "Greedy: step 'after' takes StopEvent, which ends a run: take another event"


def test_one_kind_of_start_and_stop_event_only() -> None:
    class Two_(Workflow):
        @step
        async def a(self, ev: StartEvent) -> StopEvent:
            return StopEvent()

        @step
        async def b(self, ev: City) -> Report:
            return Report(text="")

    message = refused(Two_)
    assert "more than one kind of start event (StartEvent, City): keep one" in message
    assert "more than one kind of stop event (StopEvent, Report): keep one" in message


def test_unreachable_steps_and_cycles_without_a_way_out_are_named_together() -> None:  # W06
    class Maze(Workflow):
        @step
        async def entry(self, ev: StartEvent) -> One | StopEvent:
            return StopEvent()

        @step
        async def round_a(self, ev: One) -> Two:
            return Two()

        @step
        async def round_b(self, ev: Two) -> One:
            return One()

        @step
        async def island_a(self, ev: Three) -> Answer2 | StopEvent:
            return StopEvent()

        @step
        async def island_b(self, ev: Answer2) -> Three:
            return Three()

    class Answer2(Event):
        pass

    globals()["Answer2"] = Answer2
    message = refused(Maze)
    del globals()["Answer2"]
    assert message.startswith("Maze: 2 problems\n")
    assert "no run gets to steps 'island_a', 'island_b'" in message
    assert "no run gets out of steps 'round_a', 'round_b'" in message


def test_side_branches_that_end_in_nothing_are_fine() -> None:
    class Side(Workflow):
        @step
        async def start(self, ev: StartEvent) -> One | StopEvent:
            return StopEvent("ok")

        @step
        async def log(self, ev: One) -> Two:
            return Two()

        @step
        async def sink(self, ev: Two) -> None:
            return None

    Side().validate()
    assert Side().run_sync() == "ok"


def test_a_state_may_be_left_open() -> None:
    class Open(Workflow):
        @step
        async def a(self, ctx: Context[Any], ev: StartEvent) -> One:
            await ctx.set("n", 1)
            return One()

        @step
        async def b(self, ctx: Context[dict[str, int]], ev: One) -> StopEvent:
            async with ctx.store.edit_state() as state:
                state["n"] += 1
            return StopEvent(await ctx.get("n"))

    assert Open().run_sync() == 2


def test_one_state_type_with_defaults() -> None:
    class Needy:
        def __init__(self, needed: int) -> None:
            pass

    class Mixed(Workflow):
        @step
        async def a(self, ctx: Context[Counts], ev: StartEvent) -> One:
            return One()

        @step
        async def b(self, ctx: Context[Needy], ev: One) -> StopEvent:
            return StopEvent()

    class Alone(Workflow):
        @step
        async def a(self, ctx: Context[Needy], ev: StartEvent) -> StopEvent:
            return StopEvent()

    class Strict(Workflow):
        @step
        async def a(self, ctx: Context[Note], ev: StartEvent) -> StopEvent:
            return StopEvent()

    assert "Note needs a default for each field" in refused(Strict)
    assert "the steps name 2 state types" in refused(Mixed)
    assert "Needy needs a default for each field" in refused(Alone)


def test_a_dict_with_declared_keys_may_be_the_state() -> None:
    class Keys(TypedDict, total=False):
        n: int

    class Typed(Workflow):
        @step
        async def start(self, ctx: Context[Keys], ev: StartEvent) -> StopEvent:
            await ctx.set("n", await ctx.get("n", 0) + 1)
            return StopEvent(await ctx.get("n"))

    ctx: Context[Any] = Context(Typed())
    assert Typed().run_sync(ctx=ctx) == 1
    assert Typed().run_sync(ctx=Context.from_dict(Typed(), ctx.to_dict())) == 2


# Sending and gathering.

class Fan(Workflow):
    """Sends what it is told to and gathers what it is told to."""

    @step
    async def start(self, ctx: Context, ev: StartEvent) -> One | Two | Three | None:
        await ctx.set("expected", ev.expected)
        await ctx.set("rounds", [])
        for event in ev.send:
            ctx.send_event(event)
        return None

    @step(num_workers=1)
    async def gather(self, ctx: Context, ev: One | Two | Three) -> StopEvent | None:
        found = ctx.collect_events(ev, await ctx.get("expected"))
        rounds = await ctx.get("rounds")
        rounds.append(found)
        return StopEvent(rounds) if found is not None else None


@pytest.mark.parametrize(("send", "expected", "found"), [
    ([One(n=1), One(n=2), One(n=3)], [One] * 3, [One(n=1), One(n=2), One(n=3)]),  # W12
    ([Two(n=2), Three(n=9), One(n=1)], [One, Two], [One(n=1), Two(n=2)]),  # W13
    ([One(n=1), One(n=2), Two(n=3)], [Two, One], [Two(n=3), One(n=1)]),  # a surplus one waits
    ([One(n=1), Two(n=2)], [Event, Event], [One(n=1), Two(n=2)]),
    ([Two(n=2), One(n=1)], [Event, Two], [One(n=1), Two(n=2)]),  # the class and a class derived from it
    ([One(n=1)], [One], [One(n=1)]),
    ([One(n=1)], [], []),
])
def test_gathering(send: list[Event], expected: list[type[Event]], found: list[Event]) -> None:
    async def main() -> None:
        rounds = await Fan().run(send=send, expected=expected)
        assert rounds[-1] == found
        assert set(map(type, rounds[:-1])) <= {type(None)}
        assert len(rounds) == (len(send) if expected else 1)
    go(main)


def test_surplus_events_start_the_next_round_and_buffers_are_apart() -> None:
    class Pairs(Workflow):
        @step
        async def start(self, ctx: Context, ev: StartEvent) -> One | None:
            for n in range(5):
                ctx.send_event(One(n=n))
            return None

        @step(num_workers=1)
        async def pair(self, ctx: Context, ev: One) -> StopEvent | None:
            pairs = await ctx.get("pairs", default=[])
            found = ctx.collect_events(ev, [One, One])
            every = ctx.collect_events(ev, [One] * 5, buffer_id="all")
            if found is not None:
                await ctx.set("pairs", [*pairs, [one.n for one in found]])
            return StopEvent((await ctx.get("pairs"), [one.n for one in every])) if every else None

    async def main() -> None:
        assert await Pairs().run() == ([[0, 1], [2, 3]], [0, 1, 2, 3, 4])
        ctx: Context[Any] = Context(Pairs())
        for _ in range(2):  # what one run left over does not reach the next
            await ctx.set("pairs", [])
            assert (await Pairs().run(ctx=ctx))[0] == [[0, 1], [2, 3]]
    go(main)


def test_an_attempt_again_does_not_count_its_event_twice() -> None:
    class Shaky(Workflow):
        failed = 0

        @step
        async def start(self, ctx: Context, ev: StartEvent) -> One | None:
            ctx.send_event(One(n=1))
            ctx.send_event(One(n=2))
            return None

        @step(num_workers=1, retry_policy=RetryPolicy(delay=0))
        async def join(self, ctx: Context, ev: One) -> StopEvent | None:
            found = ctx.collect_events(ev, [One, One])
            self.failed += 1
            if self.failed in (1, 3):
                raise ValueError("once for each event")
            return StopEvent([one.n for one in found]) if found else None

    async def main() -> None:
        assert await Shaky().run() == [1, 2]
    go(main)


def test_an_attempt_again_gathers_the_same_whatever_the_last_one_did_with_it() -> None:
    class Popping(Workflow):
        tries = 0

        @step
        async def start(self, ctx: Context, ev: StartEvent) -> One | None:
            for n in range(3):
                ctx.send_event(One(n=n))
            return None

        @step(retry_policy=RetryPolicy(delay=0))
        async def gather(self, ctx: Context, ev: One) -> StopEvent | None:
            found = ctx.collect_events(ev, [One] * 3)
            if found is None:
                return None
            last = found.pop()
            self.tries += 1
            if self.tries == 1:
                raise OSError("again")
            return StopEvent([*found, last])

    assert Popping().run_sync() == [One(n=0), One(n=1), One(n=2)]


def test_a_step_may_gather_events_that_it_waited_for() -> None:
    class Poll(Workflow):
        @step
        async def start(self, ctx: Context, ev: StartEvent) -> StopEvent:
            while True:
                vote = await ctx.wait_for_event(Answer)
                votes = ctx.collect_events(vote, [Answer] * 3)
                if votes is not None:
                    return StopEvent([vote.text for vote in votes])

    async def main() -> None:
        handler = Poll().run()
        for text in "abc":
            handler.ctx.send_event(Answer(text=text))
        assert await handler == ["a", "b", "c"]
    go(main)


def test_cleaning_up_after_the_end_can_gather_nothing() -> None:
    told = []

    class Late(Workflow):
        @step
        async def start(self, ctx: Context, ev: StartEvent) -> StopEvent:
            try:
                await asyncio.sleep(30)
            finally:
                try:
                    ctx.collect_events(ev, [StartEvent])
                except WorkflowCancelledError as error:
                    told.append(str(error))
            return StopEvent()

    async def main() -> None:
        handler = Late().run()
        await asyncio.sleep(0)
        await handler.cancel_run()
        assert told == ["the run is over: what this step does is no longer wanted"]
        assert handler.ctx.to_dict()["buffers"] == []
    go(main)


def test_sending_to_one_step() -> None:  # W14
    class Targets(Workflow):
        @step
        async def start(self, ctx: Context, ev: StartEvent) -> One | None:
            if ev.to == "none":
                ctx.send_event("text")  # type: ignore[arg-type]
            ctx.send_event(One(), step=ev.to)
            return None

        @step
        async def left(self, ev: One) -> StopEvent:
            return StopEvent("left")

        @step
        async def right(self, ev: One) -> StopEvent:
            return StopEvent("right")

    async def main() -> None:
        assert await Targets().run(to="right") == "right"
        with pytest.raises(WorkflowRuntimeError, match="no step 'middle'; there are start, left, right"):
            await Targets().run(to="middle")
        with pytest.raises(WorkflowRuntimeError, match="step 'start' does not take One, but StartEvent"):
            await Targets().run(to="start")
        with pytest.raises(WorkflowRuntimeError, match="send_event takes an event, not str"):
            await Targets().run(to="none")
    go(main)


def test_one_worker_takes_one_event_at_a_time_in_order() -> None:  # W22
    class Queue(Workflow):
        busy = most = 0

        def __init__(self) -> None:
            super().__init__()
            self.order: list[int] = []

        @step
        async def start(self, ctx: Context, ev: StartEvent) -> One | None:
            for n in range(5):
                ctx.send_event(One(n=n))
            return None

        @step(num_workers=1)
        async def work(self, ev: One) -> Two:
            self.busy += 1
            self.most = max(self.most, self.busy)
            await asyncio.sleep(0.002)
            self.busy -= 1
            self.order.append(ev.n)
            return Two(n=ev.n)

        @step
        async def join(self, ctx: Context, ev: Two) -> StopEvent | None:
            return StopEvent(self.most) if ctx.collect_events(ev, [Two] * 5) else None

    async def main() -> None:
        workflow = Queue()
        assert await workflow.run() == 1
        assert workflow.order == [0, 1, 2, 3, 4]
    go(main)


def test_as_many_workers_as_allowed() -> None:
    class Crowd(Workflow):
        def __init__(self) -> None:
            super().__init__()
            self.busy = self.most = 0

        @step
        async def start(self, ctx: Context, ev: StartEvent) -> One | None:
            for _ in range(9):
                ctx.send_event(One())
            return None

        @step(num_workers=3)
        async def work(self, ev: One) -> Two:
            self.busy += 1
            self.most = max(self.most, self.busy)
            await asyncio.sleep(0.001)
            self.busy -= 1
            return Two()

        @step
        async def join(self, ctx: Context, ev: Two) -> StopEvent | None:
            return StopEvent(self.most) if ctx.collect_events(ev, [Two] * 9) else None

    async def main() -> None:
        assert await Crowd().run() == 3
    go(main)


def test_context_methods_outside_their_place() -> None:
    ctx: Context[Any] = Context(Chain())

    async def main() -> None:
        for call in (lambda: ctx.send_event(One()), lambda: ctx.write_event_to_stream(One())):
            with pytest.raises(WorkflowRuntimeError, match="needs a run"):
                call()
        with pytest.raises(WorkflowRuntimeError, match="collect_events is for steps"):
            ctx.collect_events(One(), [One])
        with pytest.raises(WorkflowRuntimeError, match="wait_for_event is for steps"):
            await ctx.wait_for_event(One)
        handler = Chain().run()
        with pytest.raises(WorkflowRuntimeError, match="write_event_to_stream takes an event, not int"):
            handler.ctx.write_event_to_stream(3)  # type: ignore[arg-type]
        await handler
    go(main)


@pytest.mark.parametrize(("call", "words"), [
    (lambda ctx: ctx.wait_for_event("Answer"), "wait_for_event takes a class of event, such as StopEvent, not ['Answer']"),
    (lambda ctx: ctx.wait_for_event(Answer(text="")), "wait_for_event takes a class of event"),
    (lambda ctx: ctx.wait_for_event(Answer, waiter_event="Name?"), "waiter_event is an event, not str"),
    (lambda ctx: ctx.collect_events(One(), One), "collect_events takes a list of classes, as in [Found] * 3, not <cl"),
    (lambda ctx: ctx.collect_events(One(), [One()]), "collect_events takes a class of event, such as StopEvent, not [One("),
])
def test_what_is_waited_for_and_gathered_is_checked(call: Any, words: str) -> None:
    class Wrong(Workflow):
        @step
        async def start(self, ctx: Context, ev: StartEvent) -> StopEvent:
            return StopEvent(await call(ctx))

    with pytest.raises(WorkflowRuntimeError) as caught:
        Wrong(timeout=5).run_sync()
    assert words in str(caught.value)


# State.

def test_state_is_read_written_and_missed() -> None:  # W20
    async def main() -> None:
        ctx: Context[Any] = Context(Chain())
        await ctx.set("name", "Ada")
        assert await ctx.get("name") == "Ada"
        assert await ctx.store.get("name") == "Ada"
        assert await ctx.get("age", default=None) is None
        assert await ctx.get("age", 3) == 3
        with pytest.raises(KeyError) as caught:
            await ctx.get("age")
        assert str(caught.value) == "the state has no 'age': set it first, or give a default"
        assert isinstance(caught.value, StateKeyError)
        await ctx.store.set_state({"fresh": 1})
        assert await ctx.store.get_state() == {"fresh": 1}
    go(main)


def test_context_carries_state_from_run_to_run() -> None:  # W19
    class Counter(Workflow):
        @step
        async def count(self, ctx: Context, ev: StartEvent) -> StopEvent:
            await ctx.set("n", await ctx.get("n", default=0) + 1)
            return StopEvent(await ctx.get("n"))

    async def main() -> None:
        workflow = Counter()
        ctx: Context[Any] = Context(workflow)
        assert [await workflow.run(ctx=ctx) for _ in range(3)] == [1, 2, 3]
        handler = workflow.run()
        assert await handler == 1
        assert await workflow.run(ctx=handler.ctx) == 2
        assert await Counter().run(ctx=ctx) == 4  # another object of the same class
        with pytest.raises(WorkflowRuntimeError, match="this context belongs to Counter"):
            Chain().run(ctx=ctx)
    go(main)
    ctx: Context[Any] = Context(Counter())  # and from loop to loop
    assert [Counter().run_sync(ctx=ctx) for _ in range(3)] == [1, 2, 3]


def test_what_is_given_as_a_context_is_one() -> None:
    for wrong in ("x", {}, StartEvent(), Context):
        with pytest.raises(WorkflowRuntimeError, match=f"ctx must be a Context, not {type(wrong).__name__}"):
            Chain().run(wrong)  # type: ignore[arg-type]
    for other in (Chain, object()):
        for make in (Context, lambda workflow: Context.from_dict(workflow, {})):
            with pytest.raises(WorkflowRuntimeError, match=r"made of a workflow object, as in Context\(My"):
                make(other)  # type: ignore[arg-type]


def test_context_in_two_runs_at_once() -> None:  # W18
    async def main() -> None:
        workflow = Chain()
        ctx: Context[Any] = Context(workflow)
        first = workflow.run(ctx=ctx)
        with pytest.raises(WorkflowRuntimeError, match="this context is in use by a run: await that run"):
            workflow.run(ctx=ctx)
        assert await first == 20
        assert await workflow.run(ctx=ctx) == 20
    go(main)
    workflow = Chain()
    ctx: Context[Any] = Context(workflow)
    early, late = workflow.run(ctx=ctx), workflow.run(ctx=ctx)  # neither has begun
    assert late.wait() == 20
    with pytest.raises(WorkflowRuntimeError, match="given to another run"):
        early.wait()
    early, late = workflow.run(ctx=ctx), workflow.run(ctx=ctx)
    early.cancel_run()
    with pytest.raises(WorkflowCancelledError):
        early.wait()
    assert late.wait() == 20


def test_a_context_in_several_threads_serves_one_run_at_a_time() -> None:  # W18
    class Counting(Workflow):
        now = most = 0

        @step
        async def work(self, ctx: Context, ev: StartEvent) -> StopEvent:
            self.now += 1
            self.most = max(self.most, self.now)
            await asyncio.sleep(0.01)
            self.now -= 1
            return StopEvent("done")

    def outcomes(workflow: Any) -> list[str]:
        ctx: Context[Any] = Context(workflow)
        together, said = threading.Barrier(3), list[str]()

        def run() -> None:
            together.wait(20)
            try:
                said.append(workflow.run_sync(ctx=ctx))
            except WorkflowRuntimeError as error:
                said.append(str(error)[:22])

        threads = [threading.Thread(target=run) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(20)
        return said

    usual = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for _ in range(20):
            workflow = Counting()
            said = outcomes(workflow)
            assert len(said) == 3
            assert "done" in said
            assert set(said) <= {"done", "this context is in use"}
            assert workflow.most == 1
    finally:
        sys.setswitchinterval(usual)


class Model(BaseModel):
    total: int = 0


@pytest.mark.parametrize("kind", [Counts, Model])
def test_typed_state(kind: type) -> None:
    class Typed(Workflow):
        @step
        async def start(self, ctx: Context[kind], ev: StartEvent) -> One | None:  # type: ignore[valid-type]
            for _ in range(5):
                ctx.send_event(One())
            return None

        @step(num_workers=5)
        async def add(self, ctx: Context[kind], ev: One) -> Two:  # type: ignore[valid-type]
            async with ctx.store.edit_state() as state:
                before = state.total
                await asyncio.sleep(0.001)
                state.total = before + 1
            return Two()

        @step
        async def join(self, ctx: Context, ev: Two) -> StopEvent | None:
            return StopEvent(await ctx.get("total")) if ctx.collect_events(ev, [Two] * 5) else None

    async def main() -> None:
        handler = Typed().run()
        assert await handler == 5
        assert type(await handler.ctx.store.get_state()) is kind
        await handler.ctx.set("total", 7)
        with pytest.raises(WorkflowError, match="declares no 'totla'"):
            await handler.ctx.set("totla", 1)
        with pytest.raises(StateKeyError, match="has no 'totla'"):
            await handler.ctx.get("totla")
        with pytest.raises(WorkflowRuntimeError, match=f"the state is a {kind.__name__}, not a dict"):
            await handler.ctx.store.set_state({"total": 9})
        again = Context.from_dict(Typed(), json.loads(json.dumps(handler.ctx.to_dict())))
        assert await again.get("total") == 7
        assert await Typed().run(ctx=again) == 12
        assert type(await again.store.get_state()) is kind
    go(main)


def test_one_block_edits_the_state_at_a_time_wherever_it_runs() -> None:
    class Count(Workflow):
        @step
        async def begin(self, ctx: Context, ev: StartEvent) -> One | Two | None:
            for _ in range(4):
                ctx.send_event(One())
                ctx.send_event(Two())
            return None

        async def edit(self, ctx: Context) -> None:
            async with ctx.store.edit_state() as state:
                n = state.get("n", 0)
                await asyncio.sleep(0.01)
                state["n"] = n + 1

        @step
        def in_thread(self, ctx: Context, ev: One) -> Three:
            asyncio.run(self.edit(ctx))
            return Three()

        @step
        async def here(self, ctx: Context, ev: Two) -> Three:
            await self.edit(ctx)
            return Three()

        @step
        async def end(self, ctx: Context, ev: Three) -> StopEvent | None:
            return StopEvent(await ctx.get("n")) if ctx.collect_events(ev, [Three] * 8) else None

    assert Count(timeout=20).run_sync() == 8


@pytest.mark.parametrize("write", ["set", "edit", "replace"])
def test_a_thread_of_a_run_that_is_over_leaves_the_state_alone(write: str) -> None:
    over, told = threading.Event(), queue.Queue[Any]()

    async def change(ctx: Context) -> None:
        if write == "set":
            await ctx.set("run", 1)
        elif write == "replace":
            await ctx.store.set_state({"run": 1})
        else:
            async with ctx.store.edit_state() as state:
                state["run"] = 1

    class Leaves(Workflow):
        @step
        async def start(self, ctx: Context, ev: StartEvent) -> One | StopEvent:
            await ctx.set("run", ev.n)
            if ev.n == 1:
                ctx.send_event(One())
                await asyncio.sleep(0.05)
            return StopEvent()

        @step
        def slow(self, ctx: Context, ev: One) -> None:
            over.wait(10)
            try:
                told.put(asyncio.run(change(ctx)))
            except WorkflowCancelledError as error:
                told.put(str(error))

    async def main() -> None:
        workflow = Leaves()
        ctx = Context(workflow)
        await workflow.run(ctx=ctx, n=1)
        await workflow.run(ctx=ctx, n=2)
        over.set()
        assert "the run is over" in await asyncio.to_thread(told.get, timeout=10)
        assert await ctx.get("run") == 2
        await change(ctx)  # whoever has the context may
        assert await ctx.get("run") == 1
    go(main)


# The stream, several runs, the end.

class Methods(BaseModel):
    n: int = 0
    _note: str = PrivateAttr("a")

    def total(self) -> int:
        return self.n


def test_methods_of_a_typed_state_are_no_values() -> None:
    class Typed(Workflow):
        @step
        async def ask(self, ctx: Context[Methods], ev: StartEvent) -> StopEvent:
            for name in ("total", "model_validate"):
                with pytest.raises(StateKeyError):
                    await ctx.get(name)
                with pytest.raises(StateKeyError):
                    await ctx.set(name, 1)
            return StopEvent([await ctx.get("total", 5), await ctx.get("n"), await ctx.get("_note")])
    assert Typed().run_sync() == [5, 0, "a"]


class Talker(Workflow):
    @step
    async def talk(self, ctx: Context, ev: StartEvent) -> StopEvent:
        for word in ev.text.split():
            ctx.write_event_to_stream(Event(word=word))
            await asyncio.sleep(0)
        return StopEvent(len(ev.text))


def test_streams_give_all_events_to_all_readers() -> None:
    async def main() -> None:
        handler = Talker().run(text="a b c")
        (seen, _), (other, _) = await asyncio.gather(read(handler), read(handler))
        assert [event.get("word") for event in seen] == ["a", "b", "c", None]
        assert seen == other
        assert seen[-1] == StopEvent(5)
        assert (await read(handler))[0] == seen  # also after the end
        assert await handler == 5
        assert await handler == 5
        assert handler.result() == 5
        assert handler.done()
    go(main)


def test_a_reader_may_leave_early() -> None:
    async def main() -> None:
        handler = Talker().run(text="a b c")
        async for event in handler.stream_events():
            assert event.word == "a"
            break
        assert await handler == 5
    go(main)


def test_two_runs_of_one_workflow_have_their_own_streams_and_results() -> None:  # W17
    async def main() -> None:
        workflow = Talker()
        one, two = workflow.run(text="x y"), workflow.run(text="p q r")
        (seen, _), (other, _) = await asyncio.gather(read(one), read(two))
        assert [event.get("word") for event in seen] == ["x", "y", None]
        assert [event.get("word") for event in other] == ["p", "q", "r", None]
        assert (await one, await two) == (3, 5)
        assert await asyncio.gather(*(workflow.run(text="x" * n) for n in range(1, 50))) == list(range(1, 50))
    go(main)


class Slow(Workflow):
    """Waits forever in two steps, noting what becomes of them."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.ended: list[str] = []

    @step
    async def start(self, ctx: Context, ev: StartEvent) -> One | Two | StopEvent | None:
        ctx.send_event(One())
        ctx.send_event(Two())
        if ev.get("stop"):
            await asyncio.sleep(0.01)
            return StopEvent("stopped")
        return None

    @step
    async def left(self, ctx: Context, ev: One) -> StopEvent:
        try:
            await asyncio.sleep(30)
            ctx.write_event_to_stream(Event(late=True))
        finally:
            await asyncio.sleep(0.01)
            ctx.write_event_to_stream(Event(late=True))
            ctx.send_event(StopEvent("late"))
            self.ended.append("left")
        return StopEvent("left")

    @step(num_workers=1)
    async def right(self, ev: Two) -> StopEvent:
        try:
            await asyncio.sleep(30)
        finally:
            self.ended.append("right")
        return StopEvent("right")


def test_time_limit() -> None:  # W23
    async def main() -> None:
        workflow = Slow(timeout=0.05)
        handler = workflow.run()
        seen, error = await read(handler)
        assert seen == [WorkflowTimedOutEvent(timeout=0.05, active_steps=["left", "right"])]
        assert str(error) == "Slow took longer than 0.05 seconds (active: steps 'left', 'right')"
        assert sorted(workflow.ended) == ["left", "right"]
        with pytest.raises(TimeoutError) as caught:
            await handler
        assert isinstance(caught.value, WorkflowTimeoutError)
    go(main)


def test_time_limit_of_a_run_where_nothing_is_left_to_do() -> None:
    class Stalled(Workflow):
        @step
        async def start(self, ctx: Context, ev: StartEvent) -> StopEvent | None:
            ctx.send_event(Three())
            return None

    async def main() -> None:
        with pytest.raises(WorkflowTimeoutError) as caught:
            await Stalled(timeout=0.05).run()
        assert str(caught.value) == ("Stalled took longer than 0.05 seconds (no step was active, none had "
                                     "returned a stop event; nobody took: Three)")
        assert await Chain(timeout=None).run() == 20
    go(main)


def test_stop_cancels_what_is_still_at_work() -> None:  # W28
    async def main() -> None:
        workflow = Slow()
        handler = workflow.run(stop=True)
        seen, error = await read(handler)
        assert seen == [StopEvent("stopped")]
        assert error is None
        assert sorted(workflow.ended) == ["left", "right"]
        assert await handler == "stopped"
    go(main)


def test_cancelling_a_run() -> None:
    async def main() -> None:
        workflow = Slow()
        handler = workflow.run()
        await asyncio.sleep(0.01)
        assert not handler.done()
        with pytest.raises(WorkflowRuntimeError, match="the run has not ended"):
            handler.result()
        await handler.cancel_run()
        assert handler.done()
        assert sorted(workflow.ended) == ["left", "right"]
        seen, error = await read(handler)
        assert seen == [WorkflowCancelledEvent()]
        assert isinstance(error, WorkflowCancelledError)
        assert str(error) == "Slow: the run was cancelled"
        with pytest.raises(WorkflowCancelledError):
            await handler
        await handler.cancel_run()  # once more does no harm
        at_once = workflow.run()
        at_once.cancel_run()  # without await
        with pytest.raises(WorkflowCancelledError):
            await at_once
    go(main)
    never = Chain().run()
    never.cancel_run()
    with pytest.raises(WorkflowCancelledError):
        never.wait()


def test_cancelling_the_one_who_awaits_cancels_the_run() -> None:
    async def main() -> None:
        workflow = Slow()
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(workflow.run(), 0.05)
        assert sorted(workflow.ended) == ["left", "right"]
        handler = workflow.run()
        task = asyncio.create_task(handler)
        await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert handler.done()
        handler = workflow.run()
        task = asyncio.create_task(handler)
        task.cancel()  # before its first turn
        with pytest.raises(asyncio.CancelledError):
            await task
        assert handler.done()
        reader = asyncio.create_task(read(workflow.run()))  # a reader that goes leaves the run alone
        await asyncio.sleep(0.01)
        reader.cancel()
        await asyncio.wait([reader])
    asyncio.run(main())  # the last run is left behind: closing the loop ends it


def test_a_task_of_a_run_that_is_over_may_be_cancelled_before_its_first_turn() -> None:
    async def main() -> None:
        handler = Chain().run()
        await handler
        task = asyncio.create_task(handler)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert handler.result() == 20
    go(main)


INTERRUPTED = textwrap.dedent("""
    import asyncio, os, signal, sys, threading, time
    from hello_react.workflow import StartEvent, StopEvent, Workflow, step

    moment, entry, loop_runs = sys.argv[1:]
    real_tasks, real_run, real_start = asyncio.tasks.all_tasks, asyncio.Handle._run, threading.Thread.start

    def tasks(loop=None):  # closing a loop cancels its tasks in any order: here the steps first, then their run
        return sorted(real_tasks(loop), key=lambda task: int(task.get_name().split("-")[1]), reverse=True)

    asyncio.tasks.all_tasks = tasks

    def come():
        signal.raise_signal(signal.SIGINT)

    def in_loop(handle):  # the loop has taken the work from its queue, and has not done it
        asyncio.Handle._run = real_run
        come()
        real_run(handle)

    def in_start(thread):
        threading.Thread.start = real_start
        come()
        real_start(thread)

    def new_loop(real=asyncio.new_event_loop):
        come()
        return real()

    class Slow(Workflow):
        @step
        async def wait(self, ev: StartEvent) -> StopEvent:
            print("began", flush=True)
            try:
                if moment == "at rest":
                    threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGINT)).start()
                elif moment == "loop":
                    asyncio.Handle._run = in_loop
                    await asyncio.sleep(0)
                elif moment == "blocked":
                    for seconds in 0.1, 1:
                        threading.Timer(seconds, os.kill, (os.getpid(), signal.SIGINT)).start()
                    time.sleep(20)
                else:
                    come()
                await asyncio.sleep(20)
            finally:
                await asyncio.sleep(0.1)
                if moment == "twice":
                    come()
                    await asyncio.sleep(0.1)
                print("cleaned up", flush=True)

    def script():
        try:
            if moment == "start" and loop_runs == "True":
                threading.Thread.start = in_start
            elif moment == "start":
                asyncio.new_event_loop = asyncio.events.new_event_loop = new_loop
            Slow().run_sync() if entry == "run_sync" else Slow().run().wait()
        except KeyboardInterrupt:
            print("interrupted", signal.getsignal(signal.SIGINT) is signal.default_int_handler)

    async def cell():
        script()

    if loop_runs == "True":  # as in a notebook, whose loop leaves the signal alone
        asyncio.new_event_loop().run_until_complete(cell())
    else:
        script()
""")


@pytest.mark.skipif(os.name == "nt", reason="needs a signal to a process")
@pytest.mark.parametrize("moment", ["at rest", "step", "loop", "twice", "start", "blocked"])
@pytest.mark.parametrize(("entry", "loop_runs"), [("run_sync", False), ("run_sync", True), ("wait", False)])
def test_an_interruption_of_run_sync_cancels_the_run(moment: str, entry: str, loop_runs: bool) -> None:
    began = time.monotonic()
    done = subprocess.run([sys.executable, "-c", INTERRUPTED, moment, entry, str(loop_runs)], capture_output=True,
                          text=True, timeout=60, cwd=ROOT)
    lines = ["began", "cleaned up", "interrupted True"]
    if moment == "start":  # no step begins any more
        lines = lines[2:]
    elif moment == "blocked" and loop_runs:  # the thread with the step is left to itself
        del lines[1]
    assert done.stdout.splitlines() == lines, done.stderr
    assert time.monotonic() - began < 19


def test_a_step_that_ignores_its_cancellation_does_not_hold_the_run(caplog: pytest.LogCaptureFixture) -> None:
    go_on = []

    class Stubborn(Workflow):
        grace = 0.05

        @step
        async def start(self, ev: StartEvent) -> StopEvent:
            while not go_on:
                try:
                    await asyncio.sleep(0.02)
                except asyncio.CancelledError:
                    pass
            return StopEvent()

    async def main() -> None:
        with pytest.raises(WorkflowTimeoutError):
            await Stubborn(timeout=0.02).run()
        go_on.append(True)
        await asyncio.sleep(0.1)
    go(main)
    assert "step 'start' goes on although its run is over" in caplog.text


def test_a_step_that_is_cancelled_by_what_it_awaits_cancels_the_run() -> None:
    class Inner(Workflow):
        @step
        async def start(self, ev: StartEvent) -> StopEvent:
            task = asyncio.create_task(asyncio.sleep(30))
            task.cancel()
            await task
            return StopEvent()

    async def main() -> None:
        with pytest.raises(WorkflowCancelledError, match="step 'start' was cancelled"):
            await Inner().run()
    go(main)


def test_a_stop_event_from_outside_ends_the_run() -> None:
    async def main() -> None:
        handler = Slow().run()
        await asyncio.sleep(0)
        handler.ctx.send_event(StopEvent("enough"))
        assert await handler == "enough"
    go(main)


def test_nothing_stays_alive_after_the_run() -> None:  # W31
    async def main() -> None:
        workflow = Chain()
        handler = workflow.run()
        await handler
        left = weakref.ref(workflow), weakref.ref(handler), weakref.ref(handler.ctx)
        del workflow, handler
        gc.collect()
        assert [one() for one in left] == [None] * 3
        failing = Failing()
        with pytest.raises(ValueError):
            await failing.run()
        gone = weakref.ref(failing)
        del failing
        gc.collect()
        assert gone() is None
    go(main)


def test_so_many_runs_at_a_time() -> None:
    class Busy(Workflow):
        def __init__(self, **options: Any) -> None:
            super().__init__(**options)
            self.now = self.most = 0
            self.lock = threading.Lock()

        @step
        async def start(self, ev: StartEvent) -> StopEvent:
            with self.lock:
                self.now += 1
                self.most = max(self.most, self.now)
            await asyncio.sleep(0.005)
            with self.lock:
                self.now -= 1
            return StopEvent(ev.n)

    async def main() -> None:
        workflow = Busy(num_concurrent_runs=2)
        assert await asyncio.gather(*(workflow.run(n=n) for n in range(7))) == list(range(7))
        assert workflow.most == 2
        first, second, third, fourth = (workflow.run(n=n) for n in range(4))
        await third.cancel_run()  # it was waiting for its place
        await first.cancel_run()  # its place goes to the fourth
        assert (await second, await fourth) == (1, 3)
        assert await asyncio.gather(*(Busy().run(n=n) for n in range(3))) == [0, 1, 2]
    go(main)
    workflow = Busy(num_concurrent_runs=2)
    threads = [threading.Thread(target=workflow.run_sync, kwargs={"n": n}) for n in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    assert workflow.most <= 2
    assert workflow.now == 0


class Errand(Workflow):
    @step
    async def start(self, ev: City) -> One:
        await asyncio.sleep(0.01)
        return One(n=len(ev.city))

    @step
    async def end(self, ev: One) -> StopEvent:
        return StopEvent(ev.n)


def test_a_run_cancelled_or_saved_before_it_began_goes_on() -> None:
    async def main() -> None:
        workflow = Errand(num_concurrent_runs=1)
        first, second = workflow.run(city="Rome"), workflow.run(city="Berlin")
        saved = second.ctx.to_dict()
        await second.cancel_run()
        assert await first == 4
        assert await workflow.run(ctx=second.ctx) == 6
        assert await workflow.run(ctx=Context.from_dict(workflow, saved)) == 6
    go(main)
    handler = Errand().run(city="Oslo")
    assert Errand().run_sync(ctx=Context.from_dict(Errand(), handler.ctx.to_dict())) == 4


def test_a_run_cancelled_just_when_its_place_is_free() -> None:
    async def main() -> None:
        workflow = Chain(num_concurrent_runs=1)
        first, second, third = (workflow.run() for _ in range(3))
        first.cancel_run()
        await first.cancel_run()
        second.cancel_run()
        assert await third == 20
        with pytest.raises(WorkflowCancelledError):
            await second
    go(main)


# Errors and retries.

class Failing(Workflow):
    @step
    async def start(self, ctx: Context, ev: StartEvent) -> StopEvent:
        ctx.write_event_to_stream(Event(first=True))
        raise ValueError("broken")


def test_a_failing_step() -> None:  # W24, W29
    async def main() -> None:
        handler = Failing().run()
        seen, error = await asyncio.wait_for(read(handler), 5)
        assert isinstance(error, ValueError)
        assert str(error) == "broken"
        assert seen[0].first
        last = seen[1]
        assert isinstance(last, WorkflowFailedEvent)
        assert last.exception is error
        assert (last.step_name, last.attempts) == ("start", 1)
        assert 0 <= last.elapsed_seconds < 5
        for _ in range(2):
            with pytest.raises(ValueError, match="broken"):
                await handler
    go(main)


def test_a_failure_that_nobody_asks_for_is_reported(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        Failing().run()
        await asyncio.sleep(0.01)
        gc.collect()
    go(main)
    assert "exception was never retrieved" in caplog.text
    assert "broken" in caplog.text


class Flaky(Workflow):
    def __init__(self, failures: int, **options: Any) -> None:
        super().__init__(**options)
        self.failures = failures
        self.calls = 0

    @step(retry_policy=RetryPolicy(maximum_attempts=3, delay=0.001, retry_on=(ValueError, OSError)))
    async def start(self, ev: StartEvent) -> StopEvent:
        self.calls += 1
        if self.calls <= self.failures:
            raise ev.get("error", ValueError)(f"attempt {self.calls}")
        return StopEvent(self.calls)


class Handled(Flaky):
    @catch_error
    async def handle(self, ev: StepFailedEvent) -> StopEvent:
        return StopEvent(ev)


def test_retries() -> None:  # W25
    async def main() -> None:
        assert await Flaky(2).run() == 3
        handler = Flaky(5).run()
        seen, error = await read(handler)
        assert str(error) == "attempt 3"
        assert isinstance(seen[-1], WorkflowFailedEvent)
        assert seen[-1].attempts == 3
        workflow = Flaky(5)
        with pytest.raises(ZeroDivisionError):  # an error that is not worth it
            await workflow.run(error=ZeroDivisionError)
        assert workflow.calls == 1
    go(main)


def test_delays_grow_up_to_a_limit() -> None:
    policy = RetryPolicy(maximum_attempts=5, delay=1.0, multiplier=3.0, max_delay=5.0)
    assert [policy.next(0.0, n, ValueError()) for n in (1, 2, 3, 4, 5)] == [1.0, 3.0, 5.0, 5.0, None]
    assert RetryPolicy(maximum_attempts=10_000, multiplier=10.0).next(0.0, 9_000, OSError()) == 60.0
    assert RetryPolicy(delay=9.0, max_delay=2.0).next(0.0, 1, OSError()) == 2.0


def test_a_policy_of_ones_own() -> None:
    seen = []

    class UntilTime(RetryPolicy):
        def next(self, elapsed_time: float, attempts: int, error: BaseException) -> float | None:
            seen.append((attempts, str(error)))
            return 0 if attempts < 2 else None

    class Broken(RetryPolicy):
        def next(self, elapsed_time: float, attempts: int, error: BaseException) -> float | None:
            raise TypeError("in the policy")

    class Own(Workflow):
        @step(retry_policy=UntilTime())
        async def start(self, ev: StartEvent) -> StopEvent:
            raise ValueError("broken")

    class Bad(Workflow):
        @step(retry_policy=Broken())
        async def start(self, ev: StartEvent) -> StopEvent:
            raise ValueError("broken")

    async def main() -> None:
        with pytest.raises(ValueError, match="broken"):
            await Own().run()
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: seen.append(context))
        with pytest.raises(TypeError, match="in the policy"):
            await asyncio.wait_for(Bad().run(), 5)
    go(main)
    assert seen[:2] == [(1, "broken"), (2, "broken")]
    assert seen[2]["message"] == "after step 'start'"
    assert isinstance(seen[2]["exception"], TypeError)


@pytest.mark.parametrize(("give", "kind", "words"), [
    (lambda: "1", WorkflowRuntimeError, "the retry policy of step 'start' returned '1': return seconds or None"),
    (lambda: next(iter(())), RuntimeError, "the retry policy of step 'start' raised StopIteration"),
])
def test_a_policy_that_gives_no_seconds(give: Any, kind: type[Exception], words: str) -> None:
    class Odd(RetryPolicy):
        def next(self, elapsed_time: float, attempts: int, error: BaseException) -> float | None:
            return give()  # type: ignore[no-any-return]

    class Own(Workflow):
        @step(retry_policy=Odd())
        async def start(self, ev: StartEvent) -> StopEvent:
            raise ValueError("broken")

    async def main() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: None)
        with pytest.raises(kind) as caught:
            await asyncio.wait_for(Own().run(), 5)
        assert str(caught.value) == words
    go(main)


def test_ending_while_an_attempt_is_due() -> None:
    class Patient(Workflow):
        @step(retry_policy=RetryPolicy(delay=30.0))
        async def start(self, ev: StartEvent) -> StopEvent:
            raise ValueError("broken")

    async def main() -> None:
        handler = Patient(timeout=0.05).run()
        seen, error = await read(handler)
        assert isinstance(error, WorkflowTimeoutError)
        assert seen == [WorkflowTimedOutEvent(timeout=0.05, active_steps=["start"])]
    go(main)


def test_an_error_handler_ends_the_run() -> None:  # W26
    async def main() -> None:
        handler = Handled(9).run(n=1)
        seen, error = await read(handler)
        assert error is None
        assert isinstance(seen[-1], StopEvent)
        assert not isinstance(seen[-1], WorkflowFailedEvent)
        failed = await handler
        assert (failed.step_name, failed.attempts, failed.input_event) == ("start", 3, StartEvent(n=1))
        assert str(failed.exception) == "attempt 3"
        assert failed.elapsed_seconds >= 0
    go(main)


def test_an_error_of_the_handler_wins() -> None:  # W26
    class Worse(Failing):
        @catch_error
        async def handle(self, ev: StepFailedEvent) -> StopEvent:
            raise ArithmeticError("in the handler") from ev.exception

    async def main() -> None:
        seen, error = await read(Worse().run())
        assert isinstance(error, ArithmeticError)
        assert isinstance(seen[-1], WorkflowFailedEvent)
        assert seen[-1].step_name == "handle"
    go(main)


def test_a_handler_is_not_called_for_a_time_limit_or_a_retry_that_recovers() -> None:  # W27
    calls = []

    class Limited(Slow):
        @catch_error
        async def handle(self, ev: StepFailedEvent) -> StopEvent:
            calls.append(ev)
            return StopEvent("handled")

    async def main() -> None:
        with pytest.raises(WorkflowTimeoutError):
            await Limited(timeout=0.05).run()
        assert await Handled(2).run() == 3
        handler = Limited().run()
        await asyncio.sleep(0)
        await handler.cancel_run()
        assert calls == []
    go(main)


def test_a_handler_may_lead_back_and_name_its_steps() -> None:
    class Detour(Workflow):
        @step
        async def start(self, ev: StartEvent) -> One:
            return One(n=ev.n)

        @step
        async def risky(self, ev: One) -> StopEvent:
            if ev.n:
                raise ValueError("not zero")
            return StopEvent("fine")

        @catch_error(for_steps=["risky"])
        async def mend(self, ctx: Context, ev: StepFailedEvent) -> One:
            return One(n=ev.input_event.n - 1)

        @catch_error
        async def others(self, ev: StepFailedEvent) -> StopEvent:
            return StopEvent(f"others: {ev.step_name}")

    async def main() -> None:
        assert await Detour().run(n=3) == "fine"
        assert await Detour().run() == "others: start"
    go(main)


def test_a_handler_may_name_a_step_twice() -> None:
    class Twice(Failing):
        @catch_error(for_steps=["start", "start"])
        async def handle(self, ev: StepFailedEvent) -> StopEvent:
            return StopEvent(ev.step_name)

    assert Twice().run_sync() == "start"


def test_a_step_for_all_events_is_no_error_handler() -> None:
    class Sink(Failing):
        @step
        async def all_others(self, ev: Event) -> StopEvent:
            return StopEvent(ev)

        @step
        async def all_others_too(self, ev: Event) -> None:
            return None

    with pytest.raises(ValueError, match="broken"):
        Sink().run_sync()


def test_handlers_are_checked() -> None:
    class Wrong(Workflow):
        @step
        async def start(self, ev: StartEvent) -> StopEvent:
            return StopEvent()

        @catch_error(for_steps=["strat"])
        async def a(self, ev: StepFailedEvent) -> StopEvent:
            return StopEvent()

        @catch_error(for_steps=["start"])
        async def b(self, ev: StepFailedEvent) -> StopEvent:
            return StopEvent()

        @catch_error(for_steps=["start"])
        async def c(self, ev: StepFailedEvent) -> StopEvent:
            return StopEvent()

        @catch_error
        async def d(self, ev: StepFailedEvent) -> StopEvent:
            return StopEvent()

        @step
        async def e(self, ev: StepFailedEvent) -> StopEvent:
            return StopEvent()

    message = refused(Wrong)
    assert "an error handler names the step 'strat', which is not there" in message
    assert "two error handlers name the step 'start': keep one" in message
    assert "two error handlers serve all steps: keep one" in message


# A person's word, saving and loading.

class Asker(Workflow):
    """Asks in one step and takes the answer in another."""

    @step
    async def ask(self, ctx: Context, ev: StartEvent) -> Question:
        await ctx.set("asked", await ctx.get("asked", default=0) + 1)
        return Question(text="Your name?")

    @step
    async def greet(self, ctx: Context, ev: Answer) -> StopEvent:
        await ctx.set("greeted", await ctx.get("greeted", default=0) + 1)
        return StopEvent(f"Hello, {ev.text}! {await ctx.get('asked')} {await ctx.get('greeted')}")


class Waiting(Workflow):
    """Asks twice within a step, after a step that must run once."""

    @step
    async def prepare(self, ctx: Context, ev: StartEvent) -> One:
        await ctx.set("prepared", await ctx.get("prepared", default=0) + 1)
        return One(n=ev.n)

    @step
    async def ask(self, ctx: Context, ev: One) -> StopEvent:
        await ctx.set("entered", await ctx.get("entered", default=0) + 1)
        name = await ctx.wait_for_event(Answer, waiter_event=Question(text="Name?"))
        town = await ctx.wait_for_event(Answer, waiter_event=Question(text="Town?"))
        return StopEvent([ev.n, name.text, town.text, await ctx.get("prepared"), await ctx.get("entered")])


async def until_asked(handler: Any, text: str) -> None:
    async for event in handler.stream_events():
        if isinstance(event, Question) and event.text == text:
            return


def test_a_question_and_its_answer() -> None:
    async def main() -> None:
        tasks = asyncio.all_tasks()
        handler = Asker().run()
        async for event in handler.stream_events():
            if isinstance(event, Question):
                assert asyncio.all_tasks() == tasks  # nothing runs while a person thinks
                handler.ctx.send_event(Answer(text="Ada"))
        assert await handler == "Hello, Ada! 1 1"
        again = Waiting().run(n=3)
        async for event in again.stream_events():
            if isinstance(event, Question):
                again.ctx.send_event(Answer(text=event.text.lower()))
        assert await again == [3, "name?", "town?", 1, 1]
    go(main)


def test_an_answer_from_before_its_question_does_not_count() -> None:
    async def main() -> None:
        handler = Waiting().run(n=1)
        handler.ctx.send_event(Answer(text="early"))
        await until_asked(handler, "Name?")
        handler.ctx.send_event(Answer(text="yes"))
        handler.ctx.send_event(Answer(text="yes"))  # clicked twice: no answer to the next question
        await until_asked(handler, "Town?")
        saved = json.loads(json.dumps(handler.ctx.to_dict()))
        assert saved["unclaimed"] == []
        await asyncio.to_thread(handler.ctx.send_event, Answer(text="from a thread"))
        assert await handler == [1, "yes", "from a thread", 1, 1]
    go(main)


def test_a_step_may_wait_for_what_another_has_sent_already() -> None:
    class Ahead(Workflow):
        @step
        async def start(self, ctx: Context, ev: StartEvent) -> One:
            ctx.send_event(Answer(text="sent before"))
            return One()

        @step
        async def take(self, ctx: Context, ev: One) -> StopEvent:
            return StopEvent((await ctx.wait_for_event(Answer)).text)

    assert Ahead().run_sync() == "sent before"


def test_a_wait_may_have_requirements_and_a_limit() -> None:  # W15
    class Picky(Workflow):
        @step
        async def start(self, ctx: Context, ev: StartEvent) -> StopEvent:
            try:
                got = await ctx.wait_for_event(HumanResponseEvent, timeout=ev.limit,
                                               requirements={"to": ev.name})
            except TimeoutError as error:
                return StopEvent(str(error))
            return StopEvent(got.word)

    async def main() -> None:
        assert await Picky().run(name="a", limit=0.02) == "step 'start' waited 0.02 s for HumanResponseEvent"
        one, two = Picky().run(name="a", limit=5), Picky().run(name="b", limit=None)
        await asyncio.sleep(0)
        for handler in (one, two):
            handler.ctx.send_event(HumanResponseEvent(word="nobody"))
            handler.ctx.send_event(HumanResponseEvent(to="b", word="for b"))
            handler.ctx.send_event(HumanResponseEvent(to="a", word="for a"))
        assert (await one, await two) == ("for a", "for b")

        class Impatient(Workflow):
            @step
            async def start(self, ctx: Context, ev: StartEvent) -> StopEvent:
                return StopEvent(await ctx.wait_for_event(Answer, timeout=0.01))

        seen, error = await read(Impatient().run())
        assert isinstance(error, TimeoutError)
        assert isinstance(seen[-1], WorkflowFailedEvent)
    go(main)


def test_all_who_wait_for_an_event_get_it() -> None:
    class Pair(Workflow):
        @step
        async def start(self, ctx: Context, ev: StartEvent) -> One | None:
            ctx.send_event(One(n=1))
            ctx.send_event(One(n=2))
            return None

        @step
        async def wait(self, ctx: Context, ev: One) -> Two:
            got = await ctx.wait_for_event(Answer, Question(text=str(ev.n)), waiter_id=f"w{ev.n}")
            return Two(n=ev.n * int(got.text))

        @step
        async def join(self, ctx: Context, ev: Two) -> StopEvent | None:
            found = ctx.collect_events(ev, [Two, Two])
            return StopEvent([one.n for one in found]) if found else None

    async def main() -> None:
        handler = Pair().run()
        await until_asked(handler, "2")
        handler.ctx.send_event(Answer(text="5"))
        assert await handler == [5, 10]
    go(main)


def test_a_paused_run_goes_on_from_its_saved_context() -> None:  # W21
    async def main() -> None:
        handler = Asker().run()
        await until_asked(handler, "Your name?")
        saved = json.loads(json.dumps(handler.ctx.to_dict()))
        await handler.cancel_run()
        assert json.loads(json.dumps(handler.ctx.to_dict())) == saved  # before or after: the same
        workflow = Asker()
        resumed = workflow.run(ctx=Context.from_dict(workflow, saved))
        resumed.ctx.send_event(Answer(text="Ada"))
        seen, _ = await read(resumed)
        assert seen == [StopEvent("Hello, Ada! 1 1")]
    go(main)


def test_a_run_saved_in_the_turn_in_which_it_ends_is_saved_as_ended() -> None:  # W21
    class Newsman(Workflow):
        @step
        async def tell(self, ctx: Context, ev: StartEvent) -> StopEvent:
            await asyncio.sleep(0)
            ctx.write_event_to_stream(One(n=1))
            return StopEvent(result="told")

    async def main() -> None:
        workflow = Newsman(timeout=10)
        handler = workflow.run()
        saved = [handler.ctx.to_dict() async for event in handler.stream_events() if isinstance(event, One)]
        assert (saved[0]["paused"], await handler) == (None, "told")
        assert await workflow.run(ctx=Context.from_dict(workflow, saved[0])) == "told"

    go(main)


def test_a_reader_of_the_stream_may_close_it() -> None:
    async def main() -> None:
        workflow = Asker()
        handler = workflow.run()
        async with contextlib.aclosing(handler.stream_events()) as stream:
            async for _ in stream:
                break
        await handler.cancel_run()

    go(main)


def test_a_timeout_tells_the_last_error() -> None:
    class Swallower(Workflow):
        @step
        async def work(self, ev: StartEvent) -> StopEvent:
            raise ConnectionError("the database is down")

        @catch_error
        async def handle(self, ev: StepFailedEvent) -> StopEvent | None:
            return None

    async def main() -> None:
        with pytest.raises(WorkflowTimeoutError, match="of step 'work': ConnectionError: the database is") as caught:
            await Swallower(timeout=0.05).run()
        assert isinstance(caught.value.__cause__, ConnectionError)

    go(main)


def test_edit_state_inside_edit_state_is_refused() -> None:
    class Twice(Workflow):
        @step
        async def work(self, ctx: Context, ev: StartEvent) -> StopEvent:
            async with ctx.store.edit_state(), ctx.store.edit_state():
                pass
            return StopEvent()

    async def main() -> None:
        with pytest.raises(WorkflowRuntimeError, match="inside another"):
            await Twice(timeout=5).run()

    go(main)


def test_an_answer_that_came_just_before_saving_is_saved_with_the_run() -> None:  # W21
    async def main() -> None:
        handler = Asker().run()
        await until_asked(handler, "Your name?")
        handler.ctx.send_event(Answer(text="Ada"))
        saved = json.loads(json.dumps(handler.ctx.to_dict()))  # the step has not woken up yet
        await handler.cancel_run()
        workflow = Asker()
        resumed = workflow.run(ctx=Context.from_dict(workflow, saved))
        seen, _ = await read(resumed)
        assert seen == [StopEvent("Hello, Ada! 1 1")]
    go(main)


def test_a_saved_wait_is_asked_once_and_keeps_the_answers_it_had() -> None:  # W21
    async def main() -> None:
        handler = Waiting().run(n=7)
        await until_asked(handler, "Name?")
        handler.ctx.send_event(Answer(text="Ada"))
        await until_asked(handler, "Town?")
        saved = json.dumps(handler.ctx.to_dict())
        await handler.cancel_run()
        workflow = Waiting()
        resumed = workflow.run(ctx=Context.from_dict(workflow, json.loads(saved)))
        resumed.ctx.send_event(Answer(text="London"))
        seen, _ = await read(resumed)
        assert seen == [StopEvent([7, "Ada", "London", 1, 2])]  # only the waiting step began anew
    go(main)


def test_a_paused_run_goes_on_in_another_process(tmp_path: Path) -> None:  # W21
    (tmp_path / "flow.py").write_text(textwrap.dedent("""
        import asyncio, json, sys
        from pathlib import Path
        from hello_react.workflow import *

        class Ask(InputRequiredEvent):
            text: str

        class Reply(HumanResponseEvent):
            text: str

        class Draft(Event):
            text: str
            pages: tuple

        class Mail(Workflow):
            @step
            async def write(self, ctx: Context, ev: StartEvent) -> Draft:
                await ctx.set("written", await ctx.get("written", 0) + 1)
                return Draft(text=ev.text, pages=(1, 2))

            @step
            async def approve(self, ctx: Context, ev: Draft) -> StopEvent:
                reply = await ctx.wait_for_event(Reply, waiter_event=Ask(text="Send?"))
                return StopEvent([ev.text, ev.pages, reply.text, await ctx.get("written")])

        async def begin():
            handler = Mail().run(text="Dear customer")
            async for event in handler.stream_events():
                if isinstance(event, Ask):
                    Path(sys.argv[2]).write_text(json.dumps(handler.ctx.to_dict()))
                    await handler.cancel_run()
                    break

        async def go_on():
            workflow = Mail()
            handler = workflow.run(ctx=Context.from_dict(workflow, json.loads(Path(sys.argv[2]).read_text())))
            handler.ctx.send_event(Reply(text="yes"))
            print(await handler)

        if __name__ == "__main__":
            asyncio.run(begin() if sys.argv[1] == "begin" else go_on())
    """))
    saved = tmp_path / "run.json"

    def python(*args: str) -> str:
        env = {"PYTHONPATH": f"{ROOT}:{tmp_path}", "PYTHONWARNINGS": "error"}
        done = subprocess.run([sys.executable, *args], capture_output=True, text=True, timeout=60, env=env)
        assert (done.returncode, done.stderr) == (0, "")
        return done.stdout.strip()

    python(str(tmp_path / "flow.py"), "begin", str(saved))
    assert python(str(tmp_path / "flow.py"), "go_on", str(saved)) == "['Dear customer', (1, 2), 'yes', 1]"
    # Saved by a script (whose classes are of __main__), loaded where they belong to a module.
    code = f"import sys, asyncio, flow; sys.argv = ['', '', {str(saved)!r}]; asyncio.run(flow.go_on())"
    assert python("-c", code) == "['Dear customer', (1, 2), 'yes', 1]"


def test_what_a_script_saved_is_loaded_by_a_program_that_imports_it_and_the_reverse(tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(textwrap.dedent("""
        import dataclasses, json, sys
        from hello_react.workflow import Context, StartEvent, StopEvent, Workflow, step

        @dataclasses.dataclass
        class Item:
            name: str

        class Shop(Workflow):
            @step
            async def start(self, ctx: Context, ev: StartEvent) -> StopEvent:
                cart = await ctx.get("cart", [])
                await ctx.set("cart", [*cart, Item("apple")])
                return StopEvent(len([item for item in cart if type(item) is Item]))

        def main():
            shop, saved = Shop(), sys.stdin.read()
            ctx = Context.from_dict(shop, json.loads(saved)) if saved else Context(shop)
            print(shop.run_sync(ctx=ctx), file=sys.stderr)
            print(json.dumps(ctx.to_dict()))

        if __name__ == "__main__":
            main()
    """), encoding="utf-8")
    script, program = ["shop.py"], ["-c", "import shop; shop.main()"]
    saved, counts = "", []
    for way in (script, program, script):
        done = subprocess.run([sys.executable, *way], input=saved, capture_output=True, text=True, timeout=60,
                              cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(ROOT)})
        saved = done.stdout
        counts.append(done.stderr.strip())
    assert counts == ["0", "1", "2"]


def test_work_in_all_places_is_saved() -> None:
    gate: list[bool] = []

    class Wide(Workflow):
        @step
        async def start(self, ctx: Context, ev: StartEvent) -> One | None:
            await ctx.set("started", await ctx.get("started", 0) + 1)
            for n in range(4):
                ctx.send_event(One(n=n))
            ctx.send_event(HumanResponseEvent(early=1))
            return None

        @step(num_workers=1, retry_policy=RetryPolicy(delay=30))
        async def work(self, ctx: Context, ev: One) -> Two:
            if ev.n == 2 and not gate:
                raise ValueError("waits for its next attempt")
            return Two(n=ev.n)

        @step
        async def join(self, ctx: Context, ev: Two) -> StopEvent | None:
            found = ctx.collect_events(ev, [Two] * 4)
            if found is None:
                return None
            early = await ctx.wait_for_event(HumanResponseEvent)
            return StopEvent([[one.n for one in found], early.early, await ctx.get("started")])

    async def main() -> None:
        workflow = Wide()
        handler = workflow.run()
        while not handler.ctx.to_dict()["buffers"] or len(handler.ctx.to_dict()["buffers"][0][2]) < 2:
            await asyncio.sleep(0.001)
        data = handler.ctx.to_dict()
        assert [job["event"]["value"]["n"] for job in data["paused"]] == [2, 3]
        assert len(data["unclaimed"]) == 1
        await handler.cancel_run()
        gate.append(True)
        restored: Context[Any] = Context.from_dict(workflow, json.loads(json.dumps(data)))
        assert await workflow.run(ctx=restored) == [[0, 1, 2, 3], 1, 1]
        assert await workflow.run(ctx=handler.ctx) == [[0, 1, 2, 3], 1, 1]  # the cancelled one itself, too
    go(main)


def test_an_error_handler_may_ask_and_be_saved() -> None:
    class Asking(Failing):
        @catch_error
        async def ask(self, ctx: Context[Any], ev: StepFailedEvent) -> StopEvent:
            answer = await ctx.wait_for_event(Answer, Question(text="What now?"))
            return StopEvent([answer.text, str(ev.exception), type(ev.exception).__name__])

    async def main() -> None:
        handler = Asking().run()
        await until_asked(handler, "What now?")
        saved = json.loads(json.dumps(handler.ctx.to_dict()))
        handler.ctx.send_event(Answer(text="go on"))
        assert await handler == ["go on", "broken", "ValueError"]
        resumed = Asking().run(ctx=Context.from_dict(Asking(), saved))
        resumed.ctx.send_event(Answer(text="go on"))
        assert await resumed == ["go on", "ValueError: broken", "WorkflowError"]
    go(main)


def test_a_paused_context_may_begin_anew() -> None:
    async def main() -> None:
        workflow = Waiting()
        handler = workflow.run(n=1)
        await until_asked(handler, "Name?")
        await handler.cancel_run()
        fresh = workflow.run(n=2, ctx=handler.ctx)
        async for event in fresh.stream_events():
            if isinstance(event, Question):
                fresh.ctx.send_event(Answer(text="x"))
        assert await fresh == [2, "x", "x", 2, 2]  # the state stays, the paused work is dropped
        assert handler.ctx.to_dict()["paused"] is None
    go(main)


def test_values_survive_saving() -> None:
    noted, tally = Answer(text="hi"), Tally(3)
    noted["note"], noted["result"] = Point(1, 1), 5
    tally.seen.append("kept")
    state = {"note": Note(title="a", stars=3), "point": Point(1, 2), "event": Answer(text="hi"),
             "pair": (1, (2,)), "deep": {"list": [1, 2.5, None, True, "s"]},
             "stop": StopEvent(result=[Point(0, 0)]), "noted": noted, "tally": tally,
             "bare": StartEvent(a=1, result=2), "report": Report(text="a", result=3),
             "alias": Renamed(Short=1), "area": Area(side=3), "root": Numbers([1, 2])}

    async def main() -> None:
        ctx: Context[Any] = Context(Chain())
        await ctx.store.set_state(dict(state))
        again: Context[Any] = Context.from_dict(Chain(), json.loads(json.dumps(ctx.to_dict())))
        assert await again.store.get_state() == state
    go(main)


@dataclasses.dataclass(frozen=True)
class Tally:
    n: int = 0
    seen: list[str] = dataclasses.field(default_factory=list, init=False)


class Renamed(BaseModel):
    long: int = Field(0, alias="Short")


class Area(BaseModel, extra="forbid"):
    side: int

    @computed_field  # type: ignore[prop-decorator]
    @property
    def area(self) -> int:
        return self.side ** 2


class Numbers(RootModel[list[int]]):
    pass


class Starred(Note):
    color: str = "red"


class Drawer(BaseModel):
    word: SecretStr = SecretStr("")
    notes: list[Note] = []
    thing: Any = None


@dataclasses.dataclass
class Growing:
    n: int

    def __post_init__(self) -> None:
        self.n += 1


@dataclasses.dataclass
class GrowingEvent(Event):
    n: int

    def __post_init__(self) -> None:
        self.n += 1


@dataclasses.dataclass
class Account:
    n: int = 0

    def __post_init__(self) -> None:
        self.lock = threading.Lock()

    @functools.cached_property
    def double(self) -> int:
        return 2 * self.n


NAMED = Account()
NAMED.name = "Ada"  # type: ignore[attr-defined]


class Box(BaseModel, Generic[T]):
    value: T


@dataclasses.dataclass
class Sized:
    size: dataclasses.InitVar[int]


LOOP: list[Any] = []
LOOP.append(LOOP)


@pytest.mark.parametrize(("value", "words"), [
    ({"lock": threading.Lock()}, "state['lock']: lock can't be saved"),
    ({"a": [1, {"b": {1, 2}}]}, "state['a'][1]['b']: set can't be saved"),
    ({"a": {1: "x"}}, "state['a']: dict can't be saved: its keys must be text"),
    ({"a": Answer(text=object())}, "state['a'].text: object can't be saved"),
    ({"a": {"__type__": "x"}}, "state['a']: dict can't be saved: the key '__type__' is reserved"),
    ({"a": Drawer(word="sesame")}, "state['a']: Drawer can't be saved: word would not come back the same"),
    ({"a": Drawer(notes=[Starred(title="a")])}, "Drawer can't be saved: notes would not come back the same"),
    ({"a": Drawer(thing=(1, 2))}, "Drawer can't be saved: thing would not come back the same"),
    ({"a": Sized(3)}, "what is saved could not be loaded again: the saved Sized can't be read"),
    ({"a": dataclasses.make_dataclass("f.<locals>.Inner", [])()}, "Inner: define it outside of a function"),
    ({"a": LOOP}, "state['a'][0][0][0]"),
    ({"a": [Growing(1)]}, "state['a'][0]: Growing can't be saved: n would not come back the same"),
    ({"a": GrowingEvent(1)}, "state['a']: GrowingEvent can't be saved: n would not come back the same"),
    ({"a": NAMED}, "state['a']: Account can't be saved: name would not come back the same"),
    ({"a": Box[int](value=1)}, "Box[int] can't be saved: derive a class of it, as in `class Mine(Box[int])`"),
    ({"a": Point}, "state['a']: type can't be saved"),
])
def test_what_cannot_be_saved_is_named(value: dict[str, Any], words: str) -> None:
    async def main() -> None:
        ctx: Context[Any] = Context(Chain())
        await ctx.store.set_state(value)
        with pytest.raises(ContextSerializationError) as caught:
            ctx.to_dict()
        assert words in str(caught.value)
    go(main)


def test_what_a_dataclass_makes_by_itself_need_not_be_saved() -> None:
    account = Account(3)
    assert account.double == 6

    async def main() -> None:
        ctx: Context[Any] = Context(Chain())
        await ctx.set("account", account)
        again: Context[Any] = Context.from_dict(Chain(), json.loads(json.dumps(ctx.to_dict())))
        assert await again.get("account") == account
    go(main)


def test_a_model_that_cannot_be_saved_is_named() -> None:
    class Holder(BaseModel, arbitrary_types_allowed=True):
        lock: Any

    async def main() -> None:
        ctx: Context[Any] = Context(Chain())
        await ctx.set("held", Holder(lock=threading.Lock()))
        with pytest.raises(ContextSerializationError, match=r"state\['held'\]: Holder can't be saved: "):
            ctx.to_dict()
    go(main)


JOB = {"step": "first", "event": {"__type__": "hello_react.workflow:StartEvent", "value": {}},
       "announced": [], "answers": {}, "collected": {}}


def test_data_nested_too_deeply() -> None:
    deep: Any = functools.reduce(lambda inner, _: {"k": inner}, range(5_000), {})
    with pytest.raises(ContextSerializationError, match="this is no saved context: RecursionError") as caught:
        Context.from_dict(Chain(), {**Context(Chain()).to_dict(), "state": deep})
    assert "\n" not in str(caught.value)


def test_a_saved_job_is_loaded() -> None:
    loaded: Context[Any] = Context.from_dict(Chain(), {**Context(Chain()).to_dict(), "paused": [JOB]})
    assert loaded.to_dict()["paused"] == [JOB]


def test_saved_data_names_the_public_module_and_that_of_an_earlier_layout_is_read() -> None:
    for home in ("hello_react.workflow_parts", "hello_react.workflow_events", "hello_react.workflow"):
        job = {**JOB, "event": {"__type__": f"{home}:StartEvent", "value": {}}}
        loaded: Context[Any] = Context.from_dict(Chain(), {**Context(Chain()).to_dict(), "paused": [job]})
        assert loaded.to_dict()["paused"] == [JOB]


@pytest.mark.parametrize(("change", "words"), [
    ({"version": 2}, "version 2"),
    ({"version": None}, "version None"),
    ({"buffers": [["a"]]}, "this is no saved context"),
    ({"paused": [{}]}, "this is no saved context: KeyError('step')"),
    ({"unclaimed": None}, "unclaimed: NoneType does not fit there"),
    ({"unclaimed": [1]}, "unclaimed"), ({"unclaimed": {}}, "unclaimed"),
    ({"state": None}, "state: NoneType does not fit there"),
    ({"state": [1]}, "state: list"), ({"state": "text"}, "state: str"), ({"state": 1}, "state: int"),
    ({"buffers": [["start", "default", None]]}, "this is no saved context"),
    ({"buffers": [["start", "default", [1]]]}, "this is no saved context"),
    ({"paused": [{"step": "first", "event": None}]}, "this is no saved context"),
    ({"paused": [{"step": "first", "event": {"__type__": "HERE:Three", "value": {}}}]}, "Three does not fit there"),
    ({"paused": [{**JOB, "announced": None}]}, "announced"),
    ({"paused": [{**JOB, "answers": []}]}, "answers"), ({"paused": [{**JOB, "answers": {"a": 1}}]}, "answers"),
    ({"paused": [{**JOB, "collected": {"a": 1}}]}, "collected"),
    ({"paused": [{"step": "gone"}]}, "Chain has no step 'gone', which was saved"),
    ({"state": {"__type__": "nowhere:Thing", "value": {}}}, "needs the class Thing: import nowhere before"),
    ({"state": {"__type__": "os:system", "value": {}}}, "needs the class system"),
    ({"state": {"__type__": "builtins:dict", "value": {}}}, "needs the class dict"),
    ({"state": {"__type__": "HERE:Answer", "value": {}}}, "the saved Answer can't be read"),
    ({"state": {"__type__": "HERE:Note", "value": {}}}, "the saved Note can't be read"),
    ({"state": {"__type__": "HERE:Point", "value": {"z": 1}}}, "the saved Point can't be read"),
    ({"state": {"__type__": "HERE:Point", "value": [1]}}, "the saved Point can't be read"),
    ({"state": {"__type__": "HERE:Point", "value": {"x": 1, "y": 2}, "more": [1]}}, "the saved Point can't be read"),
])
def test_data_that_cannot_be_loaded(change: dict[str, Any], words: str) -> None:
    data = json.loads(json.dumps({**Context(Chain()).to_dict(), **change}).replace("HERE", __name__))
    with pytest.raises(ContextSerializationError) as caught:
        Context.from_dict(Chain(), data)
    assert words in str(caught.value)
    for nothing in ({}, [], None, "text"):
        with pytest.raises(ContextSerializationError, match="this is no saved context"):
            Context.from_dict(Chain(), nothing)  # type: ignore[arg-type]


# What a run has done is never done again; what it was sent is never lost.


class Shop(Workflow):
    """Shows an event with its last breath: whoever reads it looks into a run whose step is done already."""

    def __init__(self) -> None:
        super().__init__(timeout=5)
        self.charged = 0

    @step
    async def pay(self, ctx: Context[Any], ev: StartEvent) -> Two:
        self.charged += 1
        ctx.write_event_to_stream(One())
        return Two()

    @step
    async def thank(self, ev: Two) -> StopEvent:
        return StopEvent(result="thanks")


@pytest.mark.parametrize("save", [True, False])
def test_a_step_that_has_just_returned_is_not_run_again(save: bool) -> None:
    async def main() -> Any:
        shop = Shop()
        handler = shop.run()
        async for event in handler.stream_events():
            if isinstance(event, One):
                saved = json.loads(json.dumps(handler.ctx.to_dict()))
                await handler.cancel_run()
                break
        assert [job["step"] for job in saved["paused"]] == ["thank"]
        return await shop.run(ctx=Context.from_dict(shop, saved) if save else handler.ctx), shop.charged
    assert go(main) == ("thanks", 1)


def test_a_run_cancelled_in_the_turn_of_its_stop_event_has_its_result() -> None:
    class Last(Workflow):
        @step
        async def only(self, ctx: Context[Any], ev: StartEvent) -> StopEvent:
            ctx.write_event_to_stream(One())
            return StopEvent(result="done")

    async def main() -> Any:
        handler = Last().run()
        async for event in handler.stream_events():
            if isinstance(event, One):
                await handler.cancel_run()
                assert handler.ctx.to_dict()["paused"] is None
        return await handler
    assert go(main) == "done"


def test_a_run_with_its_stop_event_has_nothing_left_to_do() -> None:
    class Race(Workflow):
        @step
        async def fast(self, ctx: Context[Any], ev: StartEvent) -> One | StopEvent:
            ctx.send_event(One())
            await asyncio.sleep(0)
            return StopEvent(result="done")

        @step
        async def slow(self, ev: One) -> None:
            try:
                await asyncio.sleep(5)
            finally:
                await asyncio.sleep(0.01)

    async def main() -> Any:
        handler = Race().run()
        return [handler.ctx.to_dict()["paused"] async for event in handler.stream_events()], await handler
    assert go(main) == ([None], "done")


class Votes(Workflow):
    """Wants two votes, and may fail once after the first."""

    @step(retry_policy=RetryPolicy(delay=0))
    async def count(self, ctx: Context[Any], ev: StartEvent) -> StopEvent:
        votes = None
        while votes is None:
            votes = ctx.collect_events(await ctx.wait_for_event(Answer), [Answer] * 2)
            if ev.faults:
                raise ev.faults.pop()
        return StopEvent(result=[vote.text for vote in votes])


@pytest.mark.parametrize("save", [True, False])
def test_an_event_that_was_waited_for_counts_once(save: bool) -> None:
    async def main() -> Any:
        votes = Votes(timeout=5)
        handler = votes.run(faults=[] if save else [OSError("a fault that a retry mends")])
        await asyncio.sleep(0.01)
        handler.ctx.send_event(Answer(text="Ada"))
        await asyncio.sleep(0.01)
        if save:
            saved = json.loads(json.dumps(handler.ctx.to_dict()))
            await handler.cancel_run()
            handler = votes.run(ctx=Context.from_dict(votes, saved))
            await asyncio.sleep(0.01)
        assert not handler.done()
        handler.ctx.send_event(Answer(text="Bob"))
        return await handler
    assert go(main) == ["Ada", "Bob"]


def test_two_gatherings_in_one_call_of_a_step_do_not_mix() -> None:
    seen: list[Any] = []

    class Pairs(Workflow):
        @step
        async def send(self, ctx: Context[Any], ev: StartEvent) -> One | Two | Three | None:
            for event in (One(n=1), Three(n=2), Two(n=3), Three(n=4)):
                ctx.send_event(event)
            return None

        @step(num_workers=1)
        async def gather(self, ctx: Context[Any], ev: One | Two | Three) -> StopEvent | None:
            seen.append(ctx.collect_events(ev, [One, Two]))
            threes = ctx.collect_events(ev, [Three, Three])
            return StopEvent(result=threes) if threes else None
    assert Pairs(timeout=5).run_sync() == [Three(n=2), Three(n=4)]
    assert seen == [None, None, [One(n=1), Two(n=3)], None]


@pytest.mark.parametrize("keep", ["save", "cancel", "nothing"])
def test_what_is_sent_to_a_run_before_it_begins_is_kept(keep: str) -> None:
    class Ask(Workflow):
        @step
        async def ask(self, ctx: Context[Any], ev: StartEvent) -> One | StopEvent:
            return StopEvent(result=(await ctx.wait_for_event(Answer)).text)

        @step
        async def note(self, ctx: Context[Any], ev: One) -> None:
            await ctx.set("noted", ev.n)

    ask = Ask(timeout=5)
    handler = ask.run()
    handler.ctx.send_event(Answer(text="yes"))
    handler.ctx.send_event(One(n=7), step="note")
    ctx = Context.from_dict(ask, json.loads(json.dumps(handler.ctx.to_dict()))) if keep == "save" else handler.ctx
    if keep == "cancel":
        handler.cancel_run()

    async def main() -> Any:
        result = await (handler if keep == "nothing" else ask.run(ctx=ctx))
        return result, await ctx.get("noted")
    assert go(main) == ("yes", 7)


def test_a_question_and_a_stop_event_sent_before_the_beginning() -> None:
    async def main() -> Any:
        asker, shown = Shop(), []
        handler = await asyncio.to_thread(asker.run)
        handler.ctx.send_event(Question(text="?"))
        handler.ctx.send_event(StopEvent(result="never mind"))
        async for event in handler.stream_events():
            shown.append(event)
        return shown
    assert go(main) == [Question(text="?"), StopEvent(result="never mind")]


def test_a_wait_outside_of_the_runs_own_loop_is_refused() -> None:
    class Ask(Workflow):
        @step
        def ask(self, ctx: Context[Any], ev: StartEvent) -> StopEvent:
            return StopEvent(result=asyncio.run(ctx.wait_for_event(Answer)))
    with pytest.raises(WorkflowRuntimeError, match="wait_for_event is for `async def` steps"):
        Ask(timeout=5).run_sync()


def test_a_saved_class_is_the_one_of_its_module(monkeypatch: pytest.MonkeyPatch) -> None:
    other: Any = type(sys)("books")
    monkeypatch.setitem(sys.modules, "books", other)
    exec("from hello_react.workflow import Event\nclass One(Event):\n    n: int", other.__dict__)

    class Reader(Workflow):
        @step
        async def read(self, ctx: Context[Any], ev: StartEvent) -> One:
            await ctx.set("seen", other.One(n=1))
            return One(n=2)

        @step
        async def end(self, ev: One) -> StopEvent:
            return StopEvent()

    async def main() -> None:
        reader = Reader()
        ctx = Context(reader)
        await reader.run(ctx=ctx)
        saved = ctx.to_dict()
        assert type(await Context.from_dict(reader, saved).get("seen")) is other.One
        saved["state"]["seen"]["__type__"] = "elsewhere:One"  # the file has another name now
        assert type(await Context.from_dict(reader, saved).get("seen")) is One
    go(main)


def test_a_declared_result_has_its_default_and_is_missed() -> None:
    class Done(StopEvent):
        result: str = "nothing found"
        pages: int = 0

    class Must(StopEvent):
        result: str
    assert Done(pages=3) == Done(result="nothing found", pages=3)
    assert StopEvent().result is None
    with pytest.raises(EventFieldError, match="missing 'result'"):
        Must()


def test_a_field_may_be_of_a_class_called_like_classvar() -> None:
    class ClassVariant: ...

    class Choice(Event):
        kind: ClassVariant
        count: ClassVar[int] = 0
        total: typing.ClassVar[int] = 0
    assert list(Choice(kind=ClassVariant())) == ["kind"]


def test_an_event_nested_in_a_base_class_is_known_in_its_subclass() -> None:
    names: dict[str, Any] = {}
    exec(textwrap.dedent("""
        from __future__ import annotations
        from hello_react.workflow import Event, StartEvent, StopEvent, Workflow, step
        class Base(Workflow):
            @step
            async def first(self, ev: StartEvent) -> Middle: return self.Middle()
            @step
            async def last(self, ev: Middle) -> StopEvent: return StopEvent(result="fine")
            class Middle(Event): ...
        class Child(Base): ...
    """), names)
    assert names["Child"]().run_sync() == "fine"


def test_a_class_that_was_defined_anew_is_named_as_such() -> None:
    class Found(Event): ...

    class Look(Workflow):
        @step
        async def look(self, ev: StartEvent) -> Found:
            return newer()

        @step
        async def tell(self, ev: Found) -> StopEvent:
            return StopEvent()
    newer = type("Found", (Event,), {})
    with pytest.raises(WorkflowRuntimeError, match="step 'tell' takes another class of that name"):
        Look().run_sync()


def test_a_class_defined_anew_is_named_where_a_run_begins() -> None:
    def cell() -> Any:
        class Begin(StartEvent): ...
        class Mine(HumanResponseEvent): ...

        class Stall(Workflow):
            @step
            async def serve(self, ctx: Context[Counts], ev: Begin | Mine) -> StopEvent:
                return StopEvent()
        return Stall, Begin

    (older, begin), (newer, _) = cell(), cell()
    with pytest.raises(WorkflowRuntimeError, match=r"belongs to Stall \(another class of that name"):
        newer().run(ctx=Context(older()))
    with pytest.raises(WorkflowRuntimeError, match=r"must be a Begin, not Begin \(another class of that name"):
        newer().run(start_event=begin())

    async def main() -> None:
        handler = newer().run()
        with pytest.raises(WorkflowRuntimeError, match=r"take Begin, but Begin and Mine \(another class of"):
            handler.ctx.send_event(begin(), step="serve")
        with pytest.raises(WorkflowRuntimeError, match=r"is a Counts, not a Counts \(another class of that"):
            await handler.ctx.store.set_state(dataclasses.make_dataclass("Counts", [])())
        await handler
    go(main)


def test_a_drawing_leads_from_each_event_to_those_who_take_it() -> None:
    class Found(Event): ...
    class FoundOnline(Found): ...
    class Found_1(Event): ...
    other = type("Found", (Event,), {})

    class Look(Workflow):
        @step
        async def look(self, ev: StartEvent) -> FoundOnline | other | Found_1:  # type: ignore[valid-type]
            return FoundOnline()

        @step
        async def tell(self, ev: Found | other | Found_1) -> StopEvent:  # type: ignore[valid-type]
            return StopEvent()
    lines = Look().draw().splitlines()
    assert "    event_FoundOnline --> step_tell" in lines
    nodes = [line for line in lines if '(["' in line]
    assert len(nodes) == len({line.split("(")[0] for line in nodes}) == 5


class Crate(Event, Generic[T]):
    value: T


def test_a_drawing_shows_each_arrow_once_and_none_from_the_end() -> None:
    class Pack(Workflow):
        @step
        async def put(self, ev: StartEvent) -> Crate[int] | Crate[str]:
            return Crate(value=1)

        @step
        async def close(self, ev: Crate[int] | Crate[str]) -> StopEvent:
            return StopEvent()

        @step
        async def log(self, ev: Event) -> None:
            return None
    arrows = [line.strip() for line in Pack().draw().splitlines() if "-->" in line]
    assert sorted(arrows) == ["event_Crate --> step_close", "event_StartEvent --> step_put",
                              "step_close --> event_StopEvent", "step_put --> event_Crate"]


# Ways to call, verbose, drawing.

def test_from_a_script() -> None:
    assert Chain().run_sync(n=2) == 30
    assert Chain().run(n=2).wait() == 30
    assert asyncio.run(Chain().run(n=2)) == 30
    handler = Asker().run()  # begins when it is awaited
    handler.ctx.send_event(Answer(text="early"))
    assert handler.wait() == "Hello, early! 1 1"
    assert handler.wait() == "Hello, early! 1 1"

    async def later(handler: Any) -> Any:
        seen = [event async for event in handler.stream_events()]
        return [event.get("word") for event in seen], await handler
    assert asyncio.run(later(Talker().run(text="a b"))) == (["a", "b", None], 3)
    with pytest.raises(ValueError, match="broken"):
        Failing().run_sync()


def test_inside_a_running_loop() -> None:  # W32
    async def main() -> None:
        assert Chain().run_sync(n=2) == 30
        with pytest.raises(ValueError, match="broken"):
            Failing().run_sync()
        handler = Chain().run()
        with pytest.raises(WorkflowRuntimeError) as caught:
            handler.wait()
        assert str(caught.value) == "wait() would block the event loop of this run: `await` it there"
        assert await handler == 20
        assert handler.wait() == 20  # over: nothing to block
    go(main)


def test_a_handler_is_awaited_in_any_way() -> None:
    async def main() -> None:
        handler = Talker().run(text="a b")
        tasks = [asyncio.create_task(handler), asyncio.create_task(handler)]
        results = await asyncio.gather(handler, asyncio.wait_for(handler, 5), asyncio.shield(handler), *tasks)
        assert results == [3] * 5
        return handler
    done = go(main)
    assert asyncio.run(done) == 3  # over, so any loop will do


def test_a_run_belongs_to_its_loop() -> None:
    async def main() -> Any:
        handler = Asker().run()
        await until_asked(handler, "Your name?")
        return handler
    handler = asyncio.run(main())
    with pytest.raises(WorkflowRuntimeError, match="this run began in another event loop"):
        asyncio.run(handler)
    with pytest.raises(WorkflowRuntimeError, match="would block"):
        handler.wait()


def test_a_run_whose_loop_was_closed_is_taken_up_in_another() -> None:
    workflow = Asker(num_concurrent_runs=1)

    async def main() -> Any:
        handler = workflow.run()
        await until_asked(handler, "Your name?")
        return handler
    left = asyncio.run(main())
    with pytest.raises(WorkflowRuntimeError, match="send_event needs a run: begin one with"):
        left.ctx.send_event(Answer(text="Ada"))
    with pytest.raises(WorkflowRuntimeError, match="this run began in another event loop"):
        asyncio.run(read_first(left))

    async def other() -> Any:
        handler = workflow.run(ctx=left.ctx)  # it gets the place that the first can't need any more
        handler.ctx.send_event(Answer(text="Ada"))
        return await asyncio.wait_for(handler, 5)
    assert asyncio.run(other()) == "Hello, Ada! 1 1"
    assert left.done()
    asyncio.run(main())  # once more left behind, and its place is free again
    early = workflow.run()
    early.ctx.send_event(Answer(text="Bob"))
    assert early.wait() == "Hello, Bob! 1 1"


def test_a_stream_is_read_in_the_loop_of_its_run() -> None:
    async def main() -> None:
        handler = Slow().run()
        await asyncio.sleep(0.01)
        with pytest.raises(WorkflowRuntimeError, match="this run began in another event loop"):
            await asyncio.to_thread(asyncio.run, read_first(handler))
        await handler.cancel_run()
    go(main)


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit, asyncio.CancelledError, StopAsyncIteration])
@pytest.mark.parametrize("blocking", [True, False])
def test_errors_that_are_no_exceptions_end_the_run(kind: type[BaseException], blocking: bool,
                                                   caplog: pytest.LogCaptureFixture) -> None:
    class Raising(Workflow):
        @step
        async def start(self, ev: StartEvent) -> One | Two:
            return Two() if blocking else One()

        @step
        async def on_loop(self, ev: One) -> StopEvent:
            raise kind("x")

        @step
        def in_thread(self, ev: Two) -> StopEvent:
            raise kind("x")

        @catch_error
        async def handle(self, ev: StepFailedEvent) -> StopEvent:
            raise ev.exception

    expected = WorkflowCancelledError if kind is asyncio.CancelledError else kind
    if blocking and kind is StopAsyncIteration:  # as a StopIteration, it can't leave its thread as it is
        expected = RuntimeError
    with pytest.raises(expected):
        Raising().run_sync()
    gc.collect()
    assert caplog.text == ""


def test_a_stream_does_not_take_a_failure_for_its_end() -> None:
    class Raising(Workflow):
        @step
        async def start(self, ev: StartEvent) -> StopEvent:
            raise StopAsyncIteration

    async def main() -> None:
        with pytest.raises(RuntimeError, match="a step raised StopAsyncIteration"):
            async for event in Raising().run().stream_events():
                assert isinstance(event, WorkflowFailedEvent)
    go(main)


def test_a_field_may_be_called_items() -> None:
    class Batch(Event):
        items: list[int]
        values: int = 0

    class Waiting(Workflow):
        @step
        async def start(self, ctx: Context, ev: StartEvent) -> StopEvent:
            await ctx.set("batch", Batch(items=[1, 2]))
            await ctx.wait_for_event(HumanResponseEvent)
            return StopEvent([*ev.items, *(await ctx.get("batch")).items])

    async def main() -> None:
        handler = Waiting().run(items=["pen"])
        await asyncio.sleep(0.01)
        saved = json.loads(json.dumps(handler.ctx.to_dict()))
        await handler.cancel_run()
        ctx = Context.from_dict(Waiting(), saved)
        again = Waiting().run(ctx=ctx)
        ctx.send_event(HumanResponseEvent())
        assert await again == ["pen", 1, 2]
    Batch.__qualname__ = "Batch"
    globals()["Batch"] = Batch
    try:
        go(main)
    finally:
        del globals()["Batch"]


def test_numbers_that_json_has_not_are_saved() -> None:
    async def main() -> None:
        ctx = Context(Chain())
        await ctx.set("numbers", [float("inf"), float("-inf"), 1.5])
        saved = json.dumps(ctx.to_dict(), allow_nan=False)
        loaded = Context.from_dict(Chain(), json.loads(saved))
        assert await loaded.get("numbers") == [float("inf"), float("-inf"), 1.5]
    go(main)


@pytest.mark.parametrize(("call", "problem"), [
    (lambda ctx: ctx.wait_for_event(Answer, timeout="2"), "timeout must be seconds above 0 or None, not '2'"),
    (lambda ctx: ctx.wait_for_event(Answer, timeout=float("nan")), "timeout must be seconds above 0"),
    (lambda ctx: ctx.wait_for_event(Answer, requirements=["n"]), "requirements must be a dict"),
    (lambda ctx: ctx.send_event(One(), ["start"]), r"there is no step \['start'\]"),
    (lambda ctx: ctx.collect_events(One(), [One], buffer_id=("a", 1)), "buffer_id must be text"),
])
def test_options_of_a_wrong_kind_are_named(call: Any, problem: str) -> None:
    class Wrong(Workflow):
        @step
        async def start(self, ctx: Context, ev: StartEvent) -> StopEvent:
            waited = call(ctx)
            return StopEvent(await waited if asyncio.iscoroutine(waited) else waited)

    with pytest.raises(WorkflowRuntimeError, match=problem):
        Wrong().run_sync()


@pytest.mark.parametrize("timeout", [0, -1.5])
def test_a_wait_whose_time_is_over_already_ends_at_once(timeout: float) -> None:
    class Late(Workflow):
        @step
        async def start(self, ctx: Context, ev: StartEvent) -> StopEvent:
            return StopEvent(await ctx.wait_for_event(Answer, timeout=timeout))

    with pytest.raises(WorkflowTimeoutError, match=r"waited .* s for Answer"):
        Late().run_sync()


def test_an_error_handler_names_steps_in_a_list() -> None:
    with pytest.raises(WorkflowConfigurationError, match="for_steps must be a list of names, as in"):
        catch_error(for_steps=5)  # type: ignore[call-overload]


def test_closing_the_loop_ends_the_run() -> None:
    workflow = Slow()

    async def main() -> Any:
        handler = workflow.run()
        await asyncio.sleep(0.01)
        return handler
    handler = asyncio.run(main())
    assert handler.done()
    assert "right" in workflow.ended
    assert sorted(job["step"] for job in handler.ctx.to_dict()["paused"]) == ["left", "right"]
    if sys.version_info >= (3, 11):  # before, a task does not tell that it is being cancelled
        assert "left" in workflow.ended


def test_a_workflow_inside_a_workflow() -> None:
    class Outer(Workflow):
        @step
        async def start(self, ctx: Context, ev: StartEvent) -> StopEvent:
            inner = await Chain().run(n=5)
            assert ctx.collect_events(ev, [StartEvent]) == [ev]  # the outer step is still known
            return StopEvent(inner + 1)

    async def main() -> None:
        assert await Outer().run() == 61
    go(main)


@pytest.mark.parametrize("ending", ["time limit", "failure", "cancelled"])
@pytest.mark.parametrize("form", ["stream", "sleep", "thread"])
def test_a_run_begun_in_a_step_is_cancelled_with_the_step(ending: str, form: str) -> None:
    begun, ended = threading.Event(), threading.Event()

    class Inner(Workflow):
        @step
        async def send(self, ctx: Context, ev: StartEvent) -> StopEvent:
            ctx.write_event_to_stream(One(n=1))
            begun.set()
            try:
                await asyncio.sleep(20)
            except asyncio.CancelledError:
                ended.set()
                raise
            return StopEvent()

    class Outer(Workflow):
        @step
        async def start(self, ctx: Context, ev: StartEvent) -> Two | StopEvent | None:
            if form == "thread":
                ctx.send_event(Two(n=1))
                return None
            handler = Inner().run()
            async for _ in handler.stream_events():
                if ending == "failure":
                    raise OSError("broken")
                if form == "sleep":
                    await asyncio.sleep(10)
            return StopEvent()

        @step
        def in_thread(self, ev: Two) -> StopEvent:
            return StopEvent(Inner().run_sync())

        @step
        async def fail(self, ev: Two) -> StopEvent:
            await asyncio.to_thread(begun.wait, 10)
            await asyncio.sleep(0 if ending == "failure" else 10)
            raise OSError("broken")

    async def main() -> None:
        before = asyncio.all_tasks()
        handler = Outer(timeout=0.3 if ending == "time limit" else 10).run()
        await asyncio.to_thread(begun.wait, 10)
        if ending == "cancelled":
            await handler.cancel_run()
        with pytest.raises((OSError, WorkflowTimeoutError, WorkflowCancelledError)):
            await handler
        if form != "thread":
            assert asyncio.all_tasks() - before == set()
        assert await asyncio.to_thread(ended.wait, 10)
    go(main)


@pytest.mark.parametrize("where", ["begun", "waiting", "free"])
def test_run_sync_is_refused_where_it_would_block_the_runs_it_waits_for(where: str) -> None:
    async def main() -> None:
        workflow = Chain(num_concurrent_runs=2)
        handlers = [workflow.run(n=n) for n in range({"begun": 2, "waiting": 3, "free": 1}[where])]
        if where == "free":
            assert workflow.run_sync(n=5) == 60
        else:
            with pytest.raises(WorkflowRuntimeError, match=r"num_concurrent_runs is 2.*: await them first"):
                workflow.run_sync(n=5)
        await asyncio.gather(*handlers)
        assert workflow.run_sync(n=5) == 60
    go(main)


def test_verbose(capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture) -> None:
    Chain().run_sync()
    assert capsys.readouterr().out == ""
    assert caplog.text == ""
    Chain(verbose=True).run_sync()
    assert capsys.readouterr().out.splitlines() == [
        "Running step first", "Step first produced event One", "Running step second",
        "Step second produced event Two", "Running step third", "Step third produced event StopEvent"]
    with caplog.at_level(logging.INFO, logger="hello_react.workflow"):
        Chain().run_sync()
    assert capsys.readouterr().out == ""
    assert len(caplog.records) == 6

    class Quiet(Workflow):
        @step
        async def start(self, ctx: Context, ev: StartEvent) -> StopEvent | None:
            ctx.send_event(StopEvent())
            return None

    Quiet(verbose=True).run_sync()
    assert "Step start produced" not in capsys.readouterr().out  # the run was over by then


def test_verbose_output_that_the_console_lacks_the_letters_for() -> None:
    code = textwrap.dedent("""
        from hello_react.workflow import StartEvent, StopEvent, Workflow, step
        class Work(Workflow):
            @step
            async def gr\u00fc\u00dfen(self, ev: StartEvent) -> StopEvent:
                return StopEvent()
        Work(verbose=True).run_sync()
    """)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, cwd=ROOT,
                          env={**os.environ, "PYTHONIOENCODING": "ascii"})
    assert done.stdout.splitlines() == ["Running step gr??en", "Step gr??en produced event StopEvent"]


def test_drawing(tmp_path: Path) -> None:
    text = Asker().draw(tmp_path / "asker.mmd")
    assert text == (tmp_path / "asker.mmd").read_text(encoding="utf-8") == textwrap.dedent("""\
        flowchart TD
            step_ask["ask"]
            step_greet["greet"]
            event_StartEvent(["StartEvent"])
            event_Answer(["Answer"])
            event_Question(["Question"])
            event_StopEvent(["StopEvent"])
            event_StartEvent --> step_ask
            step_ask --> event_Question
            event_Answer --> step_greet
            step_greet --> event_StopEvent
    """)
    assert Chain().draw().count("-->") == 6
    other = type("One", (Event,), {"__module__": "elsewhere"})

    class Alike(Workflow):
        @step
        async def start(self, ev: StartEvent) -> One:
            return One()

        @step
        async def change(self, ev: One) -> other:
            return other()

        @step
        async def end(self, ev: other) -> StopEvent:
            return StopEvent()

    text = Alike().draw()
    assert f'event_One(["{__name__}.One"])' in text
    assert 'event_One_1(["elsewhere.One"])' in text
    assert "event_One_1 --> step_end\n    step_end --> event_StopEvent" in text
    with pytest.raises(WorkflowConfigurationError):
        Workflow().draw()


def test_importing_the_engine_imports_nothing_heavy() -> None:
    code = ("import sys, hello_react.workflow; "
            "print(sorted({'pydantic', 'openai', 'requests'} & set(sys.modules)))")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, cwd=ROOT)
    assert done.stdout.strip() == "[]", done.stderr
