"""The embedded model's own prompt: short, since every token takes a small machine's time; the format is the
same.

The adapter was trained on this very text. Its fingerprint is kept in the adapter's file, so that a change
of one without the other is noticed (tests/test_embedded.py).

    >>> text = trained_prompt().text("What is 6 * 7?", "- Calculator: adds and multiplies.")
    >>> text.splitlines()[-1]
    'Question: What is 6 * 7?'
    >>> print((reply_grammar(text) or "").splitlines()[1])
    action ::= "Calculator" input | "Finish[" answer
"""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

from ..prompt import Prompt
from ..settings import Settings

ADAPTER = Path(__file__).with_name("adapter.gguf")
"""Where the LoRA adapter for the embedded model lies, if there is one; no other model gets it."""

TEMPLATE = """\
Answer the question with these tools, one step at a time.
{tools}
- Finish: gives the answer.
Each step is a line "Thought: ..." and a line "Action: tool[input]".

{conversation}Question: {question}
{history}"""

LONGEST_THOUGHT = 300
"""Characters of a thought that the model may write; training's longest has 184. One in circles ends here."""

FINGERPRINT_KEY = "hello_react.prompt"
"""Where the adapter's file keeps the fingerprint of the prompt that it was trained on."""


def embedded_prompt() -> Prompt:
    """The prompt for the model of `embedded_llm`: short with the adapter, else the usual English one."""
    if Settings.load().local_model_path or not ADAPTER.exists():
        return Prompt(lang="en")
    return trained_prompt()


def trained_prompt() -> Prompt:
    """The prompt that the adapter is trained on."""
    return Prompt(lang="en", template=TEMPLATE)


def fingerprint() -> str:
    """The sha256 of what the model reads around tools, questions, history and an earlier turn."""
    text = trained_prompt().text("?", "-", "!\n", [("q", "a")])
    return hashlib.sha256(text.encode()).hexdigest()


def reply_grammar(prompt: str) -> str | None:
    """The form of a reply to a prompt made by `trained_prompt`, as a grammar for llama.cpp (GBNF): a thought,
    then an action with a tool that there is; what goes in is free. None for any other prompt.
    """
    head, _, rest = TEMPLATE.partition("{tools}")
    # The last such place: words of a tool's description must not end the list.
    listed, end, _ = prompt.removeprefix(head).rpartition("\n".join(rest.splitlines()[:3]))
    if not prompt.startswith(head) or not end:
        return None
    names = [f"{_literal(name)} input" for name in re.findall("(?m)^- (.+?): ", listed)]
    return (f'root ::= "Thought: " [^\\n]{{1,{LONGEST_THOUGHT}}} "\\nAction: " action\n'
            f"""action ::= {" | ".join([*names, '"Finish[" answer'])}\n"""
            'input ::= "[" [^\\x00]*\n'
            "answer ::= [^ \\n\\]] [^\\x00]*")


def _literal(text: str) -> str:
    """A text as GBNF writes it."""
    return '"' + re.sub(r"[\x00-\x1f\x7f\"\\\\]", lambda sign: f"\\x{ord(sign[0]):02X}", text) + '"'
