"""The embedded model's own prompt: short, since every token takes a small machine's time; the format is the
same.

The adapter was trained on this very text. Its fingerprint is kept in the adapter's file, so that a change
of one without the other is noticed (tests/test_embedded.py).

    >>> trained_prompt().text("What is 6 * 7?", "- Calculator: adds and multiplies.").splitlines()[-1]
    'Question: What is 6 * 7?'
"""

from __future__ import annotations

import hashlib

from ..prompt import Prompt
from ..settings import Settings
from .serve import ADAPTER

TEMPLATE = """\
Answer the question with these tools, one step at a time.
{tools}
- Finish: gives the answer.
Each step is a line "Thought: ..." and a line "Action: tool[input]".

{conversation}Question: {question}
{history}"""

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
