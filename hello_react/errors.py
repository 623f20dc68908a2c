"""What can go wrong in use, as exceptions in one tree (chapter 05; 01 meets the first of them).

    HelloReactError
    ├── SettingsError            a missing or unusable setting: key, model, URL, .env file
    ├── MissingExtraError        an optional dependency is not installed; names the extra to install
    ├── ToolError                a tool that can't be registered; a tool may raise it to speak to the model
    ├── TraceError               a trace file that can't be read or replayed
    ├── MemoryFileError          a saved conversation that can't be read or written (in `memory`)
    ├── WorkflowError            all that goes wrong in a workflow (its tree: `workflow_events`)
    └── ModelError               the model's service failed; carries the partial `result` of the run
        ├── ModelConnectionError     no server there, or the connection broke
        ├── ModelTimeoutError        no answer, or a stream that stalled, within the time limit
        ├── ModelStatusError         the server said no: `status` holds the HTTP status
        │   ├── AuthenticationError      401 or 403: the key
        │   ├── ModelNotFoundError       404: the model's name or the base URL
        │   ├── RateLimitError           429 after all retries
        │   └── ContextLengthError       the prompt is longer than the model's window
        └── BadReplyError            a reply without usable content: empty, broken, not JSON

A mistake in a call of the package itself (an empty question, a wrong type) is Python's own ValueError or
TypeError. A mistake of the model (an unreadable reply, an unknown tool, wrong arguments) is no exception: the
agent answers it with an observation and goes on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .events import Result


class HelloReactError(Exception):
    """Base of all; its text is one message for a person, and never holds a key."""


class SettingsError(HelloReactError, ValueError):
    """A setting is missing or can't be used; a ValueError too, as in the book."""


class MissingExtraError(HelloReactError):
    """An optional dependency is missing.

    Args:
        feature: what was asked for, such as "The embedded model".
        extra: the extra that brings it, such as "local".
    """

    def __init__(self, feature: str, extra: str) -> None:
        super().__init__(f"{feature} needs an optional part: pip install 'hello-react[{extra}]' "
                         f"(in a copy of the repository: pip install '.[{extra}]')")
        self.extra = extra


class ToolError(HelloReactError):
    """A tool that can't be registered. A tool may raise it too: the model then reads just its text."""


class TraceError(HelloReactError):
    """A trace that can't be read or replayed."""


class ModelError(HelloReactError):
    """The model's service failed.

    Attributes:
        result: the partial `Result` of the run it ended, or None outside a run.
    """

    result: Result | None = None


class ModelConnectionError(ModelError):
    """No server could be reached, or the connection broke."""


class ModelTimeoutError(ModelError):
    """The server did not answer, or its stream stalled, within the time limit."""


class ModelStatusError(ModelError):
    """The server answered with an error status.

    Attributes:
        status: the HTTP status, such as 400.
    """

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status


class AuthenticationError(ModelStatusError):
    """The key was refused (401, 403)."""


class ModelNotFoundError(ModelStatusError):
    """The model or the address does not exist (404)."""


class RateLimitError(ModelStatusError):
    """Too many requests, also after all retries (429)."""


class ContextLengthError(ModelStatusError):
    """The prompt is longer than the model can read."""


class BadReplyError(ModelError):
    """The server answered, but not with a usable reply."""
