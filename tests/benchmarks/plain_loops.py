"""What the agents are measured against: the same job as a bare loop over the openai client, without any care.

No retries of its own, no limits, no checks of a reply; `text_loop` reads Thought and Action with one regular
expression, `tools_loop` uses native calls. Both stream. Imported by the benchmarks; as a program it asks one
question: `python plain_loops.py URL QUESTION`.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable
from typing import Any

PROMPT = """\
Solve the task with the tool, one step at a time.

Echo[text]: repeats the text.
Finish[answer]: ends the work.

Write two lines, "Thought: ..." and "Action: Tool[input]", then wait.

Task: {question}
"""
ACTION = re.compile(r"^Action: *(\w+)\[(.*)\]", re.MULTILINE)
TOOLS = [{"type": "function", "function": {
    "name": "Echo", "description": "Repeats the text.",
    "parameters": {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}}}]

Run = Callable[[str], str]


def text_loop(url: str, echo: Callable[[str], str]) -> Run:
    """A text agent: a question in, the answer out."""
    import openai

    client: Any = openai.OpenAI(base_url=url, api_key="none")

    def run(question: str) -> str:
        prompt = PROMPT.replace("{question}", question)
        while True:
            stream = client.chat.completions.create(
                model="scripted", messages=[{"role": "user", "content": prompt}], temperature=0, stream=True)
            text = "".join(choice.delta.content or "" for chunk in stream for choice in chunk.choices)
            match = ACTION.search(text)
            assert match, text
            if match[1] == "Finish":
                return match[2]
            prompt += f"{text}\nObservation: {echo(match[2])}\n"

    return run


def tools_loop(url: str, echo: Callable[[str], str]) -> Run:
    """An agent over native tool calls."""
    import openai

    client: Any = openai.OpenAI(base_url=url, api_key="none")

    def ask(messages: list[Any]) -> tuple[str, list[dict[str, Any]]]:
        text: list[str] = []
        calls: list[dict[str, Any]] = []
        for chunk in client.chat.completions.create(
                model="scripted", messages=messages, tools=TOOLS, temperature=0, stream=True):
            for choice in chunk.choices:
                text.append(choice.delta.content or "")
                for part in choice.delta.tool_calls or ():
                    if part.id:
                        function = {"name": part.function.name, "arguments": ""}
                        calls.append({"id": part.id, "type": "function", "function": function})
                    calls[part.index]["function"]["arguments"] += part.function.arguments or ""
        return "".join(text), calls

    def run(question: str) -> str:
        messages: list[Any] = [{"role": "system", "content": "Solve the task with the tool."},
                               {"role": "user", "content": question}]
        while True:
            text, calls = ask(messages)
            if not calls:
                return text
            messages.append({"role": "assistant", "content": text, "tool_calls": calls})
            for call in calls:
                values = json.loads(call["function"]["arguments"])
                messages.append({"role": "tool", "tool_call_id": call["id"], "content": echo(values["text"])})

    return run


if __name__ == "__main__":
    print(text_loop(sys.argv[1], lambda text: f"heard {text}")(sys.argv[2]), flush=True)
