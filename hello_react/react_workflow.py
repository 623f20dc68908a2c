"""ReActWorkflow: the agent as steps on the engine of `workflow.py` (chapter 09).

Four steps: one takes the question, one prepares the model's input, one asks the model and shows its text as
it comes, one runs the tools. What they do are the pieces of the agent's own loop, of `ReActAgent` or of
`ToolCallingAgent`: so the prompt, the limits, the steps and the answer are the same.

    >>> from hello_react import ScriptedLLM, ToolExecutor
    >>> model = ScriptedLLM(["Thought: A greeting needs no tool.\\nAction: Finish[Hello! What can I do?]"])
    >>> answer = ReActWorkflow(model, ToolExecutor()).run_sync(input="Hello!")
    >>> answer.response, answer["sources"], len(answer.reasoning)
    ('Hello! What can I do?', [], 1)
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import replace
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

from . import events
from .agent import ReActAgent, Run
from .background import iterate_in_thread
from .events import Message, Observation, Reply, RunEnded, RunStarted, Step, Token
from .guards import Deadline
from .memory import Conversation
from .parser import Action, Turn
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
_PROGRESS = ("status", "answer", "most_repeats", "last_text")  # of a run, beside its steps


class QuestionEvent(StartEvent):
    """Begins a run: `workflow.run(input="...")`."""

    input: str


class PrepareEvent(Event):
    """Another step may be due."""


class ModelInputEvent(Event):
    """What the model is to be asked next."""

    messages: list[Message]


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


class ReActWorkflow(Workflow):
    """Runs an agent: `answer = await workflow.run(input="...")`.

    A context given to run after run carries the conversation from one to the next, also when it was saved and
    loaded in between; a run that was cancelled or saved half-way goes on with what it had still to do. Its
    stream then begins with a `RunStarted` of its own and holds no earlier steps: a trace of it can't be
    replayed. What tools keep in mind, such as an open page, is not saved, nor does it outlast a call that was
    cut short. If a subclass gives a step a retry policy, each attempt that fails shows a `RunEnded`.

    Args:
        llm_client: the model, as for `ReActAgent`.
        tool_executor: the tools.
        max_steps: model calls at most.
        agent_class: `ReActAgent`, or `ToolCallingAgent` for native calls, several of them side by side.
        memory: makes the conversation that a context begins with, with your limits. It may also give one that
            you keep yourself: what the context has beyond its turns is added to it.
        ask_person: show each call of a tool that is there as an `ApprovalRequiredEvent`, and wait for an
            `ApprovalEvent`. The agent's `time_limit` does not run meanwhile.
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
        if not callable(memory):
            raise ValueError("memory is a function that makes a conversation, as in "
                             f"memory=lambda: Conversation(max_turns=5), not {memory!r:.60}")
        self.agent = agent_class(llm_client, tool_executor, max_steps, **options)
        self.memory, self.ask_person = memory, ask_person
        self._runs: WeakKeyDictionary[Context[Any], Run] = WeakKeyDictionary()
        self._tools: WeakKeyDictionary[Context[Any], ToolExecutor] = WeakKeyDictionary()  # of those runs

    # --- the steps

    @step
    async def new_user_msg(self, ctx: Context[Any], ev: QuestionEvent) -> PrepareEvent:
        """Takes the question: what was said before is remembered, the reasoning begins afresh."""
        if not isinstance(ev.input, str | None):
            raise ValueError(f"The question must be text, not {type(ev.input).__name__}.")
        await ctx.set("question", ev.input)
        await ctx.set("steps", [])
        await ctx.set("repeats", [])
        await ctx.set("progress", {})
        self._runs.pop(ctx, None)
        self._tools.pop(ctx, None)
        await self._run_of(ctx)
        return PrepareEvent()

    @step
    async def prepare(self, ctx: Context[Any], ev: PrepareEvent) -> ModelInputEvent | AnswerEvent:
        """Prepares the model's input, unless the run is at its end."""
        run = await self._run_of(ctx)
        if self.agent.goes_on(run):
            return ModelInputEvent(messages=self.agent.prepare(run))
        result = self.agent.end(run)
        await ctx.set("memory", [*run.conversation])
        del self._runs[ctx]
        _show(ctx, RunEnded(result))
        return AnswerEvent(response=result.answer, sources=[*result.sources], reasoning=[*result.steps],
                           result=result)

    @step
    async def ask_model(self, ctx: Context[Any], ev: ModelInputEvent) -> ToolCallEvent | PrepareEvent:
        """Asks the model; an ending or an unreadable reply is dealt with here."""
        run = await self._run_of(ctx)
        reply = await self._tell(ctx, run, self.agent.ask(run, ev.messages))
        if reply is None:
            return PrepareEvent()  # out of time
        turn = await self._tell(ctx, run, self.agent.decide(run, reply))
        assert turn is not None
        if isinstance(turn.move, Action) and not self.agent.is_last(run):
            return ToolCallEvent(reply=reply, turn=turn)
        return await self._observe(ctx, run, reply, turn)

    @step
    async def run_tools(self, ctx: Context[Any], ev: ToolCallEvent) -> PrepareEvent:
        """Runs the tools; whatever goes wrong in one is an observation."""
        run = await self._run_of(ctx)
        if self.ask_person:
            left, verdicts = run.deadline.left, dict[Action, bool | str]()
            del self._runs[ctx]  # if this is interrupted, it goes on with a run that has time of its own
            for call in self.agent.pick(ev.turn):
                if call.tool in run.tools.names:
                    word = await ctx.wait_for_event(ApprovalEvent, ApprovalRequiredEvent(call=call),
                                                    requirements={"call": call})
                    verdicts[call] = word.verdict
            run.deadline = Deadline(left)
            run.approve = lambda call: verdicts.get(call, True)
        return await self._observe(ctx, run, ev.reply, ev.turn)

    # --- what they share

    async def _run_of(self, ctx: Context[Any]) -> Run:
        """The run of this context; that of a loaded or interrupted one is made of its saved steps."""
        if ctx not in self._runs:
            conversation = self.memory()
            if isinstance(conversation, type) or not hasattr(conversation, "turns"):
                raise ValueError(f"memory must make a Conversation, not {conversation!r:.60}")
            said = await ctx.get("memory", [])
            for turn in said[len(conversation):]:
                conversation.add(turn.question, turn.answer, turn.messages)
            run = self.agent.begin(await ctx.get("question"), conversation)
            run.tools, run.step_began = self._tools.setdefault(ctx, run.tools), run.began
            for done in await ctx.get("steps"):
                self.agent.record(run, done)
            run.repeats.counts.update(dict(await ctx.get("repeats", [])))
            vars(run).update(await ctx.get("progress", {}))
            self._runs[ctx] = run
            _show(ctx, RunStarted(run.question, run.tools.names, self.agent.max_steps))
        return self._runs[ctx]

    async def _observe(self, ctx: Context[Any], run: Run, reply: Reply, turn: Turn) -> PrepareEvent:
        del self._tools[ctx]  # as with the run itself in `_tell`
        seen: list[events.Event] = []  # shown once they are saved: from then on no tool need run again
        await self._tell(ctx, run, self.agent.observe(run, reply, turn), seen.append)
        for event in seen:
            _show(ctx, event)
        return PrepareEvent()

    async def _tell(self, ctx: Context[Any], run: Run, piece: Generator[events.Event, None, T],
                    show: Callable[[events.Event], None] | None = None) -> T | None:
        """Does a piece of the agent's work in a thread, and shows its events as they come (with `show`).

        What it changed in the run is put into the context, so that a loaded run goes on from there.

        Returns:
            What the piece returns, or None if the run's time is up.
        """
        returned: list[T] = []
        self._runs.pop(ctx, None)  # an interrupted thread goes on with it: only one that ended gives it back

        def work() -> Generator[events.Event, None, None]:
            returned.append((yield from piece))

        try:
            async for event in iterate_in_thread(work()):
                show(event) if show else _show(ctx, event)
        except Exception as error:
            self._tools[ctx] = run.tools
            if self.agent.fail(run, error) is None:
                self._runs[ctx] = run  # its time is up; a loaded one gets time of its own
                return None
            _show(ctx, RunEnded(self.agent.end(run, error)))
            raise
        self._runs[ctx], self._tools[ctx] = run, run.tools
        steps = [replace(done, observations=tuple(replace(seen, value=None) for seen in done.observations))
                 for done in run.steps]
        await ctx.set("steps", steps)  # values of tools may be anything, also what can't be saved
        await ctx.set("repeats", [*run.repeats.counts.items()])
        await ctx.set("progress", {name: getattr(run, name) for name in _PROGRESS})
        return returned[0]


def _show(ctx: Context[Any], event: events.Event) -> None:
    if isinstance(event, Token) and not event.thinking:
        ctx.write_event_to_stream(StreamEvent(event=event, delta=event.text))
    else:
        ctx.write_event_to_stream(AgentEvent(event=event))
