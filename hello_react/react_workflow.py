"""ReActWorkflow: the agent as steps on the engine of `workflow.py` (the workflow chapter).

Four steps: one takes the question, one sees whether another step is due, one asks the model and shows its
text as it comes, one runs the tools. All that they do is the agent's: prompt, parser, tools, limits and
`Result` are those of `ReActAgent` (or of `ToolCallingAgent`), and so are the steps and the answer.

    >>> from hello_react import ScriptedLLM, ToolExecutor
    >>> model = ScriptedLLM(["Thought: A greeting needs no tool.\\nAction: Finish[Hello! What can I do?]"])
    >>> answer = ReActWorkflow(model, ToolExecutor()).run_sync(input="Hello!")
    >>> answer.response, answer["sources"], len(answer.reasoning)
    ('Hello! What can I do?', [], 1)
"""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Generator
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

from . import events
from .agent import ReActAgent, Run
from .background import iterate_in_thread
from .errors import ModelTimeoutError
from .events import Notice, Observation, Reply, Result, RunEnded, RunStarted, Status, Step, Thought, Token
from .guards import Deadline, History
from .memory import Conversation
from .parser import Action, Finish, Malformed, Turn
from .tools import ToolExecutor
from .workflow import (
    Context,
    Event,
    HumanResponseEvent,
    InputRequiredEvent,
    StartEvent,
    StopEvent,
    Workflow,
    step,
)

T = TypeVar("T")


class QuestionEvent(StartEvent):
    """Begins a run: `workflow.run(input="...")`."""

    input: str


class PrepareEvent(Event):
    """Another step may be due."""


class ModelInputEvent(Event):
    """The model is to be asked for step `number`; at the step limit once more, for its best answer."""

    number: int
    last_call: bool = False


class ToolCallEvent(Event):
    """The model wants tools: its reply, and what that says."""

    reply: Reply
    turn: Turn


class AgentEvent(Event):
    """In the stream: one event of the agent, such as a Thought, as `ReActAgent.stream` yields it."""

    event: events.Event


class StreamEvent(AgentEvent):
    """In the stream: a piece of the model's text, as it comes."""

    delta: str


class ApprovalRequiredEvent(InputRequiredEvent):
    """In the stream, with `ask_person`: may this call run?"""

    call: Action


class ApprovalEvent(HumanResponseEvent):
    """The person's word on a call, for `handler.ctx.send_event`: True, or False or words to refuse it."""

    call: Action
    verdict: bool | str


class AnswerEvent(StopEvent):
    """How the run ended; its fields read as attributes or as in a dict.

    Attributes:
        response: the answer, or None.
        sources: the observations of the tools that ran and gave a result.
        reasoning: the steps.
        result: the whole `Result`, as of any agent; its status says why there is no answer.
    """

    response: str | None
    sources: list[Observation]
    reasoning: list[Step]


@dataclass
class _Run(Run):
    """A run between two steps of the workflow."""

    status: Status | None = None
    answer: str | None = None
    step_began: float = 0.0
    verdicts: dict[Action, bool | str] = field(default_factory=dict)


class ReActWorkflow(Workflow):
    """Runs an agent: `answer = await workflow.run(input="...")`.

    A context given to run after run carries the conversation from one to the next, also when it was saved and
    loaded in between; a run that was saved half-way goes on with what it had still to do.

    Args:
        llm_client: the model, as for `ReActAgent`.
        tool_executor: the tools.
        max_steps: model calls at most.
        agent_class: `ReActAgent`, or `ToolCallingAgent` for native calls, several of them side by side.
        memory: makes the conversation of a new context, with your limits.
        ask_person: show each call as an `ApprovalRequiredEvent`, and wait for an `ApprovalEvent`.
        timeout: seconds that a run may take before it ends with an error; `time_limit` ends it with a result.
        verbose: writes which step ran and what it produced.
        num_concurrent_runs: how many runs go on at a time; None: any.
        options: more options of the agent.

    Raises:
        ValueError: an option of the agent that can't be used.
        WorkflowConfigurationError: an option of the workflow that can't be used.
    """

    def __init__(self, llm_client: Any, tool_executor: ToolExecutor, max_steps: int = 5, *,
                 agent_class: type[ReActAgent] = ReActAgent, ask_person: bool = False,
                 memory: Callable[[], Conversation] = Conversation, timeout: float | None = None,
                 verbose: bool = False, num_concurrent_runs: int | None = None, **options: Any) -> None:
        super().__init__(timeout, verbose, num_concurrent_runs)
        if ask_person and options.get("approve"):
            raise ValueError("approve and ask_person both decide on a call: give one of them")
        self.agent = agent_class(llm_client, tool_executor, max_steps, **options)
        self.memory, self.ask_person = memory, ask_person
        self._runs: WeakKeyDictionary[Context[Any], _Run] = WeakKeyDictionary()

    # --- the steps

    @step
    async def new_user_msg(self, ctx: Context[Any], ev: QuestionEvent) -> PrepareEvent:
        """Takes the question: what was said before is remembered, the reasoning begins afresh."""
        if not isinstance(ev.input, str) or not ev.input.strip():
            raise ValueError("The question is empty.")
        await ctx.set("question", ev.input)
        await ctx.set("steps", [])
        self._runs.pop(ctx, None)
        run = await self._run_of(ctx)
        _show(ctx, RunStarted(run.question, run.tools.names, self.agent.max_steps))
        return PrepareEvent()

    @step
    async def prepare(self, ctx: Context[Any], ev: PrepareEvent) -> ModelInputEvent | AnswerEvent:
        """Sees whether the run goes on, and with which step."""
        run = await self._run_of(ctx)
        if run.status is None and len(run.steps) >= self.agent.max_steps:
            run.status = "max_steps"
        elif run.status is None and run.deadline.passed:
            run.status = "timed_out"
        last_call = run.status == "max_steps" and self.agent.best_effort and not run.deadline.passed
        if run.status is None or last_call:
            return ModelInputEvent(number=len(run.steps) + 1, last_call=last_call)
        return await self._end(ctx, run)

    @step
    async def ask_model(self, ctx: Context[Any],
                        ev: ModelInputEvent) -> ToolCallEvent | PrepareEvent | AnswerEvent:
        """Asks the model; an ending or an unreadable reply is dealt with here."""
        run = await self._run_of(ctx)
        if ev.last_call:
            run.answer = await self._tell(ctx, run, self.agent._last_call(run))
            run.status = "best_effort" if run.answer else run.status or "max_steps"
            return await self._end(ctx, run)
        run.step_began = time.perf_counter()
        said = await self._tell(ctx, run, self._think(run))
        if said is not None:
            reply, turn = said
            if isinstance(turn.move, Action):
                return ToolCallEvent(reply=reply, turn=turn)
            await self._observe(ctx, run, reply, turn)
        return PrepareEvent()

    @step
    async def run_tools(self, ctx: Context[Any], ev: ToolCallEvent) -> PrepareEvent:
        """Runs the tools; whatever goes wrong in one is an observation."""
        run = await self._run_of(ctx)
        if self.ask_person:
            for call in self.agent.pick(ev.turn):
                word = await ctx.wait_for_event(ApprovalEvent, ApprovalRequiredEvent(call=call),
                                                requirements={"call": call})
                run.verdicts[call] = word.verdict
        await self._observe(ctx, run, ev.reply, ev.turn)
        return PrepareEvent()

    # --- what they share

    async def _run_of(self, ctx: Context[Any]) -> _Run:
        """The run of this context; that of a loaded context is made of its saved steps."""
        if ctx not in self._runs:
            conversation = self.memory()
            for turn in await ctx.get("memory", []):
                conversation.add(turn.question, turn.answer, turn.messages)
            agent = self.agent
            history = History[Any](agent.history_budget, agent.entry_text, agent.cut_entry)
            run = _Run(await ctx.get("question"), agent.tools.for_run(), history,
                       Deadline(agent.time_limit), conversation, agent.earlier(conversation))
            for done in await ctx.get("steps"):
                self._record(run, done)
            self._runs[ctx] = run
        return self._runs[ctx]

    async def _tell(self, ctx: Context[Any], run: _Run, piece: Generator[events.Event, None, T]) -> T | None:
        """Does a piece of the agent's work in a thread, and shows its events as they come.

        Returns:
            What the piece returns, or None if the run's time is up.
        """
        returned: list[T] = []

        def work() -> Generator[events.Event, None, None]:
            returned.append((yield from piece))

        try:
            async for event in iterate_in_thread(work()):
                _show(ctx, event)
        except Exception as error:
            if not isinstance(error, ModelTimeoutError) or not run.deadline.passed:
                result = self.agent._result(run, "failed", None, error)
                _show(ctx, RunEnded(result))
                error.result = result  # type: ignore[attr-defined]
                raise
            run.status = "timed_out"
        return returned[0] if returned else None

    def _think(self, run: _Run) -> Generator[events.Event, None, tuple[Reply, Turn]]:
        reply = yield from self.agent._ask(run)
        turn = self.agent.read(reply, run)
        if turn.thought:
            yield Thought(turn.thought)
        yield from self.agent.pick(turn) if isinstance(turn.move, Action) else (turn.move,)
        return reply, turn

    async def _observe(self, ctx: Context[Any], run: _Run, reply: Reply, turn: Turn) -> None:
        await self._tell(ctx, run, self._act(run, reply, turn))
        saved = [replace(done, observations=tuple(replace(seen, value=None) for seen in done.observations))
                 for done in run.steps]
        await ctx.set("steps", saved)  # values of tools may be anything, also what can't be saved

    def _act(self, run: _Run, reply: Reply, turn: Turn) -> Generator[events.Event, None, None]:
        calls: tuple[Action, ...] = ()
        if isinstance(turn.move, Finish):
            observations = self.agent._objections(turn.move.answer)
            if not observations:
                run.status, run.answer = "finished", turn.move.answer
        elif isinstance(turn.move, Malformed):
            observations = (Observation(turn.move.note, ok=False, error="malformed"),)
        else:
            calls, agent = self.agent.pick(turn), copy.copy(self.agent)
            if self.ask_person:
                agent.approve = lambda call: run.verdicts.get(call, False)
            observations = agent._act(run, calls, turn)
        yield from observations
        seconds = time.perf_counter() - run.step_began
        done = Step(len(run.steps) + 1, turn.thought, calls, observations, reply, seconds)
        if self._record(run, done):
            yield Notice("The history grew past its budget: the oldest steps are no longer sent.")

    def _record(self, run: _Run, done: Step) -> int:
        malformed = any(seen.error == "malformed" for seen in done.observations)
        run.malformed = run.malformed + 1 if malformed else 0
        run.steps.append(done)
        if run.malformed == self.agent.max_malformed:
            run.status = "malformed"
        elif run.most_repeats >= 3:
            run.status = "repeating"
        return run.history.add(self.agent.render(done)) if run.status is None else 0

    async def _end(self, ctx: Context[Any], run: _Run) -> AnswerEvent:
        assert run.status is not None
        result: Result = self.agent._result(run, run.status, run.answer, None)
        if run.answer is not None:
            self.agent.remember(run, run.answer)
            await ctx.set("memory", [*run.conversation])
        _show(ctx, RunEnded(result))
        del self._runs[ctx]
        return AnswerEvent(response=result.answer, sources=[*result.sources], reasoning=[*result.steps],
                           result=result)


def _show(ctx: Context[Any], event: events.Event) -> None:
    if isinstance(event, Token) and not event.thinking:
        ctx.write_event_to_stream(StreamEvent(event=event, delta=event.text))
    else:
        ctx.write_event_to_stream(AgentEvent(event=event))
