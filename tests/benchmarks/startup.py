"""What starting costs: an import, --help, the first answer, and memory. Run by hand.

    python tests/benchmarks/startup.py [ROUNDS]

Each program runs in a process of its own, in turn within each round. Times are from the start of the process
to its first output, or to its end without one, the least of all rounds; peak memory is the median. The bare
loop is `plain_loops.py`: both ask a scripted server one question of one step, streaming. The exit status is 1
if a target of README.md is missed.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

from scripted_server import DONE, Server, question

ROOT = Path(__file__).resolve().parents[2]
AGENT = """
import sys
from hello_react import HelloAgentsLLM, ReActAgent, ToolExecutor
tools = ToolExecutor()
tools.register_tool("Echo", "Repeats the text.", lambda text: f"heard {text}")
agent = ReActAgent(HelloAgentsLLM("scripted", "none", sys.argv[1], 60), tools)
print(agent.run(sys.argv[2], verbose=False), flush=True)
"""


def run(arguments: list[str]) -> tuple[float, int, str]:
    """Seconds to the first line of output, or to the end without one; peak memory; the output."""
    began = time.perf_counter()
    command = [sys.executable, *arguments]
    environ = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    with subprocess.Popen(command, cwd=ROOT, env=environ, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        output = process.stdout.readline()
        seconds = time.perf_counter() - began
        output += process.stdout.read()
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0, output
    return seconds, usage.ru_maxrss, output


def main(rounds: int) -> int:
    with Server() as server:
        programs = {
            "python -c pass": ["-c", "pass"],
            "import hello_react": ["-c", "import hello_react"],
            "hello-react --help": ["-m", "hello_react", "--help"],
            "bare loop, one answer": ["tests/benchmarks/plain_loops.py", server.url, question(1)],
            "ReActAgent, one answer": ["-c", AGENT, server.url, question(1)],
        }
        seconds: dict[str, list[float]] = {name: [] for name in programs}
        memory: dict[str, list[int]] = {name: [] for name in programs}
        for number in range(rounds + 1):
            for name, arguments in programs.items():
                spent, peak, output = run(arguments)
                assert not name.endswith("answer") or output.strip() == DONE, output
                if number:  # the first round writes the bytecode
                    seconds[name].append(spent)
                    memory[name].append(peak)
    least = {name: min(values) for name, values in seconds.items()}
    peaks = {name: statistics.median(values) for name, values in memory.items()}
    nothing, imported, helped, bare, agent = programs
    print(f"Python {sys.version.split()[0]}, {rounds} rounds")
    for name in programs:
        median = statistics.median(seconds[name])
        print(f"{name:26}{least[name] * 1e3:8.1f} ms least{median * 1e3:8.1f} ms median")
    missed = 0
    for what, ratio, target in (
            ("import, of python -c pass", least[imported] / least[nothing], 1.3),
            ("--help, of python -c pass", least[helped] / least[nothing], 4.0),
            ("first answer, of the bare loop", least[agent] / least[bare], 1.05),
            ("peak memory, of the bare loop", peaks[agent] / peaks[bare], 1.1)):
        print(f"{what:32}{ratio:6.2f}  (at most {target})")
        missed += ratio > target
    return int(missed > 0)


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else 15))
