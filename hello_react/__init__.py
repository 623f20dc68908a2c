"""hello_react: learn how a ReAct agent works, and keep using it.

    >>> from hello_react import ReActAgent, ScriptedLLM, ToolExecutor
    >>> agent = ReActAgent(ScriptedLLM(["Thought: I know it.\\nAction: Finish[Paris]"]), ToolExecutor())
    >>> agent.run("What is the capital of France?", verbose=False).answer
    'Paris'

Read `parser`, `tools` and `agent` in that order: they are the whole agent. Names below are loaded when first
used, so importing the package costs nothing and does nothing.
"""

from __future__ import annotations

import importlib

TYPE_CHECKING = False  # importing typing would take longer than all else here

__version__ = "0.1.0"

_MODULE_OF = {
    "Action": "parser", "Finish": "parser", "Malformed": "parser", "Turn": "parser", "parse": "parser",
    "Tool": "tools", "ToolExecutor": "tools",
    "ReActAgent": "agent", "ToolCallingAgent": "tool_calling",
    "ReActWorkflow": "react_workflow",
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
    from typing import Any

    from .agent import ReActAgent as ReActAgent
    from .errors import HelloReactError as HelloReactError
    from .errors import ModelError as ModelError
    from .errors import SettingsError as SettingsError
    from .errors import ToolError as ToolError
    from .events import Notice as Notice
    from .events import Observation as Observation
    from .events import Reply as Reply
    from .events import Result as Result
    from .events import RunEnded as RunEnded
    from .events import RunStarted as RunStarted
    from .events import Step as Step
    from .events import StepStarted as StepStarted
    from .events import Thought as Thought
    from .events import Token as Token
    from .events import ToolCall as ToolCall
    from .events import Usage as Usage
    from .llm import FunctionLLM as FunctionLLM
    from .llm import HelloAgentsLLM as HelloAgentsLLM
    from .llm import ScriptedLLM as ScriptedLLM
    from .llm import default_llm as default_llm
    from .memory import Conversation as Conversation
    from .parser import Action as Action
    from .parser import Finish as Finish
    from .parser import Malformed as Malformed
    from .parser import Turn as Turn
    from .parser import parse as parse
    from .prompt import Prompt as Prompt
    from .react_workflow import ReActWorkflow as ReActWorkflow
    from .settings import Settings as Settings
    from .tool_calling import ToolCallingAgent as ToolCallingAgent
    from .toolbox.calculator import calculate as calculate
    from .toolbox.encyclopedia import Encyclopedia as Encyclopedia
    from .toolbox.search import search as search
    from .tools import Tool as Tool
    from .tools import ToolExecutor as ToolExecutor


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f".{_MODULE_OF[name]}", __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
