"""A thousand runs in one process: what they leave in memory. Run by hand, on Linux.

    python tests/benchmarks/memory.py

Runs of three tool steps and an answer against a scripted server, streaming. Printed after each hundred runs
are the process's memory and the number of objects that the garbage collector knows. Flat means that from run
100 to run 1,000 memory grows by at most 2 % and the objects by at most 200; if not, the exit status is 1.
"""

from __future__ import annotations

import gc
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from scripted_server import DONE, Server, echo, question

from hello_react import HelloAgentsLLM, ReActAgent, ToolExecutor

RUNS = 1_000


def kilobytes() -> int:
    """Memory of this process that is in RAM now."""
    for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1])
    raise OSError("no VmRSS in /proc/self/status")


def main() -> int:
    tools = ToolExecutor()
    tools.register_tool("Echo", "Repeats the text.", echo)
    marks = []
    with Server() as server:
        agent = ReActAgent(HelloAgentsLLM("scripted", "none", server.url, 60), tools)
        for number in range(1, RUNS + 1):
            assert str(agent.run(question(3), verbose=False)) == DONE
            if number % 100 == 0:
                server.figures()  # empties the server's own record
                gc.collect()
                marks.append((kilobytes(), len(gc.get_objects())))
                print(f"{number:5} runs{marks[-1][0] / 1024:8.1f} MB{marks[-1][1]:10,} objects", flush=True)
    (early, some), (late, more) = marks[0], marks[-1]
    print(f"growth from run 100 to run {RUNS:,}: {late / early - 1:+.1%} of memory, {more - some:+} objects")
    return int(late > 1.02 * early or more - some > 200)


if __name__ == "__main__":
    sys.exit(main())
