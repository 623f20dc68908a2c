"""The agent as a workflow, beside the agents themselves, on scripts and on a real server on loopback."""

from __future__ import annotations

import asyncio
import gc
import json
import re
import threading
import time
import weakref
from typing import Any

import pytest

from hello_react import (
    Action,
    Finish,
    FunctionLLM,
    HelloAgentsLLM,
    Malformed,
    ModelError,
    Notice,
    Observation,
    ReActAgent,
    Reply,
    RunEnded,
    RunStarted,
    ScriptedLLM,
    StepStarted,
    Thought,
    Token,
    ToolExecutor,
)
from hello_react.errors import ContextLengthError, ModelTimeoutError
from hello_react.events import ToolCall
from hello_react.memory import Conversation
from hello_react.react_workflow import (
    AgentEvent,
    AnswerEvent,
    ApprovalEvent,
    ApprovalRequiredEvent,
    ModelInputEvent,
    PrepareEvent,
    ReActWorkflow,
    StreamEvent,
    ToolCallEvent,
)
from hello_react.tool_calling import ToolCallingAgent
from hello_react.workflow import (
    Context,
    EventFieldError,
    RetryPolicy,
    WorkflowCancelledError,
    WorkflowFailedEvent,
    WorkflowTimeoutError,
    step,
)
from tests.servers import ModelServer

SUM = "What is (2123 + 2321) * 312?"
SUM_REPLIES = [
    'Thought: First the sum.\nAction: add[{"x": 2123, "y": 2321}]',
    'Thought: Now the product.\nAction: multiply[{"x": 4444, "y": 312}]',
    "Thought: That is it.\nAction: Finish[1,386,528]",
]
DONE = "Thought: I know.\nAction: Finish[42]"
SEARCH = "Thought: Look it up.\nAction: search[Oslo]"
TOO_LONG = ContextLengthError("the prompt is too long", 400)


def sums() -> ToolExecutor:
    tools = ToolExecutor()

    @tools.tool
    def add(x: int, y: int) -> int:
        "Adds two numbers."
        return x + y

    @tools.tool
    def multiply(x: int, y: int) -> int:
        "Multiplies two numbers."
        return x * y

    return tools


def searching(function: Any = lambda query: f"about {query}") -> ToolExecutor:
    tools = ToolExecutor()
    tools.register_tool("search", "Looks things up.", function)
    return tools


def workflow(*replies: Any, tools: ToolExecutor | None = None, **options: Any) -> ReActWorkflow:
    return ReActWorkflow(ScriptedLLM(replies), tools or searching(), **options)


async def told(handler: Any) -> tuple[list[Any], AnswerEvent]:
    """What the stream shows, and the answer."""
    return [event async for event in handler.stream_events()], await handler


def agent_events(stream: list[Any]) -> list[Any]:
    return [event.event for event in stream if isinstance(event, AgentEvent)]


def timeless(thing: Any) -> str:
    """A text of a result or event without the times it took."""
    return re.sub(r"seconds=[\d.e-]+", "seconds=_", repr(thing))


def prompt(run: ReActWorkflow, number: int) -> str:
    return str(run.agent.llm.calls[number][-1]["content"])


# --- the worked examples


def test_a_greeting_needs_no_tool():
    answer = workflow("Thought: A greeting.\nAction: Finish[Hello!]").run_sync(input="Hello!")
    assert (answer.response, answer.sources, answer.result.status) == ("Hello!", [], "finished")
    assert answer["response"] == "Hello!"
    assert [step.thought for step in answer.reasoning] == ["A greeting."]


def test_a_sum_takes_two_tools():
    answer = workflow(*SUM_REPLIES, tools=sums()).run_sync(input=SUM)
    assert answer.response == "1,386,528"
    assert [source.value for source in answer.sources] == [4444, 1386528]
    assert [[call.tool for call in step.calls] for step in answer.reasoning] == [["add"], ["multiply"], []]


def test_a_context_remembers_the_name():
    run = workflow("Action: Finish[Hello, Ada!]", "Action: Finish[Your name is Ada.]")

    async def main() -> Any:
        ctx = Context(run)
        await run.run(ctx=ctx, input="My name is Ada.")
        return await run.run(ctx=ctx, input="What is my name?")

    assert asyncio.run(main()).response == "Your name is Ada."
    assert "My name is Ada." in prompt(run, 1)
    assert "Hello, Ada!" in prompt(run, 1)


def test_the_memory_survives_saving_and_loading():
    run = workflow("Action: Finish[Hello, Ada!]", "Action: Finish[Ada]", DONE)

    async def main() -> None:
        ctx = Context(run)
        await run.run(ctx=ctx, input="My name is Ada.")
        saved = json.dumps(ctx.to_dict())
        await run.run(ctx=Context.from_dict(run, json.loads(saved)), input="What is my name?")
        await run.run(input="What is my name?")

    asyncio.run(main())
    assert "My name is Ada." in prompt(run, 1)
    assert "Ada" not in prompt(run, 2)


def test_the_memory_is_bounded_by_the_conversation_given():
    run = workflow(*["Action: Finish[ok]"] * 3, memory=lambda: Conversation(max_turns=1))

    async def main() -> None:
        ctx = Context(run)
        for text in ("first", "second", "third"):
            await run.run(ctx=ctx, input=text)

    asyncio.run(main())
    assert "second" in prompt(run, 2)
    assert "first\n" not in prompt(run, 2).rpartition("Earlier")[2]


def test_a_conversation_that_is_not_empty_is_told_once():
    def with_a_turn() -> Conversation:
        talk = Conversation()
        talk.add("My name is Ada.", "Hello Ada.")
        return talk

    kept = with_a_turn()
    for memory in (with_a_turn, lambda: kept):
        run = workflow(*["Action: Finish[ok]"] * 3, memory=memory)

        async def main(run: ReActWorkflow = run) -> list[str]:
            ctx: Context[Any] = Context(run)
            for text in ("one", "two", "three"):
                await run.run(ctx=ctx, input=text)
                ctx = Context.from_dict(run, json.loads(json.dumps(ctx.to_dict())))
            return [turn.question for turn in await ctx.get("memory")]

        assert asyncio.run(main()) == ["My name is Ada.", "one", "two", "three"]
        assert prompt(run, 2).count("My name is Ada.") == 1
    assert len(kept) == 4


def test_the_text_streams_as_it_comes():
    async def main(url: str) -> None:
        model = HelloAgentsLLM("m", "word", url)
        stream, answer = await told(ReActWorkflow(model, searching()).run(input="Tell me a joke."))
        pieces = [event.delta for event in stream if isinstance(event, StreamEvent)]
        assert len(pieces) > 3
        assert "".join(pieces) == reply
        assert answer.response == "Knock, knock."
        assert stream[-1] is answer

    reply = "Thought: They want a joke.\nAction: Finish[Knock, knock.]"
    with ModelServer([reply]) as server:
        asyncio.run(main(server.url))


def test_deltas_arrive_before_the_reply_is_whole():
    heard = threading.Event()

    def model(messages: Any) -> Any:
        yield "Thought: wait for the listener.\n"
        assert heard.wait(10)
        yield "Action: Finish[heard]"

    async def main() -> Any:
        handler = ReActWorkflow(FunctionLLM(model), searching()).run(input="q")
        async for event in handler.stream_events():
            if isinstance(event, StreamEvent):
                heard.set()
        return await handler

    assert asyncio.run(main()).response == "heard"


def customers(sent: list[tuple[str, str, str]]) -> ToolExecutor:
    tools = ToolExecutor()

    @tools.tool
    def lookup_customer(phone: str) -> dict[str, Any]:
        "根据手机号查询客户。"
        return {"phone": phone, "email": "li@example.com", "points": 2680}

    @tools.tool
    def send_email(subject: str, message: str, email: str) -> str:
        "发送电子邮件。"
        sent.append((subject, message, email))
        return "已发送"

    return tools


@pytest.mark.parametrize("two_lines", [False, True])
def test_a_customer_is_looked_up_and_written_to(two_lines: bool):
    mail = '{"subject": "最新积分", "message": "您的积分是 2680。", "email": "li@example.com"}'
    calls = [("lookup_customer", "13688888888"), ("send_email", mail)]
    form = "Action: {}\nAction Input: {}" if two_lines else "Action: {}[{}]"
    replies = [f"Thought: 下一步。\n{form.format(*call)}" for call in calls]
    sent: list[tuple[str, str, str]] = []
    run = workflow(*replies, "Thought: 好了。\nAction: Finish[已通知客户。]", tools=customers(sent))
    answer = run.run_sync(input="给客户13688888888发电子邮件，通知他最新的积分")
    assert answer.response == "已通知客户。"
    assert sent == [("最新积分", "您的积分是 2680。", "li@example.com")]
    assert [source.tool for source in answer.sources] == ["lookup_customer", "send_email"]
    assert "可用的工具" in prompt(run, 0)


# --- the same as the agents


def failing(query: str) -> str:
    raise OSError("down")


CASES: dict[str, tuple[list[Any], dict[str, Any], Any]] = {
    "finishes": ([SEARCH, DONE], {}, None),
    "unreadable": (["Well.", SEARCH, DONE], {}, None),
    "never readable": (["One.", "Two.", "Three."], {}, None),
    "two calls, one is run": ([f"{SEARCH}\nAction: search[Bergen]", DONE], {}, None),
    "unknown tool": (["Action: serach[Oslo]", "Action: fly[Oslo]", DONE], {}, None),
    "step limit": ([f"Action: search[{n}]" for n in range(5)], {"max_steps": 3}, None),
    "repeating": ([SEARCH] * 5, {}, None),
    "tool fails": ([SEARCH, DONE], {}, failing),
    "best effort": ([SEARCH, "Action: Finish[about 42]"], {"max_steps": 1, "best_effort": True}, None),
    "best effort fails": ([SEARCH, SEARCH], {"max_steps": 1, "best_effort": True}, None),
    "answer refused": ([DONE, DONE, DONE], {"check_answer": lambda answer: "no", "max_steps": 2}, None),
    "call refused": ([SEARCH, DONE], {"approve": lambda call: "not now"}, None),
    "no time": ([DONE], {"time_limit": 0}, None),
    "history shortened": ([f"Thought: {'long ' * 40}\nAction: search[{n}]" for n in range(3)] + [DONE],
                          {"history_budget": 100}, None),
    "prompt too long": ([SEARCH, TOO_LONG, DONE], {}, None),
    "broken off": ([Reply("Action: Finish[It is", finish_reason="length"), DONE], {}, None),
    "thinking": ([Reply("Action: Finish[42]", thinking="Hm.")], {}, None),
}


@pytest.mark.parametrize("case", CASES)
def test_it_does_what_the_text_agent_does(case: str):
    replies, options, function = CASES[case]
    tools = searching(function) if function else searching()
    expected: list[Any] = list(ReActAgent(ScriptedLLM(replies), tools, **options).stream("How many?"))
    stream, answer = asyncio.run(_told(ReActWorkflow(ScriptedLLM(replies), tools, **options)))
    assert timeless(agent_events(stream)) == timeless(expected)
    assert answer.response == answer.result.answer == expected[-1].result.answer
    assert answer.sources == list(answer.result.sources)
    assert answer.reasoning == list(answer.result.steps)


async def _told(run: ReActWorkflow) -> tuple[list[Any], AnswerEvent]:
    return await told(run.run(input="How many?"))


def native(*calls: tuple[str, str]) -> Reply:
    return Reply(tool_calls=tuple(ToolCall(str(number), *call) for number, call in enumerate(calls)))


NATIVE_SUM = [native(("add", '{"x": 2123, "y": 2321}')), native(("multiply", '{"x": 4444, "y": 312}')),
              "1,386,528"]


def test_it_does_what_the_tool_calling_agent_does():
    agent = ToolCallingAgent(ScriptedLLM(NATIVE_SUM), sums())
    expected = list(agent.stream(SUM))
    run = ReActWorkflow(ScriptedLLM(NATIVE_SUM), sums(), agent_class=ToolCallingAgent)
    stream, answer = asyncio.run(told_sum(run))
    assert timeless(agent_events(stream)) == timeless(expected)
    assert answer.response == "1,386,528"


async def told_sum(run: ReActWorkflow) -> tuple[list[Any], AnswerEvent]:
    return await told(run.run(input=SUM))


def test_text_agent_tool_calling_agent_and_workflow_mean_the_same():
    text = list(ReActAgent(ScriptedLLM(SUM_REPLIES), sums()).stream(SUM))
    calls = list(ToolCallingAgent(ScriptedLLM(NATIVE_SUM), sums()).stream(SUM))
    stream, _ = asyncio.run(told_sum(workflow(*SUM_REPLIES, tools=sums())))

    def meaning(events: list[Any]) -> list[Any]:
        """The events without what the two ways of writing a call differ in."""
        kinds = (RunStarted, Action, Observation, Finish, RunEnded)
        return [(type(event).__name__, getattr(event, "tool", ""), str(getattr(event, "text", "")),
                 getattr(event, "answer", "")) for event in events if isinstance(event, kinds)]

    assert meaning(text) == meaning(calls) == meaning(agent_events(stream))
    assert len(meaning(text)) == 7


def test_several_tools_in_one_step_run_side_by_side():
    meeting = threading.Barrier(3)

    def meet(name: str) -> str:
        meeting.wait(10)  # passes only when all three are at work
        return name

    calls = native(*[("meet", json.dumps({"name": name})) for name in "abc"])
    tools = ToolExecutor()
    tools.register_tool("meet", "Meets.", meet)
    run = workflow(calls, "All met.", tools=tools, agent_class=ToolCallingAgent)
    answer = run.run_sync(input="q")
    assert answer.response == "All met."
    assert [seen.text for seen in answer.reasoning[0].observations] == ["a", "b", "c"]


# --- what a stream shows


def test_the_stream_tells_the_agents_events_in_order():
    stream, _ = asyncio.run(_told(workflow("Hm.", SEARCH, DONE)))
    kinds = [type(event) for event in agent_events(stream) if not isinstance(event, (Token, Reply))]
    assert kinds == [RunStarted, StepStarted, Malformed, Observation, StepStarted, Thought, Action,
                     Observation, StepStarted, Thought, Finish, RunEnded]


def test_thinking_is_no_delta():
    stream, _ = asyncio.run(_told(workflow(Reply("Action: Finish[42]", thinking="Hm."))))
    assert "".join(event.delta for event in stream if isinstance(event, StreamEvent)) == "Action: Finish[42]"
    tokens = [event for event in agent_events(stream) if isinstance(event, Token)]
    assert [token.text for token in tokens if token.thinking] == ["Hm."]


def test_verbose_says_which_step_ran(capsys: pytest.CaptureFixture[str]):
    workflow(SEARCH, DONE, verbose=True).run_sync(input="q")
    steps = [line for line in capsys.readouterr().out.splitlines() if line.startswith("Running")]
    assert steps == [f"Running step {name}" for name in
                     ("new_user_msg", "prepare", "ask_model", "run_tools", "prepare", "ask_model", "prepare")]


def test_it_can_be_drawn():
    assert "step_run_tools --> event_PrepareEvent" in workflow().draw()


# --- what goes wrong


@pytest.mark.parametrize("wrong", [{"input": " "}, {"input": None}])
def test_an_empty_question_is_refused(wrong: dict[str, Any]):
    with pytest.raises(ValueError, match="question is empty"):
        workflow().run_sync(**wrong)


def test_a_question_that_is_no_text_is_refused():
    with pytest.raises(ValueError, match=r"^The question must be text, not int\.$"):
        workflow().run_sync(input=3)


def test_wrong_keywords_name_the_right_one():
    with pytest.raises(EventFieldError, match="missing 'input', unknown 'question'"):
        workflow().run(question="q")


def test_wrong_options_are_refused():
    with pytest.raises(ValueError, match="max_steps"):
        workflow(max_steps=0)
    with pytest.raises(ValueError, match=r"memory is a function .* as in memory=lambda: Conv.*, not <Conv"):
        workflow(memory=Conversation())
    with pytest.raises(ValueError, match="one of them"):
        workflow(approve=lambda call: True, ask_person=True)


def test_a_failure_of_the_model_carries_the_steps_so_far():
    async def main() -> list[Any]:
        handler = workflow(SEARCH, ModelError("the service is gone")).run(input="q")
        seen = []
        with pytest.raises(ModelError, match="gone") as caught:
            async for event in handler.stream_events():
                seen.append(event)
        assert caught.value.result is not None
        assert (caught.value.result.status, len(caught.value.result.steps)) == ("failed", 1)
        return seen

    *_, ended, last = asyncio.run(main())
    assert isinstance(ended.event, RunEnded)
    assert isinstance(last, WorkflowFailedEvent)
    assert last.step_name == "ask_model"


@pytest.mark.parametrize("memory", [lambda: None, lambda: Conversation, list])
def test_a_memory_that_makes_no_conversation_is_refused(memory: Any):
    with pytest.raises(ValueError, match=r"^memory must make a Conversation, not (None|<class .*|\[\])$"):
        workflow(memory=memory).run_sync(input="q")


def test_a_failed_run_leaves_no_turn_and_the_context_goes_on():
    run = workflow(ModelError("gone"), DONE)

    async def main() -> Any:
        ctx = Context(run)
        with pytest.raises(ModelError):
            await run.run(ctx=ctx, input="first question")
        return await run.run(ctx=ctx, input="second question")

    assert asyncio.run(main()).response == "42"
    assert "first question" not in prompt(run, 1)


def test_an_error_of_a_callback_reaches_the_caller():
    def check(answer: str) -> bool:
        raise RuntimeError("the checker broke")

    with pytest.raises(RuntimeError, match="checker") as caught:
        workflow(DONE, check_answer=check).run_sync(input="q")
    assert caught.value.result.status == "failed"  # type: ignore[attr-defined]


def test_a_model_that_is_too_slow_ends_the_run_with_a_result():
    def model(messages: Any) -> Any:
        yield "Thought: "
        threading.Event().wait(0.4)
        yield "too late"

    answer = ReActWorkflow(FunctionLLM(model), searching(), time_limit=0.2).run_sync(input="q")
    assert (answer.response, answer.result.status) == (None, "timed_out")


def test_a_slow_model_without_a_limit_of_the_run_is_an_error():
    with pytest.raises(ModelTimeoutError):
        workflow(ModelTimeoutError("no answer"), time_limit=60).run_sync(input="q")


def test_the_workflows_own_time_limit_ends_at_once():
    ended = threading.Event()

    def model(messages: Any) -> str:
        ended.wait(20)
        return DONE

    with pytest.raises(WorkflowTimeoutError, match="ask_model"):
        ReActWorkflow(FunctionLLM(model), searching(), timeout=0.5).run_sync(input="q")
    ended.set()


def test_a_history_over_its_budget_is_told():
    stream, _ = asyncio.run(_told(workflow(SEARCH, f"{'x' * 900}\n{SEARCH}", DONE, history_budget=40)))
    assert any("oldest steps" in event.text for event in agent_events(stream) if isinstance(event, Notice))


def test_runs_at_once_do_not_mix():
    tools = searching()

    def model(messages: Any) -> str:
        question = messages[-1]["content"].rpartition("Question: ")[2]
        word = question.split("\n")[0]
        return f"Action: Finish[{word}]" if "Observation: about" in question else f"Action: search[{word}]"

    run = ReActWorkflow(FunctionLLM(model), tools)

    async def main() -> list[Any]:
        return await asyncio.gather(*[run.run(input=f"q{number}") for number in range(5)])

    assert [answer.response for answer in asyncio.run(main())] == [f"q{number}" for number in range(5)]


def test_a_workflow_that_is_dropped_is_collected():
    run = workflow(SEARCH, DONE)
    run.run_sync(input="q")
    gone = weakref.ref(run)
    del run
    deadline = time.monotonic() + 20
    while gone() is not None and time.monotonic() < deadline:  # its last thread may still be on its way out
        gc.collect()
        time.sleep(0.01)
    assert gone() is None


# --- pausing


def test_a_cancelled_run_goes_on_where_it_was():
    at_work, waiting = threading.Event(), threading.Event()
    queries: list[str] = []

    def search(query: str) -> str:
        queries.append(query)
        if len(queries) == 1:
            at_work.set()
            waiting.wait(20)
        return f"about {query}"

    run = workflow(SEARCH, DONE, tools=searching(search))

    async def main() -> Any:
        handler = run.run(input="q")
        await asyncio.to_thread(at_work.wait, 10)
        await handler.cancel_run()
        with pytest.raises(WorkflowCancelledError):
            await handler
        waiting.set()
        return await run.run(ctx=handler.ctx)

    answer = asyncio.run(main())
    assert answer.response == "42"
    assert queries == ["Oslo", "Oslo"]
    assert [len(step.calls) for step in answer.reasoning] == [1, 0]


def test_a_call_that_was_cut_short_is_no_repeat():
    at_work, threads = threading.Event(), list[threading.Thread]()

    def search(query: str) -> str:
        threads.append(next(thread for thread in threading.enumerate() if thread.name == "hello_react run"))
        at_work.set()
        time.sleep(0.05)
        return f"about {query}"

    run = workflow(SEARCH, DONE, tools=searching(search))

    async def main() -> Any:
        handler = run.run(input="q")
        for _ in range(3):
            await asyncio.to_thread(at_work.wait, 10)
            await handler.cancel_run()
            await asyncio.to_thread(threads[-1].join, 10)  # it works on to its end
            at_work.clear()
            handler = run.run(ctx=handler.ctx)
        return await handler

    answer = asyncio.run(main())
    assert (answer.result.status, answer.response, len(threads)) == ("finished", "42", 4)
    assert [seen.text for seen in answer.reasoning[0].observations] == ["about Oslo"]


class Book:
    """Keeps the page that a run has opened."""

    page = "none"

    def for_run(self) -> Book:
        return Book()

    def search(self, query: str) -> str:
        self.page = query
        return f"opened {query}"

    def lookup(self, word: str) -> str:
        return f"{word} on {self.page}"

    def tools(self) -> ToolExecutor:
        tools = searching(self.search)
        tools.register_tool("lookup", "Finds a word on the page.", self.lookup)
        return tools


LOOKUP = "Thought: Read it.\nAction: lookup[height]"


class Retrying(ReActWorkflow):
    @step(retry_policy=RetryPolicy(delay=0))
    async def ask_model(self, ctx: Context[Any], ev: ModelInputEvent) -> ToolCallEvent | PrepareEvent:
        return await super().ask_model(ctx, ev)

    @step(retry_policy=RetryPolicy(delay=0))
    async def run_tools(self, ctx: Context[Any], ev: ToolCallEvent) -> PrepareEvent:
        return await super().run_tools(ctx, ev)


def test_a_tool_keeps_its_page_when_the_model_is_asked_again():
    replies = [SEARCH, ConnectionError("once"), LOOKUP, DONE]
    answer = Retrying(ScriptedLLM(replies), Book().tools()).run_sync(input="q")
    assert [seen.text for seen in answer.sources] == ["opened Oslo", "height on Oslo"]


def test_a_tool_keeps_its_page_when_a_callback_failed_once():
    verdicts = iter([True, None, True])

    def approve(call: Action) -> bool:
        verdict = next(verdicts)
        if verdict is None:
            raise OSError("nobody there")
        return verdict

    run = Retrying(ScriptedLLM([SEARCH, LOOKUP, DONE]), Book().tools(), approve=approve)
    answer = run.run_sync(input="q")
    assert [seen.text for seen in answer.sources] == ["opened Oslo", "height on Oslo"]


def cancelled_and_taken_up(run: ReActWorkflow, when: Any, meanwhile: Any = lambda: None) -> tuple[Any, Any]:
    """The answer and the stream of a run that goes on after it was cancelled in the midst of something."""
    async def main() -> Any:
        handler = run.run(input="q")
        await when(handler)
        await handler.cancel_run()
        meanwhile()
        stream, answer = await told(run.run(ctx=handler.ctx))
        return answer, agent_events(stream)

    return asyncio.run(main())


def test_a_tool_keeps_its_page_when_a_cancelled_run_goes_on():
    asked, go_on = threading.Event(), threading.Event()
    replies = [SEARCH, LOOKUP, LOOKUP, DONE]

    def model(messages: Any) -> str:
        reply = replies.pop(0)
        if len(replies) == 2:  # this thread is cut off
            asked.set()
            go_on.wait(20)
        return reply

    async def when(handler: Any) -> None:
        await asyncio.to_thread(asked.wait, 10)

    run = ReActWorkflow(FunctionLLM(model), Book().tools())
    answer, shown = cancelled_and_taken_up(run, when, go_on.set)
    assert [seen.text for seen in answer.sources] == ["opened Oslo", "height on Oslo"]
    assert isinstance(shown[0], RunStarted)
    assert all(done.seconds < 20 for done in answer.reasoning)  # the step at hand began with the run


def test_a_tool_that_was_cut_off_has_its_state_for_itself():
    at_work, go_on = threading.Event(), threading.Event()

    class Slow(Book):
        def for_run(self) -> Book:
            return Slow()

        def lookup(self, word: str) -> str:
            if not at_work.is_set():
                at_work.set()
                go_on.wait(20)
            return super().lookup(word)

    async def when(handler: Any) -> None:
        await asyncio.to_thread(at_work.wait, 10)

    answer, _ = cancelled_and_taken_up(workflow(SEARCH, LOOKUP, DONE, tools=Slow().tools()), when, go_on.set)
    assert [seen.text for seen in answer.sources] == ["opened Oslo", "height on none"]


async def answer_all(handler: Any, verdicts: list[Any]) -> AnswerEvent:
    async for event in handler.stream_events():
        if isinstance(event, ApprovalRequiredEvent):
            handler.ctx.send_event(ApprovalEvent(call=event.call, verdict=verdicts.pop(0)))
    return await handler


@pytest.mark.parametrize(("verdict", "seen"), [
    (True, "about Oslo"), (False, "search was not run: the user refused it."),
    ("ask my boss", "search was not run: the user refused it: ask my boss"),
])
def test_a_person_decides_on_each_call(verdict: Any, seen: str):
    async def main() -> AnswerEvent:
        return await answer_all(workflow(SEARCH, DONE, ask_person=True).run(input="q"), [verdict])

    assert asyncio.run(main()).reasoning[0].observations[0].text == seen


def test_a_person_decides_on_calls_of_one_reply_one_by_one():
    calls = native(("search", '{"query": "Oslo"}'), ("search", '{"query": "Bergen"}'))
    run = workflow(calls, "Done.", ask_person=True, agent_class=ToolCallingAgent)

    async def main() -> AnswerEvent:
        return await answer_all(run.run(input="q"), [False, True])

    assert [seen.ok for seen in asyncio.run(main()).reasoning[0].observations] == [False, True]


def test_a_person_may_take_longer_than_the_time_limit():
    def slow(query: str) -> str:
        time.sleep(0.05)
        return f"about {query}"

    def asked(call: Action) -> bool:
        time.sleep(1.1)
        return True

    async def run(agent_class: Any, *replies: Any) -> Any:
        handler = ReActWorkflow(ScriptedLLM(replies), searching(slow), agent_class=agent_class,
                                ask_person=True, time_limit=1).run(input="q")
        async for event in handler.stream_events():
            if isinstance(event, ApprovalRequiredEvent):
                await asyncio.sleep(1.1)
                handler.ctx.send_event(ApprovalEvent(call=event.call, verdict=True))
        return (await handler).result

    async def main() -> list[Any]:
        calls = native(("search", '{"query": "Oslo"}'))
        replies = {ReActAgent: [SEARCH, DONE], ToolCallingAgent: [calls, "42"]}
        agents = [agent_class(ScriptedLLM(said), searching(slow), approve=asked, time_limit=1)
                  for agent_class, said in replies.items()]
        return await asyncio.gather(*(agent.arun("q") for agent in agents),
                                    *(run(agent_class, *said) for agent_class, said in replies.items()))

    for result in asyncio.run(main()):
        assert (result.status, [seen.text for seen in result.sources]) == ("finished", ["about Oslo"])


def test_a_run_cancelled_while_a_person_is_asked_goes_on_with_time_of_its_own():
    run = workflow(SEARCH, DONE, tools=Book().tools(), ask_person=True, time_limit=1)

    async def main() -> AnswerEvent:
        handler = run.run(input="q")
        async for event in handler.stream_events():
            if isinstance(event, ApprovalRequiredEvent):
                break
        await handler.cancel_run()
        await asyncio.sleep(1.1)
        again = run.run(ctx=handler.ctx)
        again.ctx.send_event(ApprovalEvent(call=Action("search", "Oslo"), verdict=True))
        return await again

    answer = asyncio.run(main())
    assert (answer.result.status, answer.sources[0].text) == ("finished", "opened Oslo")


def test_a_person_is_not_asked_about_a_tool_that_is_not_there():
    calls = native(("delete_all", '{"path": "/"}'), ("search", '{"query": "Bergen"}'))
    run = workflow(calls, "Done.", ask_person=True, agent_class=ToolCallingAgent, timeout=20)

    async def main() -> AnswerEvent:
        return await answer_all(run.run(input="q"), [True])

    assert [seen.error for seen in asyncio.run(main()).reasoning[0].observations] == ["unknown_tool", ""]


def test_a_run_that_waits_for_a_person_is_saved_and_goes_on_elsewhere():
    queries: list[str] = []

    def search(query: str) -> object:
        queries.append(query)
        return object() if query == "odd" else f"about {query}"  # a value that JSON has no form for

    here = workflow("Action: search[odd]", SEARCH, tools=searching(search), ask_person=True)
    there = workflow(DONE, tools=searching(search), ask_person=True)

    async def first() -> str:
        handler = here.run(input="How many?")
        asked = 0
        async for event in handler.stream_events():
            if isinstance(event, ApprovalRequiredEvent):
                asked += 1
                if asked == 2:
                    break
                handler.ctx.send_event(ApprovalEvent(call=event.call, verdict=True))
        saved = json.dumps(handler.ctx.to_dict())
        await handler.cancel_run()
        return saved

    async def second(saved: str) -> AnswerEvent:
        ctx: Context[Any] = Context.from_dict(there, json.loads(saved))
        handler = there.run(ctx=ctx)
        ctx.send_event(ApprovalEvent(call=Action("search", "Oslo"), verdict=True))
        return await handler

    answer = asyncio.run(second(asyncio.run(first())))
    assert (answer.response, queries) == ("42", ["odd", "Oslo"])
    assert [len(step.calls) for step in answer.reasoning] == [1, 1, 0]
    assert "Observation: about Oslo" in prompt(there, 0)
    assert "search[odd]" in prompt(there, 0)


def test_a_tool_whose_observation_was_shown_is_not_called_again():
    sent: list[str] = []
    tools = ToolExecutor()
    tools.register_tool("send", "Sends a text.", lambda text: sent.append(text) or "Sent.")
    replies = ["Thought: a\nAction: send[hi]", "Thought: b\nAction: Finish[done]"]

    async def main() -> Any:
        handler = ReActWorkflow(ScriptedLLM(replies), tools).run(input="Send hi.")
        async for event in handler.stream_events():
            if isinstance(event, AgentEvent) and isinstance(event.event, Observation):
                saved = json.loads(json.dumps(handler.ctx.to_dict()))
                await handler.cancel_run()
                break
        again = ReActWorkflow(ScriptedLLM(replies[1:]), tools)
        handler = again.run(ctx=Context.from_dict(again, saved))
        shown = [event.event async for event in handler.stream_events() if isinstance(event, AgentEvent)]
        return await handler, shown

    answer, shown = asyncio.run(main())
    assert (answer.response, [done.number for done in answer.reasoning], sent) == ("done", [1, 2], ["hi"])
    assert isinstance(shown[0], RunStarted)


def test_a_loaded_run_keeps_count_of_unreadable_replies():
    saved_already = threading.Event()

    def model(messages: Any) -> str:
        if "Observation" in messages[-1]["content"].rpartition("Question: ")[2]:
            saved_already.wait(20)
        return "Hm."

    async def main() -> AnswerEvent:
        handler = ReActWorkflow(FunctionLLM(model), searching()).run(input="q")
        async for event in handler.stream_events():
            step = getattr(event, "event", None) if isinstance(event, AgentEvent) else None
            if isinstance(step, StepStarted) and step.number == 2:
                break
        saved = json.dumps(handler.ctx.to_dict())
        await handler.cancel_run()
        saved_already.set()
        there = workflow("Two.", "Three.")
        return await there.run(ctx=Context.from_dict(there, json.loads(saved)))

    answer = asyncio.run(main())
    assert (answer.result.status, len(answer.reasoning)) == ("malformed", 3)


def test_a_loaded_run_at_its_limit_still_asks_for_the_best_answer_and_runs_nothing():
    saved_already, queries = threading.Event(), []

    def model(messages: Any) -> str:
        if "No step is left" in messages[-1]["content"]:
            saved_already.wait(20)
        return SEARCH

    def search(query: str) -> str:
        queries.append(query)
        return f"about {query}"

    async def main() -> AnswerEvent:
        options: dict[str, Any] = {"max_steps": 1, "best_effort": True}
        handler = ReActWorkflow(FunctionLLM(model), searching(search), **options).run(input="q")
        async for event in handler.stream_events():
            step = getattr(event, "event", None) if isinstance(event, AgentEvent) else None
            if isinstance(step, StepStarted) and step.number == 2:
                break
        saved = json.dumps(handler.ctx.to_dict())
        await handler.cancel_run()
        saved_already.set()
        there = workflow(SEARCH, tools=searching(search), **options)
        return await there.run(ctx=Context.from_dict(there, json.loads(saved)))

    answer = asyncio.run(main())
    assert (answer.result.status, len(answer.reasoning), queries) == ("max_steps", 2, ["Oslo"])


class Held(ReActWorkflow):
    """Waits before it prepares anything but the first step, so that it can be saved there."""

    held = True

    @step
    async def prepare(self, ctx: Context[Any], ev: PrepareEvent) -> ModelInputEvent | AnswerEvent:
        if self.held and await ctx.get("progress"):
            ctx.write_event_to_stream(AgentEvent(event=Notice("held")))
            await asyncio.sleep(20)
        return await super().prepare(ctx, ev)


async def saved_before_it_ends(run: Held) -> Any:
    handler = run.run(input="q")
    async for event in handler.stream_events():
        if isinstance(event, AgentEvent) and event.event == Notice("held"):
            break
    saved = json.loads(json.dumps(handler.ctx.to_dict()))
    await handler.cancel_run()
    return saved


@pytest.mark.parametrize(("reply", "max_steps", "expected"), [
    (DONE, 5, ("finished", "42", 1, DONE)),
    ("It is 42.", 0, ("best_effort", "It is 42.", 1, "It is 42.")),
])
def test_a_run_saved_when_it_is_at_its_end_is_at_its_end_when_loaded(
        reply: str, max_steps: int, expected: tuple[Any, ...]):
    async def main() -> Any:
        here = Held(ScriptedLLM([reply]), searching(), best_effort=True)
        there = workflow("Action: Finish[something else]", best_effort=True)
        here.agent.max_steps = there.agent.max_steps = max_steps
        saved = await saved_before_it_ends(here)
        return (await there.run(ctx=Context.from_dict(there, saved))).result

    result = asyncio.run(main())
    assert (result.status, result.answer, len(result.steps), result.last_text) == expected


def test_a_loaded_run_keeps_count_of_repeated_calls():
    replies = [f"{SEARCH}\nAction: search[Bergen]"] * 6
    expected = ReActAgent(ScriptedLLM(replies), searching(), 6).run("q", verbose=False)

    async def main() -> Any:
        data = None
        while True:
            run = workflow(*replies, max_steps=6)
            handler = run.run(input="q") if data is None else run.run(ctx=Context.from_dict(run, data))
            async for event in handler.stream_events():
                if isinstance(event, AgentEvent) and isinstance(event.event, Observation):
                    data = json.loads(json.dumps(handler.ctx.to_dict()))
                    await handler.cancel_run()
                    break
            else:
                return (await handler).result

    result = asyncio.run(main())
    assert (result.status, len(result.steps)) == (expected.status, len(expected.steps)) == ("repeating", 3)
    assert [step.observations[0].text for step in result.steps] == [
        step.observations[0].text for step in expected.steps]
