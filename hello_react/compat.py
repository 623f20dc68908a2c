"""The names of a public tutorial, as thin adapters over this package (chapter 09 uses them).

The tutorial builds a ReAct agent as a workflow class of four steps. That class runs here when it imports the
engine from `hello_react.workflow` and all else from here. The prompt is ours and so is the reading of replies
(the tutorial's two-line calls included); the model and the tools are those of `llm` and `tools`.

    >>> from hello_react import ScriptedLLM
    >>> def add(x: int, y: int) -> int:
    ...     "Adds two numbers."
    ...     return x + y
    >>> step = ReActOutputParser().parse('Thought: A sum.\\nAction: add\\nAction Input: {"x": 1, "y": 2}')
    >>> FunctionTool.from_defaults(add)(**step.action_input).content
    '3'
"""

from __future__ import annotations

import asyncio
import inspect
import json
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from . import llm
from .background import iterate_in_thread
from .errors import HelloReactError, ToolError
from .events import Message, Notice, Reply, Step, Token
from .guards import whole_number
from .memory import Conversation
from .parser import Action, Finish, parse
from .prompt import Prompt, quote_labels, render_step
from .repairs import decode_json
from .text import readable, sendable
from .tools import Tool

# --- messages and memory

_NO_QUESTION = "(The assistant speaks first.)"


@dataclass
class ChatMessage:
    """One message: its role ("system", "user" or "assistant") and its text."""

    role: str = "user"
    content: str | None = None

    def __str__(self) -> str:
        return f"{self.role}: {self.content or ''}"


@dataclass
class ChatMemoryBuffer:
    """A conversation as messages. All are kept, and `get` gives those within the limit.

    Args:
        messages: what was said so far.
        token_limit: tokens that the messages given to the model may take.
    """

    messages: list[ChatMessage] = field(default_factory=list)
    token_limit: int = 3_000

    def __post_init__(self) -> None:
        whole_number("token_limit", self.token_limit, 1)

    @classmethod
    def from_defaults(cls, chat_history: Sequence[ChatMessage] | None = None, llm: Any = None,
                      token_limit: int | None = None) -> ChatMemoryBuffer:
        """A memory that begins with `chat_history`; the model is taken for the tutorial's sake."""
        return cls(list(chat_history or ()), 3_000 if token_limit is None else token_limit)

    def put(self, message: ChatMessage) -> None:
        """Add a message."""
        self.messages.append(message)

    async def aput(self, message: ChatMessage) -> None:
        """The same, awaited."""
        self.put(message)

    def set(self, messages: Sequence[ChatMessage]) -> None:
        """Replace all messages."""
        self.messages = list(messages)

    def get(self, input: str | None = None) -> list[ChatMessage]:
        """System messages, the newest turns that fit, and what is not answered yet, whatever the `input`."""
        system, turns, waiting = _turns(self.messages)
        window = Conversation(max_turns=len(turns) + 1, max_tokens=self.token_limit)
        for question, answer in turns:
            window.add(question, answer)
        recent = [ChatMessage(message["role"], message["content"]) for message in window.messages()
                  if message["content"] != _NO_QUESTION]
        return [*(ChatMessage("system", text) for text in system), *recent,
                *(ChatMessage("user", text) for text in waiting)]

    async def aget(self, input: str | None = None) -> list[ChatMessage]:
        """The same, awaited."""
        return self.get()

    def get_all(self) -> list[ChatMessage]:
        """Every message."""
        return list(self.messages)

    def reset(self) -> None:
        """Forget everything."""
        self.messages.clear()


def _turns(messages: Iterable[ChatMessage]) -> tuple[list[str], list[tuple[str, str]], list[str]]:
    """System texts, answered (question, answer) pairs, and the user's texts that have no answer yet.

    All that the assistant says until the user speaks again is one answer.
    """
    system: list[str] = []
    turns: list[tuple[str, str]] = []
    waiting: list[str] = []
    for message in messages:
        text = sendable(message.content or "").strip()
        if text and message.role == "system":
            system.append(text)
        elif text and message.role == "user":
            waiting.append(text)
        elif text and turns and not waiting:
            question, answer = turns.pop()
            turns.append((question, f"{answer}\n{text}"))
        elif text:
            turns.append(("\n".join(waiting) or _NO_QUESTION, text))
            waiting = []
    return system, turns, waiting


# --- the model


@dataclass
class ChatResponse:
    """What the model has said so far (`message`), and the newest piece of it (`delta`)."""

    message: ChatMessage
    delta: str | None = None

    def __str__(self) -> str:
        return str(self.message)


class LLM:
    """Any client of this package, in the tutorial's words.

    Args:
        client: anything with `think(messages)`, see `llm`.
    """

    def __init__(self, client: Any) -> None:
        self.client = client

    async def achat(self, messages: Sequence[ChatMessage], **options: Any) -> ChatResponse:
        """The whole reply.

        Raises:
            ModelError: as the client does.
        """
        *_, last = [response async for response in await self.astream_chat(messages, **options)]
        return ChatResponse(last.message)

    async def astream_chat(self, messages: Sequence[ChatMessage], stop: str | Sequence[str] | None = None,
                           **options: Any) -> AsyncIterator[ChatResponse]:
        """The reply as it comes; the last response holds the whole text.

        Args:
            messages: the conversation.
            stop: texts to end at, beside an observation of the model's own.
            options: more options of this call, such as temperature.

        Raises:
            ModelError: as the client does, while the reply is read.
        """
        sent: list[Message] = [{"role": one.role, "content": one.content or ""} for one in messages]
        stops = (*llm.OBSERVATION_STOPS, *((stop,) if isinstance(stop, str) else stop or ()))
        stream = llm.ask(self.client, sent, stop=stops, **options)
        return _responses(iterate_in_thread(stream))


async def _responses(stream: AsyncIterator[Any]) -> AsyncIterator[ChatResponse]:
    text = ""
    async for part in stream:
        if isinstance(part, Notice) and part.restart:
            text = ""
        elif isinstance(part, Token) and not part.thinking:
            text += part.text
            yield ChatResponse(ChatMessage("assistant", text), part.text)
        elif isinstance(part, Reply):
            yield ChatResponse(ChatMessage("assistant", part.text), "")


class OpenAI(LLM):
    """A model on any server that speaks the OpenAI chat protocol; what is not given comes from the settings.

    Args:
        model: the model's name.
        api_base: the address of the server.
        api_key: the key.
        options: more options of `HelloAgentsLLM`, such as temperature. What tells the tutorial's library of
            the model (`context_window`, `is_chat_model`, `is_function_calling_model`) is not needed here.

    Raises:
        SettingsError: something is missing; the message names it. TypeError: an option is not known.
    """

    def __init__(self, model: str | None = None, api_base: str | None = None, api_key: str | None = None,
                 **options: Any) -> None:
        for name in ("context_window", "is_chat_model", "is_function_calling_model"):
            options.pop(name, None)
        known = inspect.signature(llm.HelloAgentsLLM).parameters
        unknown = [name for name in options if name not in known]
        if unknown:
            raise TypeError(f"OpenAI takes no {', '.join(unknown)} here, but what HelloAgentsLLM does: "
                            f"{', '.join(known)}")
        super().__init__(llm.HelloAgentsLLM(model, api_key, api_base, **options))


# --- tools


@dataclass(frozen=True)
class ToolMetadata:
    """What the model knows of a tool."""

    name: str
    description: str
    return_direct: bool = False

    def get_name(self) -> str:
        """The name."""
        return self.name


@dataclass
class ToolSelection:
    """A call that the model wants."""

    tool_id: str
    tool_name: str
    tool_kwargs: dict[str, Any]


@dataclass
class ToolOutput:
    """What a call gave: as text for the model (`content`), and as the function returned it (`raw_output`).

    A function may return anything, so `raw_output` is not saved with a context and not compared.
    """

    content: str
    tool_name: str = ""
    raw_input: dict[str, Any] = field(default_factory=dict)
    raw_output: Any = field(default=None, compare=False, metadata={"saved": False})
    is_error: bool = False

    def __str__(self) -> str:
        return self.content


class BaseTool:
    """A tool: `metadata` says what it is, calling it runs it. Subclass it for tools of your own."""

    metadata: ToolMetadata

    def __call__(self, /, *args: Any, **kwargs: Any) -> ToolOutput:
        """Run the tool."""
        raise NotImplementedError

    async def acall(self, /, *args: Any, **kwargs: Any) -> ToolOutput:
        """Run the tool in a thread."""
        return await asyncio.to_thread(self, *args, **kwargs)

    def __str__(self) -> str:
        return f"- {self.metadata.name}: {self.metadata.description}"


class FunctionTool(BaseTool):
    """A function as a tool; make it with `from_defaults`."""

    def __init__(self, tool: Tool, return_direct: bool = False) -> None:
        self.tool = tool
        self.metadata = ToolMetadata(tool.name, tool.description, return_direct)

    @classmethod
    def from_defaults(cls, fn: Callable[..., Any] | None = None, name: str | None = None,
                      description: str | None = None, return_direct: bool = False,
                      async_fn: Callable[..., Any] | None = None) -> FunctionTool:
        """A tool from a function: its name, docstring and parameters, where nothing else is given.

        `return_direct` is told by the metadata; the workflow's steps see to it.

        Raises:
            ToolError: the function can't be a tool. TypeError: there is none.
        """
        function = fn or async_fn
        if function is None:
            raise TypeError("from_defaults needs a function")
        known = description or inspect.getdoc(function)
        signature = None if known else f"{function.__name__}{inspect.signature(function)}"
        return cls(Tool.from_function(function, name, description or signature), return_direct)

    def __call__(self, /, *args: Any, **kwargs: Any) -> ToolOutput:
        """Run the function. Raises what it raises, and ToolError if the arguments don't fit."""
        names = [parameter.name for parameter in self.tool.parameters]
        twice = kwargs.keys() & names[:len(args)]
        if twice or len(args) > len(names):
            wrong = f"{min(twice)!r} twice" if twice else f"{len(args)} values for {len(names)} parameters"
            raise ToolError(f"{self.tool.name} was given {wrong}.")
        kwargs.update(zip(names, args, strict=False))
        given: Any = kwargs
        if list(kwargs) == ["input"] and "input" not in names:  # plain text, as `Search[Oslo]` has it
            given = kwargs["input"]
        elif len(names) == 1 and names[0] not in kwargs:  # an object that is the input itself, or no input
            given = json.dumps(kwargs, ensure_ascii=False, default=str) if kwargs else ""
        value = self.tool.call(given, self.tool.timeout)
        return ToolOutput(readable(value), self.tool.name, kwargs, value)

    def __str__(self) -> str:
        return str(self.tool)


# --- the reasoning


@dataclass
class ActionReasoningStep:
    """The model wants a tool: `action` with `action_input`."""

    thought: str
    action: str
    action_input: dict[str, Any]
    is_done = False

    def get_content(self) -> str:
        """As the prompt shows it."""
        plain = self.action_input.get("input") if list(self.action_input) == ["input"] else None
        text = plain if isinstance(plain, str) else json.dumps(self.action_input, ensure_ascii=False)
        return render_step(Step(0, self.thought, (Action(self.action, text),), (), Reply(), 0)).strip()


@dataclass
class ObservationReasoningStep:
    """What a tool gave, or what was wrong."""

    observation: str
    is_done = False

    def get_content(self) -> str:
        """As the prompt shows it."""
        return f"Observation: {quote_labels(self.observation)}"


@dataclass
class ResponseReasoningStep:
    """The model's answer."""

    thought: str
    response: str
    is_done = True

    def get_content(self) -> str:
        """As the prompt shows it."""
        return f"Thought: {quote_labels(self.thought)}\nAction: Finish[{quote_labels(self.response)}]"


ReasoningStep = ActionReasoningStep | ObservationReasoningStep | ResponseReasoningStep


class OutputParserError(HelloReactError, ValueError):
    """The reply can't be read; the text tells the model what to write instead."""


class ReActOutputParser:
    """Reads replies by `parser.parse`."""

    def parse(self, output: str, is_streaming: bool = False) -> ActionReasoningStep | ResponseReasoningStep:
        """What a reply says, whether it came in pieces or not.

        Raises:
            OutputParserError: it can't be read. It is a ValueError too.
        """
        turn = parse(output)
        thought = turn.thought or ""
        if isinstance(turn.move, Finish):
            return ResponseReasoningStep(thought, turn.move.answer)
        if isinstance(turn.move, Action):
            return ActionReasoningStep(thought, turn.move.tool, _as_keywords(turn.move.input))
        raise OutputParserError(turn.move.note)


def _as_keywords(text: str) -> dict[str, Any]:
    """The arguments in a call's text; plain text, which names none, under "input"."""
    value, end = decode_json(text, 0, len(text))
    if isinstance(value, dict) and end == len(text):
        return value
    return {"input": text} if text else {}


class ReActChatFormatter:
    """Makes the model's input by `Prompt`.

    Args:
        context: text added to the rules of the prompt.
    """

    def __init__(self, context: str = "") -> None:
        self.prompt = Prompt(instructions=context)

    @classmethod
    def from_defaults(cls, context: str | None = None) -> ReActChatFormatter:
        """The same as the class itself."""
        return cls(context or "")

    def format(self, tools: Sequence[BaseTool], chat_history: Sequence[ChatMessage],
               current_reasoning: Sequence[ReasoningStep] | None = None) -> list[ChatMessage]:
        """The messages to send.

        Args:
            tools: what the model may use.
            chat_history: the conversation, with the question as its last message.
            current_reasoning: the steps of this question so far.
        """
        system, turns, waiting = _turns(chat_history)
        history = "".join(f"{step.get_content()}\n" for step in current_reasoning or ())
        text = self.prompt.text("\n".join(waiting), "\n".join(map(str, tools)), history, turns)
        return [*(ChatMessage("system", said) for said in system), ChatMessage("user", text)]
