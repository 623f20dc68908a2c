"""What a step of the agents costs, next to bare loops over the openai client. Run by hand.

    python tests/benchmarks/step_overhead.py [ROUNDS]

A scripted server on loopback answers at once, so a run's time is all the client's. Runs of 20 steps,
streaming, the programs in turn within each round, so that a noisy moment hits all alike. The first ratio is
the median of the rounds' ratios, the second that of the fastest rounds. Printed too, as the server counts
them: connections per run, and the least share of a prompt with which the next one begins. The exit status is
1 if a target of README.md is missed.
"""

from __future__ import annotations

import statistics
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from plain_loops import Run, text_loop, tools_loop
from scripted_server import DONE, Server, echo, question

from hello_react import HelloAgentsLLM, ReActAgent, ToolExecutor
from hello_react.tool_calling import ToolCallingAgent

STEPS = 20
TARGET = 0.45


def agent(kind: type[ReActAgent], url: str) -> Run:
    tools = ToolExecutor()
    tools.register_tool("Echo", "Repeats the text.", echo)
    made = kind(HelloAgentsLLM("scripted", "none", url, 60), tools, STEPS + 1)
    return lambda asked: str(made.run(asked, verbose=False))


def main(rounds: int) -> int:
    with Server() as server:
        programs = {
            "text: bare loop": text_loop(server.url, echo), "text: ReActAgent": agent(ReActAgent, server.url),
            "tools: bare loop": tools_loop(server.url, echo),
            "tools: ToolCallingAgent": agent(ToolCallingAgent, server.url),
        }
        shape = {}
        for name, run in programs.items():  # also warms up
            assert run(question(STEPS)) == DONE, name
            server.figures()
            run(question(STEPS))
            shape[name] = server.figures()
        seconds: dict[str, list[float]] = {name: [] for name in programs}
        for _ in range(rounds):
            for name, run in programs.items():
                began = time.perf_counter()
                run(question(STEPS))
                seconds[name].append((time.perf_counter() - began) / (STEPS + 1))
    missed = 0
    print(f"Python {sys.version.split()[0]}, {rounds} rounds, {STEPS} tool steps and an answer a run")
    print(f"{'':26}{'ms/call':>8}{'ratio':>8}{'least ms':>10}{'ratio':>8}{'connections':>13}{'prefix':>8}")
    for name, values in seconds.items():
        bare = seconds[name.partition(":")[0] + ": bare loop"]
        ratio = statistics.median(mine / other for mine, other in zip(values, bare, strict=True))
        counted = shape[name]
        print(f"{name:26}{statistics.median(values) * 1e3:8.2f}{ratio:8.2f}"
              f"{min(values) * 1e3:10.2f}{min(values) / min(bare):8.2f}"
              f"{counted['connections']:13}{counted['prefix']:8.3f}")
        if values is not bare:
            missed += ratio > TARGET or counted["connections"] > 1 or counted["prefix"] < 1
    return int(missed > 0)


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else 15))
