"""ReActAgent: the one while loop that runs an agent (chapter 05).

In the paper's words (Yao et al., arXiv 2210.03629, section 2): thought and action of step t come from the
model, (th_t, a_t) = π(q, (a_1, o_1), ..., (a_{t-1}, o_{t-1})); the observation from the tool, o_t = T(a_t).

    >>> from hello_react import ScriptedLLM, ToolExecutor
    >>> tools = ToolExecutor()
    >>> tools.register_tool("Length", "Counts the letters of a word.", len)
    >>> model = ScriptedLLM(["Action: Length[giraffe]", "Thought: Done.\\nAction: Finish[7]"])
    >>> str(ReActAgent(model, tools).run("How long is 'giraffe'?", verbose=False))
    '7'
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable, Generator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from . import llm
from .background import iterate_in_thread
from .errors import ContextLengthError, HelloReactError, ModelTimeoutError
from .events import (
    REASONS,
    Event,
    Message,
    Notice,
    Observation,
    Reply,
    Result,
    RunEnded,
    RunStarted,
    Status,
    Step,
    StepStarted,
    Thought,
    Usage,
    drain,
)
from .guards import REPEAT_NOTE, Deadline, History, Repeats, WindowWatch, whole_number
from .parser import Action, Finish, Malformed, Turn, parse
from .prompt import LAST_CALL, Prompt, render_step
from .repairs import plain_words
from .text import clip, is_blank
from .tools import ToolExecutor

Approve = Callable[[Action], "bool | str"]
CheckAnswer = Callable[[str], "bool | str | None"]

@dataclass
class Run:
    """All state of one run, so that one agent can serve many runs at a time."""

    question: str
    tools: ToolExecutor
    history: History[Any]
    deadline: Deadline
    conversation: Any = None
    earlier: Sequence[Any] = ()
    began: float = field(default_factory=time.perf_counter)
    steps: list[Step] = field(default_factory=list)
    repeats: Repeats = field(default_factory=Repeats)
    window: WindowWatch = field(default_factory=WindowWatch)
    malformed: int = 0
    most_repeats: int = 0
    last_text: str = ""
    approve: Approve | None = None
    status: Status | None = None
    answer: str | None = None
    step_began: float = 0.0


class ReActAgent:
    """Thinks, acts and observes until it finishes or a limit ends the run.

    To use it, `run`, `stream`, `arun` and `astream` are all there is; the loop is `_run`, and what follows it
    are the loop's pieces.

    Args:
        llm_client: the model; anything with `think(messages, **options)`, see `llm`.
        tool_executor: the tools.
        max_steps: model calls at most; an unreadable reply counts too.
        prompt: language, examples, instructions, template; the client's own or the usual one if None.
        time_limit: seconds for a whole run, the asking of `approve` not counted; None for no limit.
        max_malformed: unreadable replies in a row that end the run.
        observation_limit: characters of a tool's result that the model reads.
        history_budget: estimated tokens of steps in the prompt; over it the oldest are dropped.
        approve: asked before each call; True runs it, False or words refuse it, and the model reads the
            words.
        best_effort: at the step limit, ask once more for the best answer so far.
        check_answer: asked before an answer is taken; None or True accept, False or words send the model
            back.

    Raises:
        ValueError: an option that can't be used.
    """

    def __init__(self, llm_client: Any, tool_executor: ToolExecutor, max_steps: int = 5, *,
                 prompt: Prompt | None = None, time_limit: float | None = None, max_malformed: int = 3,
                 observation_limit: int = 4_000, history_budget: int = 16_000, approve: Approve | None = None,
                 best_effort: bool = False, check_answer: CheckAnswer | None = None) -> None:
        if not callable(getattr(llm_client, "think", None)):
            raise ValueError("llm_client needs a method think(messages), such as HelloAgentsLLM has")
        if not isinstance(tool_executor, ToolExecutor):
            raise ValueError(f"tool_executor must be a ToolExecutor, not {type(tool_executor).__name__}")
        for name, asked in {"approve": approve, "check_answer": check_answer}.items():
            if asked is not None and not callable(asked):
                raise ValueError(f"{name} is a function that is asked each time, not {asked!r}")
        if prompt and not isinstance(prompt, Prompt):
            raise ValueError(f"prompt must be a Prompt, such as Prompt(instructions=...), not {prompt!r:.60}")
        Deadline(time_limit)
        self.llm, self.tools = llm_client, tool_executor
        self.prompt = prompt or getattr(llm_client, "prompt", None) or Prompt()
        self.max_steps = whole_number("max_steps", max_steps, 1)
        self.max_malformed = whole_number("max_malformed", max_malformed, 1)
        self.observation_limit = whole_number("observation_limit", observation_limit, 1)
        self.history_budget = whole_number("history_budget", history_budget, 1)
        self.time_limit, self.best_effort = time_limit, best_effort
        self.approve, self.check_answer = approve, check_answer

    # --- the three ways to run it

    def run(self, question: str, *, verbose: bool = True, conversation: Any = None,
            on_event: Callable[[Event], None] | None = None) -> Result:
        """Run to the end and return the result; steps are printed as they happen unless `verbose` is False.

        Args:
            question: what to answer.
            verbose: print the run with `console.Printer`.
            conversation: earlier turns, which the model reads; an answer is added to it.
            on_event: called with each event, in place of the printer.

        Raises:
            ValueError: the question is empty, or the conversation is none.
            ModelError: the model's service failed; `error.result` holds what was done until then.
        """
        if on_event is None and verbose:
            from .console import Printer

            on_event = Printer()
        listeners = [] if on_event is None else [on_event]
        return drain(self.stream(question, conversation=conversation), *listeners)

    def stream(self, question: str, *, conversation: Any = None) -> Generator[Event, None, None]:
        """The run as a generator of events; the last one is always `RunEnded`."""
        return self._run(self.begin(question, conversation))

    async def arun(self, question: str, *, conversation: Any = None,
                   on_event: Callable[[Event], None] | None = None) -> Result:
        """`run` for asynchronous code: the same loop in a worker thread; silent without `on_event`."""
        async for event in self.astream(question, conversation=conversation):
            if on_event is not None:
                on_event(event)
        assert isinstance(event, RunEnded)
        return event.result

    def astream(self, question: str, *, conversation: Any = None) -> AsyncIterator[Event]:
        """`stream` for asynchronous code."""
        return iterate_in_thread(self.stream(question, conversation=conversation))

    # --- the loop, and its pieces: `ReActWorkflow` has them as steps

    def _run(self, run: Run) -> Generator[Event, None, None]:
        failure: BaseException | None = None
        try:
            yield RunStarted(run.question, run.tools.names, self.max_steps)
            while self.goes_on(run):
                reply = yield from self.ask(run, self.prepare(run))
                turn = yield from self.decide(run, reply)
                yield from self.observe(run, reply, turn)
            result = self.end(run)
        except GeneratorExit:
            raise
        except BaseException as error:  # noqa: BLE001  whatever ends a run, its last event tells of it first
            failure = self.fail(run, error)
            result = self.end(run, failure)
        yield RunEnded(result)
        if failure is not None:
            raise failure

    def begin(self, question: str, conversation: Any = None) -> Run:
        """A run that has done nothing yet.

        Raises:
            ValueError: the question is empty, or the conversation is none.
        """
        if not isinstance(question, str) or is_blank(question):
            raise ValueError("The question is empty.")
        if conversation is not None and not hasattr(conversation, "turns"):
            raise ValueError(f"conversation must be a Conversation, not {type(conversation).__name__}")
        history = History[Any](self.history_budget, self.entry_text, self.cut_entry)
        earlier = self.earlier(conversation) if conversation is not None else ()
        return Run(question, self.tools.for_run(), history, Deadline(self.time_limit), conversation, earlier,
                   approve=self.approve)

    def goes_on(self, run: Run) -> bool:
        """Whether another step is due. At the step limit that may be the last call, for the best answer."""
        run.step_began = time.perf_counter()
        if run.status is None and self.is_last(run) and (run.deadline.passed or not self.best_effort):
            run.status = "max_steps"
        elif run.status is None and run.deadline.passed:
            run.status = "timed_out"
        return run.status is None

    def is_last(self, run: Run) -> bool:
        """Whether all steps are used up, so that the model is only asked for its best answer."""
        return len(run.steps) >= self.max_steps

    def prepare(self, run: Run) -> list[Message]:
        """The model's input for the next step."""
        messages = self.messages(run)
        return self.with_last_call(messages, run) if self.is_last(run) else messages

    def ask(self, run: Run, messages: list[Message]) -> Generator[Event, None, Reply]:
        """One model call; a prompt that is too long for the model is shortened and sent once more."""
        try:
            return (yield from self._send(run, messages))
        except ContextLengthError:
            if not run.history.shrink():
                if not run.earlier:
                    raise
                run.earlier = run.earlier[len(run.earlier) // 2 + 1:]
        yield Notice("The prompt was too long for the model: the oldest part is left out.", restart=True)
        return (yield from self._send(run, self.prepare(run)))

    def _send(self, run: Run, messages: list[Message]) -> Generator[Event, None, Reply]:
        yield StepStarted(len(run.steps) + 1, tuple(messages))
        reply: Reply | None = None
        for part in llm.ask(self.llm, messages, timeout=run.deadline.left, **self.options(run)):
            if isinstance(part, Reply):
                reply = part
            if run.deadline.passed and reply is None:
                raise ModelTimeoutError(f"no whole reply within the run's {self.time_limit:g} seconds")
            yield part
        assert reply is not None
        run.last_text = reply.text
        size = sum(len(str(message.get("content") or "")) for message in messages)
        if warning := run.window.suspicion(size, reply.usage.prompt_tokens):
            yield Notice(warning)
        return reply

    def decide(self, run: Run, reply: Reply) -> Generator[Event, None, Turn]:
        """What the reply says: a thought, and then calls, an ending or what was wrong with it."""
        turn = self.read(reply, run)
        if self.is_last(run) and isinstance(turn.move, Action):
            turn = replace(turn, move=Malformed("conflict", "No step was left to run this call."), rest=())
        if turn.thought:
            yield Thought(turn.thought)
        yield from self.pick(turn) if isinstance(turn.move, Action) else (turn.move,)
        return turn

    def observe(self, run: Run, reply: Reply, turn: Turn) -> Generator[Event, None, None]:
        """Run the calls, or take the ending, or say what was malformed; then the step is done."""
        calls: tuple[Action, ...] = ()
        observations: tuple[Observation, ...] = ()
        if self.is_last(run):
            self._take_last(run, reply, turn)
        elif isinstance(turn.move, Finish):
            observations = self._objections(turn.move.answer)
            if not observations:
                run.status, run.answer = "finished", turn.move.answer
        elif isinstance(turn.move, Malformed):
            observations = (Observation(turn.move.note, ok=False, error="malformed"),)
        else:
            calls = self.pick(turn)
            observations = self._act(run, calls, turn)
        yield from observations
        seconds = time.perf_counter() - run.step_began
        if self.record(run, Step(len(run.steps) + 1, turn.thought, calls, observations, reply, seconds)):
            yield Notice("The history grew past its budget: the oldest steps are no longer sent.")

    def record(self, run: Run, step: Step) -> int:
        """Add a finished step to the run.

        Returns:
            How many old steps the next prompt leaves out to make room for it.
        """
        malformed = any(seen.error == "malformed" for seen in step.observations)
        run.malformed = run.malformed + 1 if malformed else 0
        run.steps.append(step)
        if run.malformed == self.max_malformed:
            run.status = "malformed"
        elif run.most_repeats >= 3:
            run.status = "repeating"
        return run.history.add(self.render(step)) if run.status is None else 0

    def fail(self, run: Run, error: BaseException) -> BaseException | None:
        """Note that `error` ended the run.

        Returns:
            The error itself, or None if the run's own time limit was behind it.
        """
        timed_out = isinstance(error, ModelTimeoutError) and run.deadline.passed
        stopped = isinstance(error, KeyboardInterrupt)
        run.status, run.answer = "timed_out" if timed_out else "interrupted" if stopped else "failed", None
        return None if timed_out else error

    def end(self, run: Run, failure: BaseException | None = None) -> Result:
        """The result of a run that does not go on; an answer joins the conversation, `failure` carries it."""
        assert run.status is not None
        name = "" if isinstance(failure, HelloReactError) else f"{type(failure).__name__}: "
        steps = f"{self.max_steps} step{'s' if self.max_steps > 1 else ''}"
        reason = REASONS[run.status].format(max_steps=steps, max_malformed=self.max_malformed,
                                            time_limit=self.time_limit, error=f"{name}{failure}")
        seconds, usage = time.perf_counter() - run.began, Usage.total(step.usage for step in run.steps)
        result = Result(run.question, run.answer, run.status, reason, tuple(run.steps), seconds, usage,
                        run.last_text)
        if failure is not None:
            failure.result = result  # type: ignore[attr-defined]
        elif run.conversation is not None and run.answer is not None:
            self.remember(run, run.answer)
        return result

    def _act(self, run: Run, calls: Sequence[Action], turn: Turn) -> tuple[Observation, ...]:
        """Run the calls and return one observation for each."""
        observations, counts = [], dict[tuple[str, str, str], int]()
        for call, seen in zip(calls, self.execute(run, calls)):  # noqa: B905
            key = (call.tool, call.input, seen.text)  # the same call twice in one reply counts once
            count = counts[key] = counts.get(key) or run.repeats.seen(*key)
            run.most_repeats = max(run.most_repeats, count)
            observations.append(replace(seen, text=f"{seen.text}\n({REPEAT_NOTE})") if count > 1 else seen)
        if left := turn.rest[len(calls) - 1:]:
            last, names = observations[-1], ", ".join(f"{call.tool}[{clip(call.input, 60)}]" for call in left)
            ran = last.error not in ("refused", "bad_input", "unknown_tool")
            note = "Only the first action was run. Not run" if ran else "Not run either"
            note = f"({note}: {names}. Write one action at a time.)"
            observations[-1] = replace(last, text=f"{last.text}\n{note}")
        return tuple(observations)

    def _call_tool(self, run: Run, call: Action) -> Observation:
        return self._refusal(run, call) or run.tools.execute(
            call.tool, call.input, timeout=run.deadline.left, limit=self.observation_limit)

    def _refusal(self, run: Run, call: Action) -> Observation | None:
        """That the user does not want this call, if they are asked; the run's time stands still meanwhile."""
        left, verdict = run.deadline.left, run.approve(call) if run.approve else True
        run.deadline = Deadline(left)
        words = f": {verdict}" if isinstance(verdict, str) and verdict.strip() else "."
        text = f"{call.tool} was not run: the user refused it{words}"
        return None if verdict is True else Observation(text, False, call.tool, "refused")

    def _objections(self, answer: str) -> tuple[Observation, ...]:
        verdict = self.check_answer(answer) if self.check_answer else None
        if verdict is None or verdict is True:
            return ()
        words = verdict if isinstance(verdict, str) else "it does not pass the check"
        return (Observation(f"This answer was not accepted: {words}", ok=False, error="refused"),)

    def _take_last(self, run: Run, reply: Reply, turn: Turn) -> None:
        """The best answer, given when all steps were used up."""
        no_action = isinstance(turn.move, Malformed) and turn.move.reason == "no_action"
        if isinstance(turn.move, Finish):
            run.answer = turn.move.answer
        elif no_action and not turn.thought and not reply.cut:
            run.answer = plain_words(reply.text, run.tools.names) or None
        run.status = "best_effort" if run.answer else "max_steps"

    # --- what ToolCallingAgent does differently

    def messages(self, run: Run) -> list[Message]:
        """The messages of the next model call."""
        left_out = f"[{run.history.dropped} earlier steps were left out]\n" if run.history.dropped else ""
        history = left_out + "".join(run.history.entries)
        return self.prompt.messages(run.question, run.tools.describe(), history, run.earlier)

    def earlier(self, conversation: Any) -> Sequence[Any]:
        """The earlier turns that every prompt of a run shows."""
        return tuple(conversation.turns())

    def remember(self, run: Run, answer: str) -> None:
        """Add the answered question to the conversation."""
        run.conversation.add(run.question, answer)

    def with_last_call(self, messages: list[Message], run: Run) -> list[Message]:
        """The same messages, asking for the best answer now."""
        words = LAST_CALL[self.prompt.language(run.question)]
        return [*messages[:-1], {**messages[-1], "content": messages[-1]["content"] + words}]

    def options(self, run: Run) -> dict[str, Any]:
        """Options of the model call."""
        return {"stop": llm.OBSERVATION_STOPS}

    def read(self, reply: Reply, run: Run) -> Turn:
        """What the reply says."""
        return parse(reply.text, run.tools.names, cut=reply.cut)

    def pick(self, turn: Turn) -> tuple[Action, ...]:
        """Which of the reply's calls are run: the first."""
        assert isinstance(turn.move, Action)
        return (turn.move,)

    def execute(self, run: Run, calls: Sequence[Action]) -> Sequence[Observation]:
        """One observation for each call, in order."""
        return [self._call_tool(run, call) for call in calls]

    def render(self, step: Step) -> Any:
        """A finished step as an entry of the history."""
        return render_step(step)

    def entry_text(self, entry: Any) -> str:
        """The text of an entry, to estimate its tokens."""
        return str(entry)

    def cut_entry(self, entry: Any, share: float) -> Any:
        """An entry that is too long for the budget alone, cut to about `share` of its length."""
        return clip(entry, max(1, int(len(entry) * share))) + "\n"

