"""A hundred questions at once: one agent, a hundred threads, a server that takes 2 s a reply. Run by hand.

    python tests/benchmarks/threads.py

Each question takes one tool step and an answer, streamed over their 2 s. Ideal is as long as one question
alone has to take: two replies. The bare loop over the openai client does the same for comparison. The exit
status is 1 if the target of README.md is missed.
"""

from __future__ import annotations

import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from plain_loops import Run, text_loop
from scripted_server import DONE, Server, echo, question

from hello_react import HelloAgentsLLM, ReActAgent, ToolExecutor

THREADS = 100
SECONDS = 2.0
TARGET = 1.2


def all_at_once(run: Run) -> float:
    """Seconds until every thread has its answer."""
    with ThreadPoolExecutor(THREADS) as pool:
        began = time.perf_counter()
        answers = list(pool.map(run, [question(1)] * THREADS))
        spent = time.perf_counter() - began
    assert answers == [DONE] * THREADS
    return spent


def main() -> int:
    tools = ToolExecutor()
    tools.register_tool("Echo", "Repeats the text.", echo)
    ideal = 2 * SECONDS
    with Server(SECONDS) as server:
        agent = ReActAgent(HelloAgentsLLM("scripted", "none", server.url, 60), tools)
        programs = {"bare loop": text_loop(server.url, echo),
                    "ReActAgent": lambda asked: str(agent.run(asked, verbose=False))}
        print(f"Python {sys.version.split()[0]}, {THREADS} questions at once, ideal {ideal:.1f} s")
        for name, run in programs.items():
            spent = all_at_once(run)
            connections = server.figures()["connections"]
            print(f"{name:12}{spent:6.2f} s, {spent / ideal:.2f} of ideal, {connections} connections")
    return int(spent / ideal > TARGET)


if __name__ == "__main__":
    sys.exit(main())
