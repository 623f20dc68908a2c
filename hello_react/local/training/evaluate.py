"""Measure the embedded model: `python -m hello_react.local.training.evaluate` prints the table.

Asks the real server through the real agent: synthetic questions from held-out phrasings, hand-written ones
over the shipped encyclopedia and calculator, tools that training never saw (each among two others), and
questions that have no answer here. Compares the model as it comes, with worked examples in the prompt, and
with the adapter. `--speed` prints times instead.
"""

from __future__ import annotations

import argparse
import copy
import itertools
import json
import re
import statistics
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import requests

from ...agent import ReActAgent
from ...arguments import bind
from ...errors import ToolError
from ...events import Message, Result, Step, StepStarted
from ...llm import HelloAgentsLLM
from ...memory import Conversation
from ...parser import Malformed, parse
from ...prompt import Prompt
from ...toolbox.calculator import calculate
from ...toolbox.encyclopedia import Encyclopedia
from ...tools import Tool, ToolExecutor
from ..fetch import fetch_weights
from ..prompt import ADAPTER, trained_prompt
from ..serve import EmbeddedLLM, LocalServer
from .kits import Stub
from .plans import NOT_FOUND, Run
from .trajectories import groups
from .unseen import UNSEEN

STEPS = 8
"""The step limit of each question."""


@dataclass(frozen=True)
class Question:
    """A question, its tools, and whether a result is right."""

    text: str
    tools: ToolExecutor
    is_right: Callable[[Result], bool]
    kind: str = ""
    conversation: tuple[tuple[str, str], ...] = ()


def plain(answer: str | None) -> str:
    """An answer as it is compared: no case, no grouping of thousands, no full stop at its end."""
    text = re.sub(r"(?<=\d),(?=\d{3})", "", (answer or "").casefold().strip())
    return text.rstrip(".")


def holds(answer: str | None, wanted: str) -> bool:
    """Whether the answer holds one of the wanted ones (parted by "/") as whole words."""
    return any(
        re.search(rf"(?<![\w.,]){re.escape(plain(one))}(?![\w]|[.,]\d)", plain(answer))
        for one in wanted.split("/")
    )


def shipped_tools() -> ToolExecutor:
    """Search, Lookup and Calculator, as the command line has them."""
    encyclopedia, tools = Encyclopedia(), ToolExecutor()
    for function, name in (
        (encyclopedia.search, "Search"),
        (encyclopedia.lookup, "Lookup"),
        (calculate, "Calculator"),
    ):
        tools.add(Tool.from_function(function, name))
    return tools


def _lines(name: str) -> list[str]:
    text = Path(__file__).with_name(name).read_text(encoding="utf-8")
    return [line for line in text.splitlines() if line.strip() and not line.startswith("#")]


def real() -> list[Question]:
    """The hand-written questions."""
    tools, found, kind = shipped_tools(), list[Question](), ""
    for line in _lines("questions.txt"):
        if line.startswith("= "):
            kind = line[2:]
        else:
            text, wanted = line.rsplit(" | ", 1)
            found.append(Question(text, tools, _holds(wanted), kind))
    return found


def _holds(wanted: str) -> Callable[[Result], bool]:
    return lambda result: holds(result.answer, wanted)


def out_of_reach() -> list[Question]:
    """Questions that nothing here can answer."""
    tools = shipped_tools()
    return [
        Question(text, tools, lambda result: "could not find the answer" in plain(result.answer))
        for text in _lines("reach.txt")
    ]


def synthetic(count: int, seed: int = 77) -> list[Question]:
    """Generated questions from held-out phrasings and passages; right is the exact answer."""
    runs = [
        run
        for group in itertools.islice(groups(seed, held_out=True, size=5), -(-count // 5))
        for run in group.runs
    ]
    return [_synthetic(run) for run in runs[:count]]


def _synthetic(run: Run) -> Question:
    tools = ToolExecutor()
    for tool in run.tools:
        replayed = copy.copy(tool)
        if tool.name in run.made_up:
            said = [
                (bind(tool.name, tool.parameters, given)[1], seen)
                for name, given, seen in run.replay
                if name == tool.name
            ]
            replayed.function = _Replay(said)
        tools.add(replayed)
    return Question(
        run.question,
        tools,
        lambda result: plain(result.answer) == plain(run.answer),
        run.kind,
        run.conversation,
    )


class _Replay:
    """Gives what the tool gave when the run was made up; the last result again and again."""

    def __init__(self, said: list[tuple[dict[str, Any], str]]) -> None:
        self.said, self.at = said, 0

    def for_run(self) -> _Replay:
        return _Replay(self.said)

    def __call__(self, **values: Any) -> str:
        fitting = [seen for wanted, seen in self.said if wanted == values]
        if not fitting:
            return "Nothing found."
        self.at += 1
        return fitting[min(self.at, len(fitting)) - 1]


def unseen() -> list[Question]:
    """Tools that training never saw: the right one must be called with the right input, at once."""
    tools = [_unseen_tool(number) for number in range(len(UNSEEN))]
    found = []
    for number, one in enumerate(UNSEEN):
        others = [tools[(number + 7) % len(tools)], tools[(number + 13) % len(tools)]]
        executor = ToolExecutor()
        for tool in sorted([tools[number], *others], key=lambda tool: tool.description):
            executor.add(tool)
        found.append(Question(one.question, executor, _called(tools[number], one.input)))
    return found


def _unseen_tool(number: int) -> Tool:
    one = UNSEEN[number]
    stub = Stub(
        ",".join(f"{name}:{kind.__name__}" for name, kind in (one.parameters or {}).items())
        or ("-" if one.parameters is not None else "")
    )
    stub.result = one.result
    return Tool(one.name, one.description, stub.function, timeout=None)


def _called(tool: Tool, wanted: Any) -> Callable[[Result], bool]:
    text = wanted if isinstance(wanted, str) else json.dumps(wanted)
    right = bind(tool.name, tool.parameters, text)

    def is_right(result: Result) -> bool:
        calls = [call for step in result.steps for call in step.calls]
        if not calls or calls[0].tool != tool.name:
            return False
        try:
            return bind(tool.name, tool.parameters, calls[0].input) == right
        except ToolError:
            return False

    return is_right


@dataclass
class Score:
    """What came of a set of questions."""

    right: int = 0
    asked: int = 0
    steps: int = 0
    malformed: int = 0
    repeating: int = 0
    seconds: list[float] = field(default_factory=list)
    kinds: list[tuple[str, bool]] = field(default_factory=list)

    def by_kind(self) -> list[str]:
        """How many were right, by the kind of question."""
        totals = Counter(kind for kind, _ in self.kinds)
        rights = Counter(kind for kind, right in self.kinds if right)
        return [f"{kind} {rights[kind]} of {total}" for kind, total in sorted(totals.items()) if kind]


def measure(
    client: Any,
    questions: Sequence[Question],
    prompt: Prompt,
    say: Callable[[str], object] = lambda text: None,
) -> Score:
    """Ask them all."""
    score = Score()
    for question in questions:
        talk = Conversation()
        for asked, answered in question.conversation:
            talk.add(asked, answered)
        agent = ReActAgent(client, question.tools, max_steps=STEPS, prompt=prompt)
        result = agent.run(question.text, verbose=False, conversation=talk)
        right = question.is_right(result)
        score.asked += 1
        score.right += right
        score.kinds.append((question.kind, right))
        score.steps += len(result.steps)
        score.malformed += sum(
            isinstance(parse(step.reply.text, question.tools.names, cut=step.reply.cut).move, Malformed)
            for step in result.steps
        )
        score.repeating += result.status == "repeating"
        score.seconds += [step.seconds for step in result.steps]
        if not right:
            calls = " ".join(f"{call.tool}[{call.input}]" for step in result.steps for call in step.calls)
            say(f"wrong: {question.kind}: {question.text} -> {calls} -> {result}")
    return score


FEW_SHOT = (
    "Question: How high is Ben Nevis?\nThought: I need the height of Ben Nevis.\nAction: Search[Ben Nevis]\n"
    "Observation: Ben Nevis: Ben Nevis is the highest mountain in the United Kingdom, 1,345 m high.\n"
    "Thought: The height of Ben Nevis is 1,345 m.\nAction: Finish[1,345 m]",
    "Question: What is 6 * 7?\nThought: I have to calculate this.\nAction: Calculator[6 * 7]\n"
    "Observation: 42\n"
    "Thought: The result is 42.\nAction: Finish[42]",
    f"Question: What is in my bag?\nThought: No tool can tell this.\nAction: Finish[{NOT_FOUND}]",
)


def rows(
    part: int, say: Callable[[str], object], adapter: Path, modes: Sequence[str]
) -> Iterator[tuple[str, dict[str, Score]]]:
    """Each way of asking, with its scores by set.

    Args:
        part: every how-manyth question is asked of the bare model, which is slow and seldom right.
    """
    sets = {
        "synthetic": synthetic(200),
        "real": real(),
        "unseen tools": unseen(),
        "out of reach": out_of_reach(),
    }
    weights = fetch_weights(say)
    ways = [
        ("as it comes", trained_prompt(), None, part),
        ("few-shot", Prompt(lang="en", examples=FEW_SHOT), None, part),
        ("fine-tuned", trained_prompt(), adapter, 1),
    ]
    for name, prompt, lora, every in ways:
        if name in modes:
            with LocalServer(weights, lora) as server:
                asks = EmbeddedLLM if lora else HelloAgentsLLM
                client = asks(
                    server.model, server.api_key, server.url, timeout=300, temperature=0, max_tokens=256
                )
                yield (
                    name,
                    {
                        title: measure(client, questions[::every], prompt, say)
                        for title, questions in sets.items()
                    },
                )


def speed(adapter: Path, say: Callable[[str], object]) -> Iterator[str]:
    """Lines on how fast the model is here: its start, a step, what is read again, and the adapter's cost."""
    weights = fetch_weights(say)
    began = time.monotonic()
    with LocalServer(weights, adapter) as server, LocalServer(weights) as bare:
        yield f"both servers up, with and without adapter: {time.monotonic() - began:.1f} s"
        client = EmbeddedLLM(server.model, server.api_key, server.url, timeout=300, max_tokens=256)
        agent = ReActAgent(client, shipped_tools(), max_steps=STEPS, prompt=trained_prompt())
        steps = list[Step]()
        for question in (
            "How much taller is Mount Everest than K2?",
            "Who wrote Dracula?",
            "What is 17 * 23?",
        ):
            steps += agent.run(question, verbose=False).steps
        median = statistics.median(step.seconds for step in steps)
        yield f"seconds a step, median of {len(steps)}: {median:.2f}"
        agent = ReActAgent(client, shipped_tools(), max_steps=STEPS, prompt=trained_prompt())
        prompts = [
            event.messages
            for event in agent.stream("Who is older, Isaac Newton or Galileo Galilei?")
            if isinstance(event, StepStarted)
        ]
        _timings(server, [{"role": "user", "content": "Hello"}])
        read = [_timings(server, list(messages)) for messages in prompts]
        sizes = [one["cache_n"] + one["prompt_n"] for one in read]
        again = sum(one["prompt_n"] for one in read[1:]) / (sizes[-1] - sizes[0])
        yield f"prompt tokens read at steps 2 to {len(read)}, of those added: {again:.2f}"
        costs = {
            one: min(_timings(one, list(prompts[-1]), 64)["predicted_per_token_ms"] for _ in range(5))
            for one in (server, bare, server, bare)
        }
        yield f"time of a token with adapter, of the bare model's: {costs[server] / costs[bare]:.2f}"


def _timings(server: LocalServer, messages: Sequence[Message], tokens: int = 1) -> dict[str, float]:
    """What the server tells of one request: tokens taken from its cache, read and written, and times."""
    body: Any = {"messages": messages, "temperature": 0, "max_tokens": tokens, "ignore_eos": True}
    key = {"Authorization": f"Bearer {server.api_key}"}
    answer = requests.post(f"{server.url}/chat/completions", json=body, headers=key, timeout=300)
    timings: dict[str, float] = answer.json()["timings"]
    return timings


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print the table."""
    parser = argparse.ArgumentParser(
        prog="python -m hello_react.local.training.evaluate", description=(__doc__ or "").split("\n\n")[0]
    )
    parser.add_argument(
        "--adapter", type=Path, default=ADAPTER, help="the adapter to measure (default: the shipped one)"
    )
    parser.add_argument(
        "--part",
        type=int,
        default=20,
        help="ask every Nth question of the model without adapter (default: 20)",
    )
    ways = ["as it comes", "few-shot", "fine-tuned"]
    parser.add_argument(
        "--only", nargs="+", choices=ways, default=ways, metavar="WAY", help=f"of: {'; '.join(ways)}"
    )
    parser.add_argument("--speed", action="store_true", help="measure times instead of answers")
    parser.add_argument("--verbose", action="store_true", help="show each wrong answer")
    options = parser.parse_args(arguments)
    say = (lambda text: sys.stderr.write(f"{text}\n")) if options.verbose else (lambda text: None)
    if options.speed:
        for line in speed(options.adapter, say):
            _line(line)
        return
    titles = "synthetic | real | unseen tools | out of reach | malformed steps | repeating | s per step"
    _line(f"| SmolLM2-135M-Instruct | {titles} |\n|---|---|---|---|---|---|---|---|")
    for name, scores in rows(options.part, say, options.adapter, options.only):
        every = list(scores.values())
        steps, asked = sum(one.steps for one in every), sum(one.asked for one in every)
        cells = [
            name,
            *(f"{one.right} of {one.asked}" for one in every),
            f"{sum(one.malformed for one in every) / steps:.1%}",
            f"{sum(one.repeating for one in every) / asked:.1%}",
            f"{statistics.median(itertools.chain(*(one.seconds for one in every))):.2f}",
        ]
        _line(f"| {' | '.join(cells)} |")
        for title, score in scores.items():
            say(f"{name}, {title}: {', '.join(score.by_kind())}")


def _line(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
