"""How long the parser takes over a megabyte of hostile text. Run by hand.

    python tests/benchmarks/parser_speed.py [SIZE]

Each pattern is blown up to SIZE characters (1,000,000) and read four ways: with tools' names and without, cut
off, and by the documented format alone. Printed are processor seconds for the slowest way, and what twice the
size costs (2 is linear). The exit status is 1 if a pattern takes more than 0.2 s a megabyte, or grows faster
than 3 times. A busy machine slows all patterns alike: the last line is a fixed piece of work to compare with.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from hello_react.parser import parse

TOOLS = ["Search", "Lookup", "Calculator"]
SECONDS, GROWTH = 0.2, 3.0

# (before, what is repeated, after)
HOSTILE: dict[str, tuple[str, str, str]] = {
    # brackets
    "open brackets": ("Action: Search", "[", ""),
    "pairs in an open bracket": ("Action: Search[", "[]", ""),
    "open, then close": ("Action: Search[", "[x]", "]"),
    "one bracket too many": ("Action: Finish[", "] ", "x]"),
    "finish never balanced": ("Action: Finish[", "[ ", "]"),
    "round brackets": ("Action: Search", "(", ""),
    "full-width brackets": ("Action: Search", "【", ""),
    "braces": ("Action: Search ", "{", ""),
    "calls that never close": ("", "Action: Search[\n", ""),
    "bare calls that never close": ("", "Search[\n", ""),
    "listed names": ("Action: ", "[Search", ""),
    "listed names, closed": ("Action: ", "[", "]" * 1000),
    # quotes
    "double quotes": ("Action: Search[", '"', ""),
    "double quotes, closed": ("Action: Search[", '"', "]"),
    "single quotes": ("Action: Search[", " 'a", "]"),
    "escaped quotes": ("Action: Search[", '\\"', "]"),
    "backslashes": ("Action: Search[", "\\", "]"),
    "quotes and brackets": ("Action: Search[", '"]"[', ""),
    # labels
    "thoughts": ("", "Thought: x\n", ""),
    "thoughts on one line": ("", "Thought:", ""),
    "actions": ("", "Action: Search[x]\n", ""),
    "no actions": ("", "Action: None\n", ""),
    "no actions, called": ("", "Action: None[x]\n", ""),
    "observations": ("", "Observation: x\n", ""),
    "lone observations": ("Action: Search[x]\n", "Observation\n", ""),
    "observations in brackets": ("", "Observation (", ""),
    "answers": ("", "Answer: \n", ""),
    "questions": ("", "Question: x\n", ""),
    "results": ("Action: Search[x]\n", "Result: x\n", ""),
    "inputs": ("Action: Search\n", "Action Input: x\n", ""),
    "reasons": ("Action: Search\n", "Action Reason: x\n", ""),
    "reasons between": ("", "Action: None\nAction Reason: x\n", ""),
    "label words": ("", "Action 1 ", ""),
    "label words and brackets": ("", "[Action](1) ", ""),
    "headings": ("", "### Action\n", ""),
    "boxes": ("", "【行动】", ""),
    "ornament": ("", "- * > # ", ""),
    "ornament lines": ("", "*\n", ""),
    "numbers": ("", "1. ", ""),
    "blanks": ("Action:", " ", "x"),
    "blanks before a bracket": ("Action: Search", " ", "[x]"),
    "blank lines": ("", "\n", ""),
    "zero-width signs": ("", "\u200b", "x"),
    "mid-line actions": ("Thought: ", "Action: Search[ ", ""),
    "mid-line calls": ("Thought: ", ". Action: Search[x] no ", ""),
    "mid-line negations": ("Thought: ", "never Action: Search[x]\n", ""),
    # thinking, tokens, fences
    "thinking opened": ("", "<think>", ""),
    "thinking closed": ("", "</think>", ""),
    "thinking pairs": ("", "<think></think>", "x"),
    "thinking lines": ("x\n", "</think>\n", ""),
    "drafts": ("", "Action: Search[x]\n", "</think>\n"),
    "drafts without calls": ("", "Action: x\n", "</think>\n"),
    "drafts left open": ("", "Action: Search[\n", "</think>\n"),
    "template tokens": ("", "<|im_end|>", ""),
    "template token lines": ("", "<|im_end|>\n", ""),
    "drafts and a turn's end": ("", "Action: x\n", "<|im_end|>\n"),
    "half tokens": ("", "<|im_end", ""),
    "roles": ("", "Assistant: ", ""),
    "fences": ("", "```\n", ""),
    "fences in a thought": ("Thought: x\n", "```\n", ""),
    "fenced calls": ("Thought: x\n", "```\nAction: Search[x]\n```\n", ""),
    "fences after a label": ("Action: ", "```json\n", ""),
    "backticks": ("Action: ", "`", ""),
    # dialects
    "objects opened": ("", '{"a":', ""),
    "objects opened after a label": ("Action: ", '{"action":', ""),
    "lists of objects": ("", '[{"a": 1}, ', ""),
    "list of calls": ("[", '{"action": "Search", "action_input": "x"},', '{"action": "Search"}]'),
    "calls in a row": ("Thought: x\n", '{"action": "Search", "action_input": "x"}\n', ""),
    "Python's literals": ("Action: {'a': [", "'b', ", "]}"),
    "tags": ("", "<tool_call>{", ""),
    "tags and calls": ("", '<tool_call>{"name": "Search", "arguments": {}}</tool_call>\n', ""),
    "angle brackets": ("", "<", ""),
    "marks of tool calls": ("", "[TOOL_CALLS]", ""),
    "keywords": ("Action: Search(", "a=1, ", ")"),
    "joined calls": ("Action: ", "Search[x], ", ""),
    "joined calls, open": ("Action: Search[x]", ", Search[", ""),
    "bare calls": ("", "Search[x]\n", ""),
    "bare calls or": ("", "Search[x] or\n", ""),
    "unknown bare calls": ("", "Foo[x]\n", ""),
    "input is a call": ("Action: Search\nAction Input: ", "Search(", ""),
    "input is an object": ("Action: Search\nAction Input: ", "{", ""),
    "input ends in residue": ("Action: Search\nAction Input: x", "\nObserv", ""),
    "name of words": ("Action: ", "a b ", ""),
    "name of signs": ("Action: ", "查", ""),
    "answer of stars": ("Final Answer: ", "**", ""),
    "answer of quotes": ("Final Answer: ", '"', ""),
    "answer keywords": ("Final Answer: ", "answer=", ""),
    "answer of calls": ("Final Answer: ", "Finish[", ""),
    "words": ("", "word ", ""),
}


def blown_up(pattern: tuple[str, str, str], size: int) -> str:
    """A text of `size` characters made of the pattern."""
    before, repeated, after = pattern
    return before + repeated * (size // len(repeated)) + after


def ways(text: str) -> list[Callable[[], object]]:
    """The four ways to read it."""
    return [lambda: parse(text, TOOLS), lambda: parse(text), lambda: parse(text, TOOLS, cut=True),
            lambda: parse(text, TOOLS, repairs=False)]


def seconds(text: str) -> float:
    """Processor seconds of the slowest way, each the better of two."""
    slowest = 0.0
    for way in ways(text):
        times = []
        for _ in range(2):
            began = time.process_time()
            way()
            times.append(time.process_time() - began)
        slowest = max(slowest, min(times))
    return slowest


def main(size: int) -> int:
    missed = 0
    print(f"{'pattern':32}{'s':>8}{'growth':>8}")
    for name, pattern in HOSTILE.items():
        once, twice = seconds(blown_up(pattern, size)), seconds(blown_up(pattern, 2 * size))
        growth = twice / once if twice > 0.1 else 2.0
        bad = once > SECONDS * size / 1_000_000 or growth > GROWTH
        missed += bad
        print(f"{name:32}{once:8.3f}{growth:8.1f}{'  <- too slow' if bad else ''}", flush=True)
    began = time.process_time()
    sum(number * number for number in range(2_000_000))
    print(f"{'(two million squares)':32}{time.process_time() - began:8.3f}")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000))
