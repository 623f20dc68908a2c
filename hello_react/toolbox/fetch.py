"""One way for the tools to ask a web service: a JSON object and its HTTP status, or a `ToolError`.

The message is for the model (what failed, what to do instead) and never holds an address, since addresses
may hold a key. Takes a function that sends the request, so that it fits `requests.get` and a service's own
package alike. What a status or an error inside the JSON means is left to the tool.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from ..errors import ToolError

if TYPE_CHECKING:
    import requests


def fetch_json(
    service: str, send: Callable[[], requests.Response], timeout: float
) -> tuple[int, dict[str, Any]]:
    """Send a request and read its answer.

    Args:
        service: its name for the message, such as "Wikipedia".
        send: sends the request, with `timeout`.
        timeout: in seconds, for the message.

    Returns:
        The HTTP status and the JSON object, also where the status is an error.

    Raises:
        ToolError: no answer in time, no connection, or an answer that is no JSON object.
    """
    import requests

    # Raised outside the except blocks: what requests raises holds the address, and with it the key.
    problem = ""
    try:
        response = send()
    except requests.Timeout:
        problem = "timed out"
    except (requests.RequestException, UnicodeError) as error:
        problem = "timed out" if "timed out" in str(error) else type(error).__name__
    if problem == "timed out":
        raise ToolError(f"{service} did not answer within {timeout:g} seconds. "
                        "Try again once or do without it.")
    if problem:
        raise ToolError(f"{service} could not be reached ({problem}). Do without it.")
    try:
        data = response.json()
    except (ValueError, RecursionError):
        data = None
    if not isinstance(data, dict):
        raise ToolError(f"{service} gave no usable answer (HTTP {response.status_code}). "
                        "Try again once or do without it.")
    return response.status_code, data


@contextmanager
def reading(service: str) -> Iterator[None]:
    """Around what reads an answer, or as its decorator: parts that are missing or of another type than
    expected become a `ToolError`.
    """
    try:
        yield
    except (AttributeError, LookupError, RecursionError, TypeError, ValueError) as error:
        raise ToolError(f"{service} gave an answer in an unknown form. "
                        "Try again once or do without it.") from error
