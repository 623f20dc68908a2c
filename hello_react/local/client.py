"""The embedded model's client: a grammar holds its replies to the format and to names that it has read.

So small a model easily loses a letter of a rare name. With the grammar a reply is a Thought and one Action of
a listed tool, and what is searched for is put together from words that stand in the question or came after
it. A prompt of another form than the trained one gets no grammar. It does not make a wrong step right.

    >>> print(grammar("...\\n- Search: finds.\\n- Finish: gives the answer.\\n\\nQuestion: Who is Bo?\\n"))
    root ::= "Thought: " [^\\n]+ "\\nAction: " call
    call ::= "Finish[" text "]" | "Search[" words "]"
    text ::= [^\\n]*
    words ::= word (" " word)*
    word ::= "Bo" | "Bo?" | "Question" | "Question:" | "Who" | "is"
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

from ..events import Messages, Notice, Reply, Token
from ..llm import HelloAgentsLLM

_TOOL = re.compile(r"^- ([^:\n]+): (.*)", re.MULTILINE)
_AROUND = "\"'“”‘’.,:;?!()[]"


class EmbeddedLLM(HelloAgentsLLM):
    """`HelloAgentsLLM` for the embedded model, whose replies keep to `grammar`."""

    def stream(
        self, messages: Messages, *, stop: str | Sequence[str] | None = (), **options: Any
    ) -> Iterator[Token | Notice | Reply]:
        """The reply as it arrives, as with `HelloAgentsLLM`."""
        rules = grammar(str(messages[-1].get("content") or "")) if stop and messages else None
        given = {**self.extra_body, **(options.pop("extra_body", None) or {})}
        extra = {**({"grammar": rules} if rules else {}), **given}
        yield from super().stream(messages, stop=stop, extra_body=extra, **options)


def grammar(prompt: str) -> str | None:
    """The grammar (GBNF) of the reply to a prompt of `trained_prompt`, or None for a prompt of another form.

    GBNF: https://github.com/ggml-org/llama.cpp/blob/master/grammars/README.md
    """
    listed, _, read = prompt.partition("\n\n")
    tools = dict(_TOOL.findall(listed))
    if "Finish" not in tools or not read:
        return None
    inputs = {name: "words" if _is_search(name, told) else "text" for name, told in tools.items()}
    calls = [f'{_quoted(f"{name}[")} {inputs[name]} "]"' for name in sorted(inputs)]
    rules = ['root ::= "Thought: " [^\\n]+ "\\nAction: " call', f"call ::= {' | '.join(calls)}",
             "text ::= [^\\n]*"]
    if "words" in inputs.values():
        rules += ['words ::= word (" " word)*', f"word ::= {' | '.join(map(_quoted, _words(read)))}"]
    return "\n".join(rules)


def _is_search(name: str, told: str) -> bool:
    return name.casefold() == "search" and "a JSON object" not in told


def _words(text: str) -> list[str]:
    """The words of `text`, each as it stands and without what may surround it."""
    found = set[str]()
    for word in text.split():
        bare = word.strip(_AROUND)
        found |= {word, bare, word.rstrip(_AROUND), re.sub("['’]s$", "", bare)}
    return sorted(found - {""})


def _quoted(text: str) -> str:
    return '"' + re.sub(r'["\\]', r"\\\g<0>", text) + '"'
