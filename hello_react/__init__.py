"""hello_react: learn how a ReAct agent works, and keep using it.

    >>> from hello_react import ReActAgent, ScriptedLLM, ToolExecutor
    >>> agent = ReActAgent(ScriptedLLM(["Thought: I know it.\\nAction: Finish[Paris]"]), ToolExecutor())
    >>> print(agent.run("What is the capital of France?", verbose=False))
    Paris

Read `parser`, `tools` and `agent` in that order: they are the whole agent. Names below are loaded when first
used, so importing the package costs nothing and does nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_MODULE_OF = {
    "Action": "parser", "Finish": "parser", "Malformed": "parser", "Turn": "parser", "parse": "parser",
    "Tool": "tools", "ToolExecutor": "tools",
    "ReActAgent": "agent", "ToolCallingAgent": "tool_calling",
    "Prompt": "prompt",
    "Conversation": "memory",
    "HelloAgentsLLM": "llm", "ScriptedLLM": "llm", "FunctionLLM": "llm", "default_llm": "llm",
    "Reply": "events", "Usage": "events", "Observation": "events", "Step": "events", "Result": "events",
    "ToolCall": "events",
    "RunStarted": "events", "StepStarted": "events", "Token": "events", "Thought": "events",
    "Notice": "events", "RunEnded": "events",
    "HelloReactError": "errors", "SettingsError": "errors", "ToolError": "errors", "ModelError": "errors",
    "Settings": "settings",
    "search": "toolbox.search", "calculate": "toolbox.calculator", "Encyclopedia": "toolbox.encyclopedia",
}

__all__ = [*_MODULE_OF, "__version__"]

if TYPE_CHECKING:
    from .agent import ReActAgent
    from .errors import HelloReactError, ModelError, SettingsError, ToolError
    from .events import (
        Notice,
        Observation,
        Reply,
        Result,
        RunEnded,
        RunStarted,
        Step,
        StepStarted,
        Thought,
        Token,
        ToolCall,
        Usage,
    )
    from .llm import FunctionLLM, HelloAgentsLLM, ScriptedLLM, default_llm
    from .memory import Conversation
    from .parser import Action, Finish, Malformed, Turn, parse
    from .prompt import Prompt
    from .settings import Settings
    from .tool_calling import ToolCallingAgent
    from .toolbox.calculator import calculate
    from .toolbox.encyclopedia import Encyclopedia
    from .toolbox.search import search
    from .tools import Tool, ToolExecutor


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f".{_MODULE_OF[name]}", __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
